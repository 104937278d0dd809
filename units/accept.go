package units

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// acceptPause keeps a process that cannot accept from spinning: no event says that there is room again.
const acceptPause = 100 * time.Millisecond

// Accept calls accept until it returns a connection, the listener is closed, its deadline passes or ctx ends. Every
// other error may pass: a server of the same user can take all of that user's epoll watches (ENOSPC, epoll(7)) or the
// machine's descriptors, and must not end a process of pfar's by it. warn hears the first error of each row.
func Accept[C any](ctx context.Context, accept func() (C, error), warn func(error)) (C, error) {
	for warned := false; ; warned = true {
		c, err := accept()
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil {
			return c, err
		}
		if !warned {
			warn(err)
		}
		select {
		case <-time.After(acceptPause):
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}

// PatientListener is a listener whose Accept is that of this package. An http.Server gives up at most errors.
type PatientListener struct {
	net.Listener
	Warn func(error)
}

// Accept returns the next connection, or an error when the listener is closed or its deadline has passed.
func (p PatientListener) Accept() (net.Conn, error) {
	return Accept(context.Background(), p.Listener.Accept, p.Warn)
}
