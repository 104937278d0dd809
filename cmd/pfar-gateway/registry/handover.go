package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
	"github.com/pfar/pfar/units/packet"
)

// Serve takes servers over from launchers until the listener is closed or ctx ends.
func (r *Registry) Serve(ctx context.Context, l *net.UnixListener) error {
	for {
		c, err := units.Accept(ctx, l.AcceptUnix, func(err error) {
			r.log.Warn("accepting launchers, trying again until there is room", "error", err.Error())
		})
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accepting launchers: %w", err)
		}
		launcher := handover.Accepted(c)
		go during(ctx, launcher, func(ctx context.Context) { r.launcher(ctx, launcher) })
	}
}

// launcher serves one launcher's connection: a server's whole life.
func (r *Registry) launcher(ctx context.Context, c *handover.Conn) {
	m, err := first(c)
	if err == nil && m.Change != nil {
		r.change(c, m)
		return
	}
	var u *Upstream
	if err == nil {
		u, err = r.hello(c, m)
	}
	if errors.Is(err, errUndecided) {
		return // which was said
	}
	if err != nil {
		r.log.Warn("refusing a launcher", "error", err.Error())
		return
	}
	u.launcher = newLine(c, u.Done())
	if u.Server().Session != "" {
		r.launchSession(ctx, c, u)
		return
	}
	u.note = r.noteOf(u)
	if !r.table.adopt(u) {
		u.end(errShutdown)
		r.stored.drop(u)
		return
	}
	r.sessions.anew(u.Server().Name)
	r.converse(ctx, c, u, func(ctx context.Context) (*Listing, error) {
		begun := time.Now()
		l, err := r.start(ctx, u)
		if err != nil {
			return nil, err
		}
		r.verify(ctx, u, l[Tools], false) // before it is stored: a gateway that is killed here has it started again
		u.remember(l)
		r.stored.store(c, u)
		r.announce(c, u, l, begun)
		return l, nil
	})
}

// noteOf passes notifications on to the clients that share a process.
func (r *Registry) noteOf(u *Upstream) func(to, method string, params []byte) {
	return func(to, method string, params []byte) {
		is := u.Server()
		r.table.event(Event{
			Server: is.Name, Declared: is.Declared, Method: method, Params: params, To: to, Shared: is.Sessions.Own,
		})
	}
}

// converse is a server's whole life, from begin on, which returns what has been discovered.
func (r *Registry) converse(ctx context.Context, c *handover.Conn, u *Upstream, begin func(context.Context) (*Listing, error)) {
	left := listen(c, u, func() {
		ended := u.Why() != nil
		u.Stop()
		r.stored.giveUp(u) // or its stdin stays open
		if !ended {        // else it is stopped because of that, which is the reason
			r.demand.down(u, failure.Fact("the server is being stopped"))
		}
	})
	go u.Run()
	err := r.session(ctx, c, u, begin)
	stopped := u.Stopping()
	if stopped {
		err = errStopped
	}
	u.end(err)
	if errors.Is(u.Why(), errShutdown) { // it is left to the next gateway, or its launcher starts it again: it is no fault of its own
		return
	}
	r.stored.drop(u)
	r.demand.down(u, err)
	u.log.Info("server gone", "reason", err.Error())
	if stopped {
		<-left
		return
	}
	if errors.Is(err, transport.ErrClosed) {
		select {
		case <-left:
			return
		case <-time.After(exitGrace):
		}
	}
	_ = c.Send(handover.Message{Failed: err.Error(), Shown: shown(err)}) // it may have left
	<-left
}

// hello receives a server. pfard's first message says which one. The launcher, whose user may be the server's own, adds
// only the descriptors.
func (r *Registry) hello(c *handover.Conn, about handover.Message) (*Upstream, error) {
	server := *about.Expect
	if err := r.sessions.admit(server); err != nil {
		return nil, err
	}
	if err := r.undecided.admit(c, server); err != nil {
		return nil, err
	}
	m, files, err := c.Receive()
	if err != nil {
		return nil, fmt.Errorf("receiving the hello of %q: %w", server.Name, err)
	}
	if err := checkHello(m.Hello, len(files), server); err != nil {
		packet.CloseAll(files)
		return nil, err
	}
	memory, err := r.stored.memory()
	if err != nil {
		packet.CloseAll(files)
		return nil, err
	}
	u := r.upstreams.connect(server, files[0], files[1], memory, about.Secrets)
	u.handed = about.At
	u.trial.has(about.Proof)
	return u, nil
}

// announce serves what was discovered for the first time here, and tells the launcher.
func (r *Registry) announce(c *handover.Conn, u *Upstream, l *Listing, begun time.Time) {
	m, _, ok := r.up(u, l)
	if !ok {
		return
	}
	u.log.Info("server up", "tools", m.Ready.Tools, "prompts", m.Ready.Prompts, "resources", m.Ready.Resources,
		"held", m.Ready.Held, "protocol", u.Agreed().Protocol, "info", u.Agreed().Title(), "kept", u.kept,
		"took", time.Since(begun).Round(time.Millisecond).String())
	r.reviewer.keep(u, l)
	_ = c.Send(m) // that the launcher left is heard elsewhere
}

// session discovers again whenever lists change, after begin. It returns why it ended.
func (r *Registry) session(ctx context.Context, c *handover.Conn, u *Upstream, begin func(context.Context) (*Listing, error)) error {
	l, err := begin(ctx)
	if err != nil {
		return err
	}
	for failed := 0; ; {
		select {
		case <-u.lists.stale:
		case <-u.trial.again:
			if u.trial.taken() {
				r.verify(ctx, u, l[Tools], true)
			}
			r.show(c, u, l, 0)
			continue
		case <-u.Done():
			return u.Why()
		}
		last := time.Now()
		kinds, said := u.lists.changes()
		if kinds == 0 { // it was seen to already
			continue
		}
		pause := u.limits.Refresh
		fresh, err := r.refresh(ctx, u, kinds, l)
		if err != nil {
			failed = min(failed+1, 5)
			pause <<= failed
			u.log.Warn("discovering again, keeping what was found before", "again in", pause.String(), "error", err.Error())
			u.lists.again(said, kinds&^said)
		} else {
			failed = 0
			l = fresh
			r.show(c, u, l, said)
			u.memory.Settled()
		}
		u.lists.finished(err)
		select {
		case <-time.After(pause - time.Since(last)):
		case <-u.Done():
			return u.Why()
		}
	}
}

// show shows clients and the launcher what is known of a server by now. The server has said that some lists changed.
func (r *Registry) show(c *handover.Conn, u *Upstream, l *Listing, said Kinds) {
	u.remember(l)
	if m, told, ok := r.up(u, l); ok {
		r.table.retell(u, said&^told)
		_ = c.Send(m)
		r.reviewer.keep(u, l)
	}
}

// start is the handshake and the first discovery, in bounded time.
func (r *Registry) start(ctx context.Context, u *Upstream) (*Listing, error) {
	late := notReady(u.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, u.limits.Handshake, late)
	defer cancel()
	self := self(r.version, u.Server().Capabilities)
	a, err := r.older.shake(ctx, u, self)
	if err := u.settle(a, err, self); err != nil {
		return nil, err
	}
	u.lists.changes() // what it says before it is asked is no change
	l, err := u.discover(ctx, AllKinds, new(Listing))
	if err != nil {
		return nil, u.because(err)
	}
	return l, nil
}

// self is the gateway as a client. What a server may ask of clients it may ask of those whose calls it passes on.
func self(version string, allowed []string) protocol.Client {
	return protocol.Client{
		Protocol: mcp.LATEST_LEGACY_PROTOCOL_VERSION, Capabilities: handover.Abilities(allowed),
		Info: fmt.Appendf(nil, `{"name":"pfar","version":%s}`, jsonrpc.Quote(version)),
	}
}

func (r *Registry) refresh(ctx context.Context, u *Upstream, kinds Kinds, old *Listing) (*Listing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, u.limits.Handshake, errors.New("the discovery took too long"))
	defer cancel()
	return u.discover(ctx, kinds, old)
}

// up shows what was discovered, as far as it has been accepted. It reports false if u is not the server of its name any
// more.
func (r *Registry) up(u *Upstream, found *Listing) (handover.Message, Kinds, bool) {
	v := r.table.reviewNow(u, func() *Listing { return found })
	defer r.table.mu.Unlock()
	l := v.listing
	e := r.table.entries[u.Server().Name]
	if e == nil || e.upstream != u || !u.Alive() {
		return handover.Message{}, 0, false
	}
	first := e.served == nil || e.served.upstream != u
	changed := r.table.serve(e, u, v)
	event := Event{Server: u.Server().Name, Changed: changed}
	if first {
		e.state = State{Up: true, Since: time.Now()}
		event.Up = u
		r.demand.awake(e, u)
	}
	r.table.publish(changed)
	r.table.tell(event)
	m := ready(u, l, v)
	why := r.table.apart(e)
	m.Ready.Apart, m.Ready.Why = len(why), append(m.Ready.Why, why[:min(len(why), maxTold)]...)
	return m, changed, true
}
