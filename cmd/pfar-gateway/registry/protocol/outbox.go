package protocol

import (
	"context"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
)

// outbox has what the server is told and nobody waits for: answers to it, cancellations.
type outbox struct {
	lines  chan []byte
	conn   transport.Transport
	faults *faults
}

// run sends until the conversation is done.
func (o *outbox) run(done <-chan struct{}) {
	for {
		select {
		case line := <-o.lines:
			if err := transport.Write(context.Background(), o.conn, line); err != nil {
				o.faults.add(Unread, line)
			}
		case <-done:
			return
		}
	}
}

// tell queues a line, or drops it if the server reads nothing.
func (o *outbox) tell(line []byte) {
	select {
	case o.lines <- line:
	default:
		o.faults.add(Unread, line)
	}
}
