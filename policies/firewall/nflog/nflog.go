// Package nflog reads what the kernel logs to an NFLOG group: datagrams in, protocols and destinations of packets out.
package nflog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Packet is one logged packet.
type Packet struct {
	Protocol    string         // "tcp", "udp", "icmp", "icmp6", or the protocol's number (IANA's protocol-numbers)
	Destination netip.AddrPort // the port is 0 where there is none, or where it was not copied
}

// Of linux/netlink.h, linux/netfilter/nfnetlink.h and linux/netfilter/nfnetlink_log.h.
const (
	headerLen    = 16 // nlmsghdr
	nfgenLen     = 4  // nfgenmsg
	attrLen      = 4  // nlattr
	typePacket   = 4 << 8
	typeMask     = 1<<14 - 1 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	attrPayload  = 9         // NFULA_PAYLOAD
	maxExtension = 8         // IPv6 extension headers that are looked behind
)

var (
	errMessage   = errors.New("a message is longer than its datagram, or shorter than its header")
	errAttribute = errors.New("an attribute is longer than its message, or shorter than its header")
	errPayload   = errors.New("a packet has no payload")
	errHeader    = errors.New("a packet is shorter than its header")
)

// Parse returns the packets of one datagram, in order, of which there are several where the kernel batches. Messages
// of other types, such as the one that ends a batch, are passed over. With an error come the packets before it.
func Parse(datagram []byte) ([]Packet, error) {
	var list []Packet
	for b := datagram; len(b) > 0; {
		if len(b) < headerLen {
			return list, errMessage
		}
		n := binary.NativeEndian.Uint32(b)
		if n < headerLen || uint64(n) > uint64(len(b)) {
			return list, errMessage
		}
		if binary.NativeEndian.Uint16(b[4:]) == typePacket {
			p, err := parseMessage(b[headerLen:n])
			if err != nil {
				return list, err
			}
			list = append(list, p)
		}
		b = b[min(align(int(n)), len(b)):]
	}
	return list, nil
}

// align rounds up to a multiple of four, as messages and attributes are (netlink(3)).
func align(n int) int { return (n + 3) &^ 3 }

func parseMessage(b []byte) (Packet, error) {
	if len(b) < nfgenLen {
		return Packet{}, errMessage
	}
	for b = b[nfgenLen:]; len(b) > 0; {
		if len(b) < attrLen {
			return Packet{}, errAttribute
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrLen || n > len(b) {
			return Packet{}, errAttribute
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == attrPayload {
			return parsePacket(b[attrLen:n])
		}
		b = b[min(align(n), len(b)):]
	}
	return Packet{}, errPayload
}

// parsePacket reads as much of a packet as is there: the sender of its inner parts is the confined program, and the
// kernel copies only the beginning.
func parsePacket(b []byte) (Packet, error) {
	if len(b) == 0 {
		return Packet{}, errHeader
	}
	switch version := b[0] >> 4; version {
	case 4:
		return parseIPv4(b)
	case 6:
		return parseIPv6(b)
	default:
		return Packet{}, fmt.Errorf("a packet is of IP version %d", version)
	}
}

func parseIPv4(b []byte) (Packet, error) {
	const fixed = 20
	if len(b) < fixed {
		return Packet{}, errHeader
	}
	n := int(b[0]&0xf) * 4
	if n < fixed {
		return Packet{}, errHeader
	}
	dst := netip.AddrFrom4([4]byte(b[16:fixed]))
	if offset := binary.BigEndian.Uint16(b[6:]) & 0x1fff; offset != 0 {
		return packet(b[9], dst, nil), nil // a later fragment: the ports were in the first
	}
	return packet(b[9], dst, b[min(n, len(b)):]), nil
}

func parseIPv6(b []byte) (Packet, error) {
	const fixed = 40
	if len(b) < fixed {
		return Packet{}, errHeader
	}
	next, dst := b[6], netip.AddrFrom16([16]byte(b[24:fixed]))
	b = b[fixed:]
	for range maxExtension {
		n := 0
		switch {
		case len(b) < 8: // no extension is shorter, and no header of a protocol that has ports
			return packet(next, dst, b), nil
		case next == 0 || next == 43 || next == 60: // hop-by-hop options, routing, destination options (RFC 8200 section 4)
			n = 8 + int(b[1])*8
		case next == 44: // fragment
			if binary.BigEndian.Uint16(b[2:])>>3 != 0 {
				return packet(b[0], dst, nil), nil
			}
			n = 8
		case next == 51: // authentication header, which counts in fours (RFC 4302 section 2.2)
			n = 8 + int(b[1])*4
		default:
			return packet(next, dst, b), nil
		}
		next, b = b[0], b[min(n, len(b)):]
	}
	return packet(next, dst, nil), nil
}

// packet takes the port from the transport header, as far as there is one.
func packet(protocol byte, dst netip.Addr, transport []byte) Packet {
	p := Packet{Protocol: strconv.Itoa(int(protocol))}
	port := uint16(0)
	switch protocol {
	case 1:
		p.Protocol = "icmp"
	case 6:
		p.Protocol = "tcp"
	case 17:
		p.Protocol = "udp"
	case 58:
		p.Protocol = "icmp6"
	}
	if (protocol == 6 || protocol == 17) && len(transport) >= 4 {
		port = binary.BigEndian.Uint16(transport[2:])
	}
	p.Destination = netip.AddrPortFrom(dst, port)
	return p
}
