package remote

import (
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/wire"
)

// Limits bound what a server may cost, and how long anything takes.
type Limits struct {
	Wire  wire.Limits
	Inbox inbox.Limits
	Line  int // bytes of a message
	Streams
	Own    time.Duration // for the server to answer a request of the adapter's own
	Notice time.Duration // for the server to take what needs no answer
	Behind int           // of those that are under way
	Lost   int           // failures in a row to reach a server that has answered, and for how long, until it is given up
	Away   time.Duration
	Grace  time.Duration // at the end, for requests in flight
	Leave  time.Duration // at the end, for the server to hear of it
}

// Streams bound event streams.
type Streams struct {
	Events   int           // in a response that has not answered yet
	Resumes  int           // in a row that find no stream
	Pause    time.Duration // before a stream is opened again, unless the server says how long
	Longest  time.Duration // the same, once that has brought nothing several times
	Endpoint time.Duration // until the older pair says where to send messages
	Stray    time.Duration // for an answer to come on another stream once its own has ended
	Quiet    time.Duration // of a stream that nobody waits for, until it is opened again
}

// DefaultLimits are generous to an honest server, and take what the gateway takes.
func DefaultLimits() Limits {
	return Limits{
		Wire: wire.DefaultLimits(), Inbox: inbox.DefaultLimits(), Line: 16 << 20,
		Streams: Streams{
			Events: 1 << 16, Resumes: 3, Pause: time.Second, Longest: 30 * time.Second,
			Endpoint: 10 * time.Second, Stray: 5 * time.Second, Quiet: 30 * time.Minute,
		},
		Own: 30 * time.Second, Notice: 10 * time.Second, Behind: 64, Lost: 3, Away: 10 * time.Second,
		Grace: 3 * time.Second, Leave: 1500 * time.Millisecond,
	}
}

// pause is how long to wait before something is tried again that has failed so often in a row.
func (s Streams) pause(failed int) time.Duration {
	return min(s.Longest, s.Pause<<min(max(failed-1, 0), 16))
}
