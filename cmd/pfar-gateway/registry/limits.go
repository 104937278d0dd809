package registry

import (
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
)

// Limits bound what one server may cost.
type Limits struct {
	protocol.Limits
	Wake      time.Duration // from the call that wakes a server until it can be called
	Verify    time.Duration // for the call that shows whether a server's secrets are right
	Word      time.Duration // for pfard to say that a server which was stopped comes up again: its launcher does not know
	Pages     int           // of one list
	Items     int           // of one list, all pages
	Bytes     int           // of one list, all pages
	Item      int           // bytes of one tool, prompt, resource or template
	ItemDepth int           // nesting of one of those
	Refresh   time.Duration // least time between two discoveries
	Page      int           // bytes of a list that a client gets at once
}

// DefaultLimits are generous to an honest server.
func DefaultLimits() Limits {
	return Limits{
		Limits: protocol.Limits{
			Limits: transport.Limits{Line: 16 << 20, Write: 10 * time.Second},
			Depth:  512, Handshake: 30 * time.Second, Probe: 5 * time.Second, Call: time.Minute, Human: 10 * time.Minute,
			Concurrent: 64, Waiting: 256, Asks: 16, Notes: 200, Note: 64 << 10, Ask: 1 << 20,
		},
		Wake: time.Minute, Verify: 15 * time.Second, Word: time.Second, Pages: 256, Items: 4096, Bytes: 16 << 20, Item: 256 << 10, ItemDepth: 64,
		Refresh: time.Second, Page: 1 << 20,
	}
}
