package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
)

// lo is the index of the loopback interface, the same in every network namespace (LOOPBACK_IFINDEX).
const lo = 1

// Loopback makes lo of the calling thread's network namespace what Ruleset counts on: up, with the synthetic ranges as
// its own addresses, and as the way to everywhere, so that each connection meets the ruleset rather than ENETUNREACH.
// To do it again changes nothing. A kernel without IPv6 is no error. It wants CAP_NET_ADMIN over the namespace: setting
// lo up is the first thing to need it, so that is where EPERM says that a user namespace came without capabilities
// (AppArmor's restriction on Ubuntu 24.04).
func Loopback() (ipv6 bool, err error) {
	s, err := dial(unix.NETLINK_ROUTE)
	if err != nil {
		return false, err
	}
	defer s.close()
	return s.loopback()
}

func (s socket) loopback() (ipv6 bool, err error) {
	four, six := egress.SyntheticIPv4(), egress.SyntheticIPv6()
	err = s.exchange(2, []message{
		linkUp(),
		// The kernel makes the whole prefix of an IPv4 address on lo local. That it is not of 127.0.0.0/8 makes
		// AI_ADDRCONFIG of getaddrinfo(3) believe in IPv4.
		address(netip.PrefixFrom(four.Addr().Next(), four.Bits())),
		route(netip.PrefixFrom(netip.IPv4Unspecified(), 0), unix.RTN_UNICAST),
	})
	if err != nil {
		return false, err
	}
	err = s.exchange(2, []message{
		address(netip.PrefixFrom(six.Addr().Next(), 128)),
		route(six, unix.RTN_LOCAL),
		// Local, as the kernel makes of any other IPv6 route to lo one that rejects (RTF_REJECT), if behind the ruleset.
		route(netip.PrefixFrom(netip.IPv6Unspecified(), 0), unix.RTN_LOCAL),
	})
	if noIPv6(err) {
		return false, nil
	}
	return err == nil, err
}

// noIPv6 tells a kernel without IPv6 from one that refuses: it knows no such address, or may not add it (disable_ipv6
// of ip-sysctl).
func noIPv6(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EACCES)
}

// linkUp, address and route are the messages of rtnetlink(7).
func linkUp() message {
	b := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(b[4:], lo)
	binary.NativeEndian.PutUint32(b[8:], unix.IFF_UP)
	binary.NativeEndian.PutUint32(b[12:], unix.IFF_UP) // what changes
	return message{doing: "setting lo up", kind: unix.RTM_NEWLINK, body: b}
}

func address(p netip.Prefix) message {
	b := make([]byte, unix.SizeofIfAddrmsg)
	b[0], b[1], b[2], b[3] = family(p), byte(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE
	binary.NativeEndian.PutUint32(b[4:], lo)
	b = appendAttribute(b, unix.IFA_LOCAL, p.Addr().AsSlice())
	b = appendAttribute(b, unix.IFA_ADDRESS, p.Addr().AsSlice())
	return message{doing: fmt.Sprintf("adding %s to lo", p), kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, body: b}
}

func route(p netip.Prefix, kind byte) message {
	b := make([]byte, unix.SizeofRtMsg)
	b[0], b[1] = family(p), byte(p.Bits())
	b[4], b[5], b[6], b[7] = unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_LINK, kind
	if kind == unix.RTN_LOCAL {
		b[4], b[6] = unix.RT_TABLE_LOCAL, unix.RT_SCOPE_HOST
	}
	if p.Bits() > 0 {
		b = appendAttribute(b, unix.RTA_DST, p.Addr().AsSlice())
	}
	b = appendAttribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, lo))
	return message{doing: fmt.Sprintf("routing %s to lo", p), kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_REPLACE, body: b}
}

func family(p netip.Prefix) byte {
	if p.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
