package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// attachTime is for pfard to answer the first time: it may be starting.
const attachTime = time.Minute

// presence tells pfard of this process, as long as it runs: pfard then lets it get to its sockets, and shows whether it
// has reached the homeserver. Without a path there is nobody to tell.
type presence struct {
	path string // pfard's socket
	log  *slog.Logger
	fail func(error) // is called with why this process must not go on

	mu    sync.Mutex
	conn  *attach.Conn
	holds bool // it has reached the homeserver
	done  chan struct{}
}

// begin returns when pfard has answered. From then on the process attaches again whenever pfard has hung up, until ctx
// ends.
func (p *presence) begin(ctx context.Context) error {
	if p.path == "" {
		return nil
	}
	first, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	conn, err := p.join(first, false)
	if err != nil {
		return err
	}
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		p.stay(ctx, conn)
	}()
	return nil
}

// end hangs up.
func (p *presence) end() {
	if p.done == nil {
		return
	}
	p.fail(nil)
	<-p.done
}

// join attaches to pfard.
func (p *presence) join(ctx context.Context, again bool) (*attach.Conn, error) {
	conn, _, files, err := attach.Connect(ctx, p.path, attach.Hello{Chat: true, Again: again})
	attach.CloseAll(files)
	if err != nil {
		return nil, fmt.Errorf("attaching to pfard: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = conn
	p.tell()
	return conn, nil
}

// stay attaches again whenever pfard hangs up.
func (p *presence) stay(ctx context.Context, conn *attach.Conn) {
	for {
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		m, files, err := conn.Receive()
		for ; err == nil && m.Error == ""; m, files, err = conn.Receive() {
			attach.CloseAll(files) // pfard has nothing to say
		}
		attach.CloseAll(files)
		stop()
		conn.Close()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			p.log.Warn("pfard hangs up, attaching again", "reason", m.Error)
		}
		if conn, err = p.join(ctx, true); err != nil {
			p.fail(err)
			return
		}
	}
}

// turn tells pfard whether the homeserver has been reached, and the conversation is held.
func (p *presence) turn(holds bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holds != holds {
		p.holds = holds
		p.tell()
	}
}

// tell is called with p.mu held.
func (p *presence) tell() {
	state := units.StateOffline
	if p.holds {
		state = units.StateRunning
	}
	if p.conn != nil { // a pfard that has gone is told again
		_ = p.conn.Send(attach.Message{Notify: map[string]string{units.NotifyState: state}})
	}
}
