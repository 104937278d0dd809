package registry

import "time"

// Limits bound what one server may cost.
type Limits struct {
	Line       int           // bytes of one message
	Depth      int           // nesting of a result
	Handshake  time.Duration // from Hello until everything is discovered
	Wake       time.Duration // from the call that wakes a server until it can be called
	Word       time.Duration // for pfard to say that a server which was stopped comes up again: its launcher does not know
	Probe      time.Duration // of that, for the question which generation of the protocol the server speaks
	Call       time.Duration // longest call, where the declaration says nothing
	Human      time.Duration // longest call in the course of which a client is asked something
	Write      time.Duration // for a server to read what it is sent
	Concurrent int           // calls in flight
	Waiting    int           // calls that wait for one of those to end
	Asks       int           // requests of the server's own that wait for a client
	Pages      int           // of one list
	Items      int           // of one list, all pages
	Bytes      int           // of one list, all pages
	Item       int           // bytes of one tool, prompt, resource or template
	ItemDepth  int           // nesting of one of those
	Notes      int           // notifications a second that are looked at
	Note       int           // bytes of one
	Ask        int           // bytes of a request of the server's own
	Refresh    time.Duration // least time between two discoveries
	Page       int           // bytes of a list that a client gets at once
}

// DefaultLimits are generous to an honest server.
func DefaultLimits() Limits {
	return Limits{
		Line: 16 << 20, Depth: 512,
		Handshake: 30 * time.Second, Wake: 45 * time.Second, Word: time.Second, Probe: 5 * time.Second, Call: time.Minute, Human: 10 * time.Minute, Write: 10 * time.Second,
		Concurrent: 64, Waiting: 256, Asks: 16,
		Pages: 256, Items: 4096, Bytes: 16 << 20, Item: 256 << 10, ItemDepth: 64,
		Notes: 200, Note: 64 << 10, Ask: 1 << 20, Refresh: time.Second, Page: 1 << 20,
	}
}
