package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
)

// exitGrace is how long a launcher may take to notice that its server ended, before it is told that stdout closed.
const exitGrace = 2 * time.Second

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
		r.change(c, *m.Change, m.At)
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
	u.hangUp = func() { c.Close() }
	if u.Server().Session != "" {
		r.launchSession(ctx, c, u)
		return
	}
	u.note = r.noteOf(u)
	if !r.adopt(u) {
		u.end(errShutdown)
		r.stored.drop(u)
		return
	}
	r.converse(ctx, c, u, func(ctx context.Context) (*Listing, error) {
		begun := time.Now()
		l, err := r.start(ctx, u)
		if err != nil {
			return nil, err
		}
		u.remember(l)
		r.stored.store(c, u)
		r.announce(c, u, l, begun)
		return l, nil
	})
}

// noteOf passes notifications on to the clients that share a process.
func (r *Registry) noteOf(u *Upstream) func(to, method string, params []byte) {
	return func(to, method string, params []byte) {
		r.event(Event{Server: u.Server().Name, Declared: u.Server().Declared, Method: method, Params: params, To: to, Shared: u.Server().Sessions.Own})
	}
}

// during calls f, and closes a launcher's connection after that, or when ctx ends.
func during(ctx context.Context, c *handover.Conn, f func(context.Context)) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f(ctx)
}

// converse is a server's whole life, from begin on, which returns what has been discovered.
func (r *Registry) converse(ctx context.Context, c *handover.Conn, u *Upstream, begin func(context.Context) (*Listing, error)) {
	left := listen(c, u, func() {
		ended := u.Why() != nil
		u.Stop()
		r.stored.giveUp(u) // or its stdin stays open
		if !ended {        // else it is stopped because of that, which is the reason
			r.down(u, "it is being stopped")
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
	r.down(u, err.Error())
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
	_ = c.Send(handover.Message{Failed: err.Error()}) // it may have left
	<-left
}

// first receives what somebody has connected for, who may hand a server over, or say more of it: root or our own user.
func first(c *handover.Conn) (handover.Message, error) {
	peer, err := c.Peer()
	if err != nil {
		return handover.Message{}, err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return handover.Message{}, fmt.Errorf("its uid is %d, not 0 or %d", peer.Uid, os.Geteuid())
	}
	m, files, err := c.Receive()
	packet.CloseAll(files)
	if err != nil {
		return m, fmt.Errorf("receiving the name of the server to hand over: %w", err)
	}
	about := m.Expect
	if about == nil {
		about = m.Change
	}
	switch {
	case about == nil:
		return m, errors.New("its first message does not say what it is to hand over")
	case !units.IsServer(about.Name), about.Session != "" && !units.IsSession(about.Session):
		return m, fmt.Errorf("it is to hand over %s with the session %s", protocol.Quote(about.Name), protocol.Quote(about.Session))
	}
	return m, nil
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
	return u, nil
}

// checkHello wants the descriptors of the server that is expected.
func checkHello(hello *handover.Hello, files int, server handover.Server) error {
	switch {
	case hello == nil:
		return fmt.Errorf("the first message of the launcher of %q is not a hello", server.Name)
	case hello.Name != server.Name, hello.Session != server.Session:
		return fmt.Errorf("the launcher of %q hands over %s with the session %s", server.Name, protocol.Quote(hello.Name), protocol.Quote(hello.Session))
	case files != 2:
		return fmt.Errorf("the hello of %q has %d descriptors", server.Name, files)
	}
	return nil
}

// listen follows what the launcher says until it leaves, which closes left. stopping is called when it says that it
// stops the server.
func listen(c *handover.Conn, u *Upstream, stopping func()) (left <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, files, err := c.Receive()
			if err != nil {
				u.end(errLauncher)
				return
			}
			packet.CloseAll(files)
			if m.Stopping {
				stopping()
			}
		}
	}()
	return done
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
		case <-u.Done():
			return u.Why()
		}
		last := time.Now()
		kinds, said := u.lists.changes()
		if kinds == 0 { // it was seen to already
			continue
		}
		pause := u.limits.Refresh
		if fresh, err := r.refresh(ctx, u, kinds, l); err != nil {
			failed = min(failed+1, 5)
			pause <<= failed
			u.log.Warn("discovering again, keeping what was found before", "again in", pause.String(), "error", err.Error())
			u.lists.again(said, kinds&^said)
		} else {
			failed = 0
			l = fresh
			u.remember(l)
			u.memory.Settled()
			if m, told, ok := r.up(u, l); ok {
				r.retell(u, said&^told)
				_ = c.Send(m)
				r.reviewer.keep(u, l)
			}
		}
		select {
		case <-time.After(pause - time.Since(last)):
		case <-u.Done():
			return u.Why()
		}
	}
}

// start is the handshake and the first discovery, in bounded time.
func (r *Registry) start(ctx context.Context, u *Upstream) (*Listing, error) {
	late := fmt.Errorf("it was not ready within %v", u.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, u.limits.Handshake, late)
	defer cancel()
	a, err := r.older.shake(ctx, u, self(r.version, u.Server().Capabilities))
	if err == nil {
		err = u.otherVersion(a)
	}
	if err != nil {
		return nil, u.because(err)
	}
	u.Agree(a, self(r.version, u.Server().Capabilities))
	if a.Modern() {
		u.Follow()
	}
	u.lists.changes() // what it says before it is asked is no change
	l, err := u.discover(ctx, AllKinds, new(Listing))
	if err != nil {
		return nil, u.because(err)
	}
	return l, nil
}

// self is the gateway as a client. What a server may ask of clients it may ask of those whose calls it passes on.
func self(version string, allowed []string) Client {
	return Client{
		Protocol: mcp.LATEST_LEGACY_PROTOCOL_VERSION, Capabilities: protocol.Every(allowed),
		Info: fmt.Appendf(nil, `{"name":"pfar","version":%s}`, jsonrpc.Quote(version)),
	}
}

func (r *Registry) refresh(ctx context.Context, u *Upstream, kinds Kinds, old *Listing) (*Listing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, u.limits.Handshake, errors.New("it took too long"))
	defer cancel()
	return u.discover(ctx, kinds, old)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
