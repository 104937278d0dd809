package systemd

import (
	"context"
	"errors"
	"sync"

	"github.com/godbus/dbus/v5"
)

// Link is a connection to systemd that is made anew when it has gone: systemd drops its connections when it executes
// itself anew, and a bus may be restarted. Its methods may be called at the same time.
type Link struct {
	dial func(context.Context) (*Bus, error)

	mu     sync.Mutex // held while the bus is replaced, never while systemd is waited for otherwise
	bus    *Bus
	closed bool
}

// NewLink returns a link that connects by dial when it is first used.
func NewLink(dial func(context.Context) (*Bus, error)) *Link { return &Link{dial: dial} }

var errLinkClosed = errors.New("connecting to systemd: pfard is ending")

// Bus returns the connection.
func (l *Link) Bus(ctx context.Context) (*Bus, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLinkClosed
	}
	if l.bus != nil && l.bus.Connected() {
		return l.bus, nil
	}
	bus, err := l.dial(ctx)
	if err != nil {
		return nil, err
	}
	if l.bus != nil {
		l.bus.Close()
	}
	l.bus = bus
	return bus, nil
}

// Close ends the connection, for good.
func (l *Link) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.bus != nil {
		l.bus.Close()
	}
}

// Answered reports whether an error is systemd's own word, so that the same question would get the same answer.
func Answered(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name != "org.freedesktop.DBus.Error.NoReply" && e.Name != "org.freedesktop.DBus.Error.Disconnected"
}
