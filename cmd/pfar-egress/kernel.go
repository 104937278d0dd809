package main

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall/nflog"
	"github.com/pfar/pfar/units/monitor"
)

// notRedirected is the reason of what the namespace's ruleset rejects: no declared address, or no TCP.
const notRedirected = "not-declared"

// rejected makes a source of the netlink socket on which the kernel reports the packets that the namespace's ruleset
// rejected. Who sent them has seen an error already.
func rejected(f *os.File, p *proxy) source {
	b := make([]byte, 64<<10)
	return source{
		name: "NFLOG", until: f.SetReadDeadline, slots: make(chan struct{}, 1),
		next: func() (func(context.Context), error) {
			n, err := f.Read(b)
			if errors.Is(err, unix.ENOBUFS) { // more than the kernel keeps: the rest is refused all the same
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
			packets, _ := nflog.Parse(b[:n]) // of a bad message the good part
			for _, k := range packets {
				p.reject(k)
			}
			return nil, nil
		},
	}
}

func (p *proxy) reject(k nflog.Packet) {
	to := target{k.Destination.Addr().Unmap().String(), k.Destination.Port()}
	d := p.policy.Decide(to.host, to.port)
	if name, ok := p.addresses.Name(k.Destination.Addr()); ok {
		d.Host = name
	}
	rec := record{
		began: time.Now(), path: monitor.Kernel, protocol: k.Protocol, host: display(d, to),
		verdict: egress.Deny, reason: notRedirected, ref: &refusal{status: 403, reason: notRedirected},
	}
	if k.Protocol != "tcp" {
		rec.reason = "protocol-" + escape(k.Protocol) // declared hosts are reached over TCP alone
		rec.ref.reason = rec.reason
	}
	p.journal.end(&rec)
}
