package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
)

const (
	attachWait = time.Minute // for pfard, which may be starting
	// allowFor is how long what a name leads to stays allowed, however often its answers change: what is allowed costs
	// the kernel nothing, to have it allowed costs milliseconds.
	allowFor = 10 * time.Minute
	// allowEnds is how long before its end it is asked for again.
	allowEnds = time.Minute
	maxKnown  = egress.MaxAllowed // destinations that are known to be allowed
)

var (
	errPfardAway = errors.New("pfard, which looks after the firewall, is not there")

	errNotAllowedYet = &refusal{503, "firewall-unavailable", "The firewall of this machine could not be told of the " +
		"connection. It can be tried again."}
	errFirewall = &refusal{403, "firewall-refused", "The firewall of this machine does not allow the connection. " +
		"The owner of this machine finds the reason in the log."}
)

// attachment is the conversation with pfard in a unit, which is taken up again when pfard is started again.
type attachment struct {
	path  string // of pfard's socket
	hello attach.Hello
	log   *slog.Logger
	probe func() error  // an error if the firewall lets through what nobody allowed
	fail  func(error)   // ends the service
	keep  *secrets      // what it hands over
	wait  time.Duration // askWait
	clean *hidden       // what it is told

	mu      sync.Mutex
	conn    *attach.Conn    // nil while there is none
	turn    chan struct{}   // closed when that changes
	refused *egress.Refusal // as last told; nil: nothing
	taken   chan struct{}   // has one when pfard has taken how a refresh went
	last    uint64
	asked   map[uint64]chan error
	allowed map[destination]time.Time // until
}

type destination struct {
	name string
	to   netip.AddrPort
}

// attachTo says to pfard what this process is. When it returns, the firewall holds this process or pfard has said why
// it does not; that it does is tried, for pfard cannot see it. The files are the sockets that pfard has opened for it.
func attachTo(
	ctx context.Context, path, digest string, keep *secrets, clean *hidden, log *slog.Logger, fail func(error),
) (*attachment, []*os.File, error) {
	a := newAttachment(path, digest, log, fail)
	a.keep, a.clean = keep, clean
	files, err := a.begin(ctx)
	return a, files, err
}

func newAttachment(path, digest string, log *slog.Logger, fail func(error)) *attachment {
	return &attachment{
		path: path, hello: attach.Hello{Bridge: true, Digest: digest}, log: log, probe: probeFirewall, fail: fail,
		wait: askWait, turn: make(chan struct{}), clean: new(hidden), taken: make(chan struct{}, 1),
		asked: map[uint64]chan error{}, allowed: map[destination]time.Time{},
	}
}

func (a *attachment) begin(ctx context.Context) ([]*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	c, w, files, err := attach.Connect(ctx, a.path, a.hello)
	if err != nil {
		return nil, err
	}
	if err := a.welcome(w); err != nil {
		attach.CloseAll(files)
		c.Close()
		return nil, err
	}
	if w.Broker {
		last := max(len(files)-1, 0)
		a.keep.handle(c, true, files[last:], a.log)
		files = files[:last]
	}
	if w.Redact {
		if err := a.hide(ctx, c); err != nil {
			attach.CloseAll(files)
			c.Close()
			return nil, err
		}
	}
	a.hello.Again = true
	a.set(c)
	go a.follow(c)
	return files, nil
}

// hide takes the message that is to come after the welcome: what no record may hold.
func (a *attachment) hide(ctx context.Context, c *attach.Conn) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	m, files, err := c.Receive()
	if err == nil && !m.Redact {
		attach.CloseAll(files)
		err = errors.New("another message came")
	}
	if err != nil {
		return fmt.Errorf("learning from pfard what no record may hold: %w", err)
	}
	a.clean.take(files, a.log)
	return nil
}

func (a *attachment) welcome(w attach.Welcome) error {
	if w.Held != "" {
		a.log.Warn("the firewall does not hold this bridge, its own rules do", "why", w.Held)
		return nil
	}
	if err := a.probe(); err != nil {
		return fmt.Errorf("trying whether the firewall holds this bridge: %w", err)
	}
	return nil
}

// probeFirewall sends a datagram to this host, where none may go. It leaves the host in no case.
func probeFirewall() error {
	const discard = 9
	c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: discard})
	if err != nil {
		return err
	}
	defer c.Close()
	switch _, err = c.Write([]byte{0}); {
	case err == nil:
		return errors.New("a datagram to 127.0.0.1 went out that it should have rejected; an older kernel counts control " +
			"groups from another root inside containers")
	case errors.Is(err, unix.EPERM):
		return nil
	}
	return err
}

// set has a connection used from now on, or none.
func (a *attachment) set(c *attach.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conn = c
	close(a.turn)
	a.turn = make(chan struct{})
	if c == nil {
		for id, answer := range a.asked {
			answer <- errPfardAway
			delete(a.asked, id)
		}
	}
}

// follow takes what pfard says, and finds it again when it has gone. What is allowed meanwhile goes on.
func (a *attachment) follow(c *attach.Conn) {
	for {
		m, files, err := c.Receive()
		if err == nil && m.Redact {
			a.clean.take(files, a.log)
			continue
		}
		a.keep.handle(c, err == nil && m.Broker, files, a.log)
		if err == nil {
			a.take(m)
			continue
		}
		c.Close()
		a.set(nil)
		if a.path == "" || a.hello.Login { // whoever asked for a login hears no more of it
			a.fail(errPfardAway)
			return
		}
		var w attach.Welcome
		c, w, files, err = attach.Connect(context.Background(), a.path, a.hello)
		if err != nil {
			a.fail(fmt.Errorf("pfard does not take this bridge up again: %w", err))
			return
		}
		a.keep.handle(c, w.Broker, files, a.log)
		if err := a.welcome(w); err != nil {
			c.Close()
			a.fail(err)
			return
		}
		a.mu.Lock()
		clear(a.allowed) // it may have forgotten
		a.mu.Unlock()
		a.set(c)
		a.mu.Lock()
		refused := a.refused
		a.mu.Unlock()
		if refused != nil {
			_ = c.Send(attach.Message{Refused: refused}) // if it has gone again, the next Receive says so
		}
	}
}

func (a *attachment) take(m attach.Message) {
	if m.Taken {
		select {
		case a.taken <- struct{}{}:
		default:
		}
	}
	if m.Allowed == nil {
		return
	}
	a.mu.Lock()
	answer := a.asked[m.Allowed.ID]
	delete(a.asked, m.Allowed.ID)
	a.mu.Unlock()
	switch {
	case answer == nil: // who asked has given up
	case m.Allowed.Error != "":
		answer <- errors.New(m.Allowed.Error)
	default:
		answer <- nil
	}
}

// allow returns nil once the firewall lets this process connect to where name leads. While pfard is away it waits for
// it, unless all of addrs are allowed already.
func (a *attachment) allow(ctx context.Context, name string, port uint16, addrs []netip.Addr) error {
	now := time.Now()
	if a.known(name, port, addrs, now) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.wait, errPfardAway)
	defer cancel()
	for {
		err := a.ask(ctx, attach.Allow{Name: name, Port: port, Addresses: addrs, For: allowFor})
		if err == nil {
			a.learn(name, port, addrs, now.Add(allowFor-allowEnds))
		}
		if !errors.Is(err, errPfardAway) || ctx.Err() != nil {
			return err
		}
	}
}

func (a *attachment) known(name string, port uint16, addrs []netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		return !a.allowed[destination{name, netip.AddrPortFrom(addr, port)}].After(now)
	})
}

// learn notes what is allowed, and forgets what is not any more: pfard's own list is bounded, so is this one.
func (a *attachment) learn(name string, port uint16, addrs []netip.Addr, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.allowed, func(_ destination, until time.Time) bool { return !until.After(now) })
	if len(a.allowed)+len(addrs) > maxKnown {
		clear(a.allowed)
	}
	for _, addr := range addrs {
		a.allowed[destination{name, netip.AddrPortFrom(addr, port)}] = until
	}
}

// forget has pfard asked again about where a connection failed: it may have allowed so much since that this is out.
func (a *attachment) forget(name string, port uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.allowed, func(d destination, _ time.Time) bool { return d.name == name && d.to.Port() == port })
}

// ask asks once, when there is somebody to ask.
func (a *attachment) ask(ctx context.Context, q attach.Allow) error {
	answer := make(chan error, 1)
	a.mu.Lock()
	c, turn := a.conn, a.turn
	if c != nil {
		a.last++
		q.ID = a.last
		a.asked[q.ID] = answer
	}
	a.mu.Unlock()
	if c == nil {
		select {
		case <-turn:
			return errPfardAway // until it is asked
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() {
		a.mu.Lock()
		delete(a.asked, q.ID)
		a.mu.Unlock()
	}()
	if err := c.Send(attach.Message{Allow: &q}); err != nil {
		select { // follow sees it, too
		case <-turn:
		case <-ctx.Done():
		}
		return errPfardAway
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell passes on what was refused. While pfard is away it is kept for it.
func (a *attachment) tell(r egress.Refusal) {
	a.mu.Lock()
	a.refused = &r
	c := a.conn
	a.mu.Unlock()
	if c != nil {
		_ = c.Send(attach.Message{Refused: &r}) // else follow says it again
	}
}
