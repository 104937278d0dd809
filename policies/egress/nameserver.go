package egress

import (
	"net/netip"
	"strings"
)

// maxNameServers is how many name servers are asked, MAXNS of resolv.h and package net's own bound.
const maxNameServers = 3

// NameServers returns where resolv.conf(5) sends queries: to the host itself if it says nothing. An IPv6 address may
// have a zone.
func NameServers(resolvConf string) []netip.AddrPort {
	const port = 53
	var list []netip.AddrPort
	for line := range strings.Lines(resolvConf) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" || len(list) == maxNameServers {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			list = append(list, netip.AddrPortFrom(a, port))
		}
	}
	if len(list) == 0 { // the manual page names the IPv4 address, package net asks both
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), netip.AddrPortFrom(netip.IPv6Loopback(), port)}
	}
	return list
}
