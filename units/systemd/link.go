package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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

const stopTime = time.Minute // for a unit to stop: TimeoutStopSec= is shorter

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

// pauses between tries to reach systemd.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
)

// Persist repeats a question until it has an answer, whatever that is, or ctx ends. failed is told of each try that had
// none.
func (l *Link) Persist(ctx context.Context, ask func(context.Context, *Bus) error, failed func(error)) error {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := l.ask(ctx, ask)
		if err == nil || Answered(err) || errors.Is(err, errLinkClosed) {
			return err
		}
		failed(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// patient asks systemd until it answers.
type patient struct {
	link *Link
	log  *slog.Logger
}

// persist repeats a question until systemd has answered it, whatever it answers, or ctx ends.
func (p patient) persist(ctx context.Context, doing string, ask func(context.Context, *Bus) error) error {
	var told bool
	return p.link.Persist(ctx, ask, func(err error) {
		if !told && ctx.Err() == nil {
			told = true
			p.log.Warn("systemd does not answer, trying again", "doing", doing, "error", err)
		}
	})
}

func (l *Link) ask(ctx context.Context, question func(context.Context, *Bus) error) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	bus, err := l.Bus(ctx)
	if err != nil {
		return err
	}
	return question(ctx, bus)
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

// final is an error that needs no other try.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// Final marks an error as one that the same question would meet again.
func Final(err error) error { return final{err} }

// Answered reports whether an error is systemd's own word or Final, so that the same question would get the same
// answer.
func Answered(err error) bool {
	if errors.As(err, new(final)) || errors.Is(err, ErrMasked) {
		return true
	}
	var e dbus.Error
	return errors.As(err, &e) && e.Name != "org.freedesktop.DBus.Error.NoReply" && e.Name != "org.freedesktop.DBus.Error.Disconnected"
}
