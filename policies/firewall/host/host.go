// Package host puts an egress.Hold into the host's nftables, as one table that is replaced as a whole, and finds the
// cgroups that it is about.
//
// It is apart from package firewall so that the launcher, which needs that one, does not carry a netlink library.
package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

const (
	// room is for a transaction, which is one datagram, and for the kernel's answers, in octets: it acknowledges every
	// message, and sends every rule back. The table of a hundred bridges makes more than a socket holds by default.
	room = 4 << 20
	// patience is a bound for errors of the kernel's own: after some it leaves out the rest of its answers.
	patience = 5 * time.Second
)

// Apply has the calling thread's network namespace hold h from now on, in place of what it held before: all of it, or
// nothing, in one transaction that no packet sees half of. It wants CAP_NET_ADMIN over the namespace.
func Apply(h egress.Hold, now time.Time) error {
	if h.Slice == (egress.Cgroup{}) {
		return errors.New("loading the machine's table: the slice has no cgroup") // the rule would be about everybody
	}
	t := h.Table(now)
	c, table, err := begin(t.Name)
	if err != nil {
		return loading(err)
	}
	c.AddTable(table)
	if err := add(c, table, t); err != nil {
		return loading(err)
	}
	return loading(flush(c))
}

// Remove deletes the table, if there is one.
func Remove() error {
	c, _, err := begin((egress.Hold{}).Table(time.Time{}).Name)
	if err == nil {
		err = flush(c)
	}
	if err != nil {
		return fmt.Errorf("removing the machine's table: %w", err)
	}
	return nil
}

// begin begins a transaction with a table's end, whether it is there or not: to add what is there is no error, and to
// delete what is not would be one.
func begin(name string) (*nftables.Conn, *nftables.Table, error) {
	c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(s *netlink.Conn) error {
		return errors.Join(s.SetWriteBuffer(room), s.SetReadBuffer(room), s.SetReadDeadline(time.Now().Add(patience)))
	}))
	if err != nil {
		return nil, nil, err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: name}
	c.AddTable(table)
	c.DelTable(table)
	return c, table, nil
}

// flush sends the transaction. What was decided holds when the kernel has answered; closing the socket waits ten
// milliseconds more, until no packet can still see the old table, and nobody needs to wait with it.
func flush(c *nftables.Conn) error {
	err := c.Flush()
	go func() { _ = c.CloseLasting() }()
	// One refusal is enough: they may be as many as there are rules.
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) && len(joined.Unwrap()) > 0 {
		err = joined.Unwrap()[0]
	}
	return err
}

func loading(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("loading the machine's table: this process may not change nftables (CAP_NET_ADMIN): %w", err)
	}
	for _, lacks := range []error{unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.EOPNOTSUPP, unix.ENOENT} {
		if errors.Is(err, lacks) {
			return fmt.Errorf("loading the machine's table: the kernel has no nf_tables, or not all of it (modprobe -a "+
				"nf_tables nft_socket nft_reject_inet; cgroups v2 since Linux 5.13): %w", err)
		}
	}
	return fmt.Errorf("loading the machine's table: %w", err)
}

func add(c *nftables.Conn, table *nftables.Table, t egress.HostTable) error {
	sets := map[string]*nftables.Set{}
	for i, s := range t.Sets {
		set, elements := encodeSet(s)
		set.Table, set.ID = table, uint32(i+1) // otherwise the library counts, for all threads without a lock
		sets[s.Name] = set
		if err := c.AddSet(set, elements); err != nil {
			return fmt.Errorf("set %q: %w", s.Name, err)
		}
	}
	chains := make([]*nftables.Chain, len(t.Chains))
	for i, chain := range t.Chains {
		chains[i] = &nftables.Chain{Table: table, Name: chain.Name}
		if chain.Hook != "" {
			hook, accept := map[string]*nftables.ChainHook{"output": nftables.ChainHookOutput,
				"input": nftables.ChainHookInput}[chain.Hook], nftables.ChainPolicyAccept
			if hook == nil {
				return fmt.Errorf("chain %q: hook %q is neither output nor input", chain.Name, chain.Hook)
			}
			chains[i].Type, chains[i].Hooknum, chains[i].Priority, chains[i].Policy = nftables.ChainTypeFilter, hook,
				nftables.ChainPriorityFilter, &accept
		}
		c.AddChain(chains[i])
	}
	for i, chain := range t.Chains {
		for _, r := range chain.Rules {
			list, err := expressions(r, sets)
			if err != nil {
				return fmt.Errorf("rule %q: %w", r, err)
			}
			rule := &nftables.Rule{Table: table, Chain: chains[i], Exprs: list}
			if r.Comment != "" {
				rule.UserData = userdata.AppendString(nil, userdata.TypeComment, r.Comment)
			}
			c.AddRule(rule)
		}
	}
	return nil
}

// encodeSet returns a set whose keys are an address and a port, each filled up to four octets.
func encodeSet(s egress.HostSet) (*nftables.Set, []nftables.SetElement) {
	address := nftables.TypeIPAddr
	if s.IPv6 {
		address = nftables.TypeIP6Addr
	}
	elements := make([]nftables.SetElement, len(s.Elements))
	for i, e := range s.Elements {
		key := append(e.Addr.AsSlice(), byte(e.Port>>8), byte(e.Port), 0, 0)
		elements[i] = nftables.SetElement{Key: key, Timeout: e.Timeout}
	}
	return &nftables.Set{
		Name: s.Name, Concatenation: true, HasTimeout: s.Expires,
		KeyType: nftables.MustConcatSetType(address, nftables.TypeInetService),
	}, elements
}

// register is the one that expressions hand their values on in. It has sixteen octets; in sets, what follows an IPv4
// address lies within it, and what follows an IPv6 address in the next one.
const (
	register   = unix.NFT_REG_1
	afterIPv4  = unix.NFT_REG32_01
	afterIPv6  = unix.NFT_REG_2
	tcpFlags   = 13   // offset in the header, RFC 9293 section 3.1
	opening    = 0x02 // SYN
	notOpening = 0x17 // FIN, SYN, RST, ACK
)

// expressions encodes a rule just as nft(8) does, so that it can read it back.
func expressions(r egress.HostRule, sets map[string]*nftables.Set) ([]expr.Any, error) {
	var list []expr.Any
	if r.Opening {
		list = append(list, flags(expr.CmpOpEq)...)
	}
	if r.Under {
		list = append(list, flags(expr.CmpOpNeq)...)
	}
	if r.Cgroup != (egress.Cgroup{}) {
		list = append(list,
			&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: r.Cgroup.Level, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.NativeEndian.AppendUint64(nil, r.Cgroup.ID)})
	}
	number, known := map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "": 0}[r.Protocol]
	switch {
	case !known || r.Set != "" && number == 0:
		return nil, fmt.Errorf("protocol %q is neither tcp nor udp", r.Protocol)
	case r.Set != "":
		if sets[r.Set] == nil {
			return nil, fmt.Errorf("no set %q", r.Set)
		}
		list = append(list, destination(r.IPv6, number, sets[r.Set])...)
	case number != 0:
		list = append(list, protocol(number)...)
	}
	if r.Counter {
		list = append(list, &expr.Counter{})
	}
	last, err := verdict(r)
	return append(list, last), err
}

// flags matches segments of TCP that are, or are not, the first one of a connection.
func flags(op expr.CmpOp) []expr.Any {
	return append(protocol(unix.IPPROTO_TCP),
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1, DestRegister: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{notOpening}, Xor: []byte{0}},
		&expr.Cmp{Op: op, Register: register, Data: []byte{opening}})
}

func protocol(number byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{number}},
	}
}

// destination matches a packet of the set's family whose destination, with its port, the set holds.
func destination(ipv6 bool, number byte, set *nftables.Set) []expr.Any {
	family, offset, size, after := byte(unix.NFPROTO_IPV4), uint32(16), uint32(4), uint32(afterIPv4) // RFC 791
	if ipv6 {
		family, offset, size, after = unix.NFPROTO_IPV6, 24, 16, afterIPv6 // RFC 8200
	}
	list := append([]expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
	}, protocol(number)...)
	return append(list,
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size, DestRegister: register},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: after},
		&expr.Lookup{SourceRegister: register, SetName: set.Name, SetID: set.ID})
}

func verdict(r egress.HostRule) (expr.Any, error) {
	switch r.Action {
	case egress.Drop:
		return &expr.Verdict{Kind: expr.VerdictDrop}, nil
	case egress.Accept:
		return &expr.Verdict{Kind: expr.VerdictAccept}, nil
	case egress.Jump:
		return &expr.Verdict{Kind: expr.VerdictJump, Chain: r.Chain}, nil
	case egress.Goto:
		return &expr.Verdict{Kind: expr.VerdictGoto, Chain: r.Chain}, nil
	case egress.RejectReset:
		return &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}, nil
	case egress.RejectAdmin:
		return &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED}, nil
	}
	return nil, fmt.Errorf("action %d is not of this table", r.Action)
}
