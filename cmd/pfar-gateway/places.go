package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units"
)

// maxConnections is the most that one of the clients' listeners may have at once.
const maxConnections = 4096

// connections returns how many each of the clients' two listeners may have at once: a quarter of the descriptors that
// this process may open. What servers, the operator, the state and the audit need is left, whatever clients do.
func connections() (int, error) {
	var limit unix.Rlimit // Go has raised the soft one to the hard one
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading how many descriptors may be open: %w", err)
	}
	return int(min(limit.Cur/4, maxConnections)), nil
}

// limited is a listener with a place for each connection. Who finds none waits in the kernel's queue, and costs
// nothing.
type limited struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
	full   rate.Sometimes // of the warning
	log    *slog.Logger
}

func limit(l net.Listener, most int, log *slog.Logger) *limited {
	return &limited{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{}),
		full: rate.Sometimes{Interval: time.Minute}, log: log}
}

// Accept returns the next connection, once there is a place for it.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	default:
		l.full.Do(func() {
			l.log.Warn("as many connections are open as may be, so others wait", "listener", l.Addr().String(), "open", cap(l.places))
		})
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := units.Accept(context.Background(), l.Listener.Accept, func(err error) {
		l.log.Warn("accepting clients, trying again", "listener", l.Addr().String(), "error", err.Error())
	})
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close closes the listener; connections go on.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

// NetConn returns the connection itself, of which the kernel knows who is at the other end.
func (p *placed) NetConn() net.Conn { return p.Conn }

// Close closes the connection and gives its place back.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
