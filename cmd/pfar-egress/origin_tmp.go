package main

import (
	"net"

	"github.com/pfar/pfar/policies/egress"
)

func (p *proxy) passRequests(c, up *net.TCPConn, first []byte, d egress.Decision, port uint16, rec *record) error {
	return p.tunnel(c, up, first, rec)
}
