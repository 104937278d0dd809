package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/pfar/pfar/cmd/pfar-egress/resolver"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// names serves the resolver of the server's network namespace. No question is passed on to anybody.
type names struct {
	resolver *resolver.Resolver
	journal  *journal
	wanted   func(name string) // is told of each name that was answered
}

const (
	maxDatagram = 4096             // octets of a question over UDP; no resolver library sends more
	maxSilence  = 10 * time.Second // of a TCP connection (RFC 7766 section 6.2.3)
)

// datagrams makes a source of the resolver's UDP socket.
func (n *names) datagrams(c *net.UDPConn) source {
	b := make([]byte, maxDatagram)
	return source{
		name: c.LocalAddr().String() + " (UDP)", until: c.SetReadDeadline, slots: make(chan struct{}, 1),
		next: func() (func(context.Context), error) {
			size, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return nil, err
			}
			if answer := n.answer(b[:size], false); answer != nil {
				_, _ = c.WriteToUDPAddrPort(answer, netip.AddrPortFrom(from.Addr().Unmap(), from.Port())) // who asked may have gone
			}
			return nil, nil
		},
	}
}

// serveConn answers questions over TCP, each behind its length (RFC 1035 section 4.2.2).
func (n *names) serveConn(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer closeAtEnd(ctx, c)()
	for {
		if c.SetDeadline(time.Now().Add(maxSilence)) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		answer := n.answer(query, true)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

func (n *names) answer(query []byte, tcp bool) []byte {
	answer, asked := n.resolver.Answer(query, tcp)
	switch {
	case asked.Refused, asked.Learned: // to learn a name is not to allow it
		rec := record{
			began: time.Now(), path: monitor.Resolver, protocol: "dns", host: asked.Name, verdict: egress.Deny,
			reason: asked.Reason,
			err:    asked.Err, ref: &refusal{status: 403, reason: asked.Reason},
		}
		n.journal.end(&rec)
	case asked.Type == "A" || asked.Type == "AAAA":
		n.wanted(asked.Name)
	}
	return answer
}
