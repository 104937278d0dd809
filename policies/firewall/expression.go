package firewall

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// register is the one register that the expressions of a rule hand their values on in.
const register = unix.NFT_REG_1

// expressions returns the elements of NFTA_RULE_EXPRESSIONS, just as nft(8) makes them, so that it can read them back.
func expressions(r egress.Rule) ([][]byte, error) {
	var list []expr.Any
	if len(r.States) > 0 {
		states, err := ctStates(r.States)
		if err != nil {
			return nil, err
		}
		list = append(list, states...)
	}
	if r.Destination.IsValid() {
		list = append(list, destination(r.Destination)...)
	}
	protocol, err := destinationPort(r.Protocol, r.Port)
	if err != nil {
		return nil, err
	}
	list = append(list, protocol...)
	if r.Rate != 0 {
		list = append(list, &expr.Limit{Type: expr.LimitTypePkts, Rate: r.Rate, Unit: expr.LimitTimeSecond, Burst: r.Burst})
	}
	last, err := action(r)
	if err != nil {
		return nil, err
	}
	list = append(list, last...)
	elements := make([][]byte, len(list))
	for i, e := range list {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, fmt.Errorf("encoding %T: %w", e, err)
		}
		elements[i] = appendAttribute(nil, unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, b)
	}
	return elements, nil
}

func ctStates(names []string) ([]expr.Any, error) {
	mask := uint32(0)
	for _, name := range names {
		switch name {
		case "established":
			mask |= expr.CtStateBitESTABLISHED
		case "related":
			mask |= expr.CtStateBitRELATED
		case "new":
			mask |= expr.CtStateBitNEW
		default:
			return nil, fmt.Errorf("state %q is unknown", name)
		}
	}
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		&expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: 4,
			Mask: binary.NativeEndian.AppendUint32(nil, mask), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: make([]byte, 4)},
	}, nil
}

func destination(p netip.Prefix) []expr.Any {
	nfproto, offset := byte(unix.NFPROTO_IPV4), uint32(16) // of the destination in the header, RFC 791 and RFC 8200
	if p.Addr().Is6() {
		nfproto, offset = unix.NFPROTO_IPV6, 24
	}
	address := p.Masked().Addr().AsSlice()
	list := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{nfproto}},
	}
	load := &expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, DestRegister: register}
	list = append(list, load)
	switch bits := p.Bits(); {
	case bits == 0:
		return list[:2] // the family is all of it
	case bits%8 == 0:
		address = address[:bits/8]
	default:
		mask := make([]byte, len(address))
		for i := range bits {
			mask[i/8] |= 0x80 >> (i % 8)
		}
		list = append(list, &expr.Bitwise{
			SourceRegister: register, DestRegister: register, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask)),
		})
	}
	load.Len = uint32(len(address))
	return append(list, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: address})
}

func destinationPort(protocol string, port uint16) ([]expr.Any, error) {
	var number byte
	switch protocol {
	case "tcp":
		number = unix.IPPROTO_TCP
	case "udp":
		number = unix.IPPROTO_UDP
	case "":
		if port != 0 {
			return nil, fmt.Errorf("port %d is of no protocol", port)
		}
		return nil, nil
	default:
		return nil, fmt.Errorf("protocol %q is neither tcp nor udp", protocol)
	}
	list := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{number}},
	}
	if port != 0 {
		list = append(list,
			&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.BigEndian.AppendUint16(nil, port)})
	}
	return list, nil
}

func action(r egress.Rule) ([]expr.Any, error) {
	switch r.Action {
	case egress.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}, nil
	case egress.Accept:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, nil
	case egress.Redirect:
		if r.RedirectTo == 0 {
			return nil, fmt.Errorf("a redirect wants a port")
		}
		return []expr.Any{
			&expr.Immediate{Register: register, Data: binary.BigEndian.AppendUint16(nil, r.RedirectTo)},
			&expr.Redir{RegisterProtoMin: register},
		}, nil
	case egress.Log:
		const keys = 1<<unix.NFTA_LOG_GROUP | 1<<unix.NFTA_LOG_SNAPLEN
		return []expr.Any{&expr.Log{Key: keys, Group: r.Group, Snaplen: r.Snaplen}}, nil
	case egress.RejectReset:
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}, nil
	case egress.RejectAdmin:
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}}, nil
	}
	return nil, fmt.Errorf("action %d is unknown", r.Action)
}
