// Package transport carries messages between the gateway and one server: over the server's stdio.
package transport

import (
	"context"
	"syscall"
	"time"

	"github.com/pfar/pfar/policies/failure"
)

// Transport is a connection to one server. A message is one line and ends in a newline. One goroutine calls Receive;
// any goroutine may call the other methods.
type Transport interface {
	// Receive returns the next message without its newline. The message belongs to the caller. The error wraps
	// ErrClosed once the server sends no more.
	Receive() ([]byte, error)

	// Send sends a whole message or nothing; if only a part can be sent, it closes the connection. It does not wait for
	// messages that other goroutines are sending: then it returns a Sending, and nil if the message has been sent.
	// crowded says that other goroutines are about to send as well.
	Send(ctx context.Context, message []byte, crowded bool) (*Sending, error)

	CloseSend() // tells the server that no more messages come: the first step of its stop
	Close()

	// Files returns the descriptors with which the next gateway continues the connection.
	Files() []syscall.Conn
}

// Limits bound what a server may cost its transport.
type Limits struct {
	Line  int           // bytes of one message
	Write time.Duration // for a server to read what it is sent
}

var (
	ErrClosed error = failure.Fact("the server closed its stdout")
	ErrStuck  error = failure.Fact("the server does not read its stdin")
)

// Sending is a message that waits to be sent, possibly together with others.
type Sending struct {
	lines  []byte
	done   chan struct{} // closed when they are sent, or will not be
	failed chan struct{} // closed if they will not be
	err    error         // why
}

// Failed returns a channel that is closed if sending fails. Err says why.
func (s *Sending) Failed() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.failed
}

// Err returns why sending failed, after Failed is closed.
func (s *Sending) Err() error { return s.err }

// Write sends a message and waits until it is sent.
func Write(ctx context.Context, to Transport, message []byte) error {
	s, err := to.Send(ctx, message, false)
	if s == nil {
		return err
	}
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
