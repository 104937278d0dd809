package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// Opener has processes of servers started for single client sessions: pfard does it.
type Opener interface {
	Open(ctx context.Context, server, session string) error
	Close(ctx context.Context, server, session string) error
}

// Full is the error of an Opener that has no room for one more process.
type Full struct{ Err error }

func (f *Full) Error() string { return f.Err.Error() }
func (f *Full) Unwrap() error { return f.Err }

// Opens sets who starts processes for single sessions, before any is asked for.
func (r *Registry) Opens(o Opener) { r.opener = o }

// SessionClient is the one client of a process of its own.
type SessionClient struct {
	Client
	Ask   func(*Ask) bool                    // takes what the process asks outside of calls; must not block
	Note  func(method string, params []byte) // takes its notifications; must not block
	Keeps func() bool                        // reports whether something that is no request keeps it from being idle; must not block; nil: nothing does
	Level string                             // of the log messages that the client wants, "" for none
}

// Own is a process of a server's that serves one client session alone.
type Own struct{ o *owned }

// Handle is the process's name among those of its server.
func (o Own) Handle() string { return o.o.handle }

// owned is the registry's side of it.
type owned struct {
	server, handle string
	main           *Upstream
	client         SessionClient
	ready          chan struct{} // closed when up or err is set
	launched       *Upstream     // under the registry's lock
	up             *Upstream
	err            error
	end            sync.Once
}

// Start has a process started for a session, of the server that main is the shared process of, and returns it when it
// can be called. It ends by End, when it has had no call for the time that the declaration gives, and with the server.
func (r *Registry) Start(ctx context.Context, main *Upstream, client SessionClient) (Own, *Upstream, error) {
	o := &owned{server: main.Server().Name, handle: units.NewSession(), main: main, client: client, ready: make(chan struct{})}
	if err := r.own(o); err != nil {
		return Own{}, nil, err
	}
	err := r.await(ctx, o)
	code := CodeUnavailable
	if _, full := errors.AsType[*Full](err); full {
		code = CodeBusy
	}
	switch {
	case err == nil:
		return Own{o}, o.up, nil
	case ctx.Err() != nil: // the client's doing
		err = protocol.Interrupted(ctx)
	default:
		err = jsonrpc.Errorf(code, "starting a process of %q for this session: %v", o.server, err)
	}
	r.release(o)
	return Own{}, nil, err
}

// await has the process started and waits until it can be called.
func (r *Registry) await(ctx context.Context, o *owned) error {
	late := fmt.Errorf("it was not ready within %v", r.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, r.limits.Handshake, late)
	defer cancel()
	if err := r.opener.Open(ctx, o.server, o.handle); err != nil {
		return err
	}
	select {
	case <-o.ready:
		if o.err != nil {
			return errors.New(briefly(o.server, o.err.Error()))
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// End ends a session's process.
func (r *Registry) End(own Own) { r.release(own.o) }

// own enters a process in the books, if there is room for it.
func (r *Registry) own(o *owned) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opener == nil || r.closed {
		return jsonrpc.Errorf(CodeUnavailable, "server %q: no processes are started for single sessions here", o.server)
	}
	n := 0
	for _, other := range r.owned {
		if other.server == o.server && (other.launched == nil || other.launched.Alive()) { // pfard counts what is about to end
			n++
		}
	}
	if most := o.main.Server().Sessions.Max; n >= most {
		return jsonrpc.Errorf(CodeBusy, "server %q has %d processes of single sessions already, and its declaration allows no more: end another session, or raise sessions_max", o.server, n)
	}
	r.owned[o.handle] = o
	return nil
}

// release ends a process, in whatever state it is: it is hung up on, and pfard is told, which stops it as it stops any
// server. It stays in the books until its launcher has left.
func (r *Registry) release(o *owned) {
	o.end.Do(func() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), r.limits.Handshake)
			defer cancel()
			if err := r.opener.Close(ctx, o.server, o.handle); err != nil {
				r.log.Warn("ending a session's process, ignoring", "server", o.server, "error", err.Error())
			}
			r.mu.Lock()
			up := o.launched
			if up == nil {
				delete(r.owned, o.handle)
			}
			r.mu.Unlock()
			if up != nil {
				up.end(errSessionOver)
			}
		}()
	})
}

// ownLauncher serves the connection of a launcher whose server is for one session.
func (r *Registry) ownLauncher(ctx context.Context, c *handover.Conn, u *Upstream) {
	r.mu.Lock()
	o, why := r.owned[u.Server().Session], errUnasked
	if o != nil && (o.server != u.Server().Name || o.launched != nil) {
		o = nil
	}
	if r.closed {
		o, why = nil, errShutdown
	}
	if o != nil {
		o.launched, o.up = u, u
		u.amend(r.declaredNow(o))
	}
	r.mu.Unlock()
	if o == nil {
		u.end(why)
		r.stored.drop(u)
		u.log.Warn("refusing a launcher", "error", why.Error())
		return
	}
	r.assign(u, o)
	r.converseOwn(ctx, c, u, o, func(ctx context.Context) error { return r.greet(ctx, u, o) })
}

// admitOwn refuses a session's own process if its program differs from the server's, and tells the session.
func (r *Registry) admitOwn(s handover.Server) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owned[s.Session]
	if o == nil || o.server != s.Name || o.launched != nil || bytes.Equal(s.Files, o.main.Server().Files) {
		return nil // or ownLauncher says why not
	}
	delete(r.owned, o.handle) // another launcher would be unasked for
	o.err = errOtherProgram
	close(o.ready)
	return fmt.Errorf("a process of %q for one session: %w", s.Name, errOtherProgram)
}

// declaredNow is what its owner says of a session's server: its launcher may have been told before an edit. r.mu is
// held.
func (r *Registry) declaredNow(o *owned) handover.Server {
	if e := r.entries[o.server]; e != nil {
		return e.upstream.Server()
	}
	return o.main.Server()
}

// assign makes u the process of one session.
func (r *Registry) assign(u *Upstream, o *owned) {
	u.ServeOne(o.client.Ask)
	u.note = func(_, method string, params []byte) { o.client.Note(method, params) }
}

// converseOwn is converse for a session's process.
func (r *Registry) converseOwn(ctx context.Context, c *handover.Conn, u *Upstream, o *owned, begin func(context.Context) error) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		r.listen(c, u)
	}()
	go u.Run()
	if o.err = begin(ctx); o.err != nil {
		u.end(o.err)
	} else {
		u.remember(new(Listing))
		if !r.stored.has(u) {
			r.stored.store(c, u)
		}
	}
	close(o.ready)
	if o.err == nil {
		_ = c.Send(ready(u, new(Listing), reviewed{}))
		r.idle(o)
		<-u.Done()
	}
	if errors.Is(u.Why(), errShutdown) {
		return
	}
	r.stored.drop(u)
	u.log.Info("session's process gone", "reason", u.Why().Error())
	r.release(o)
	if !u.Stopping() {
		_ = c.Send(handover.Message{Failed: u.Why().Error()}) // it may have left
	}
	select {
	case <-left:
	case <-time.After(exitGrace): // its launcher hears that we have hung up
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owned, o.handle)
	o.main.Idle().Touch()
	go r.renew(o.main)
}

// greet is the handshake of a session's process, in the generation of its client where the server knows that: its
// clients are of those that have sessions.
func (r *Registry) greet(ctx context.Context, u *Upstream, o *owned) error {
	late := fmt.Errorf("it was not ready within %v", r.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, r.limits.Handshake, late)
	defer cancel()
	a, err := u.Handshake(ctx, o.client.Client, o.main.Agreed().Legacy())
	if err == nil {
		err = u.otherVersion(a)
	}
	if err != nil {
		return u.because(err)
	}
	u.Agree(a, o.client.Client)
	if a.Modern() {
		u.Follow()
	}
	if o.client.Level == "" || a.Modern() || !a.Has("logging") {
		return nil
	}
	_, err = u.Call(ctx, Call{Method: string(mcp.MethodSetLogLevel), Params: fmt.Appendf(nil, `{"level":%q}`, o.client.Level)})
	if err != nil {
		u.log.Warn("setting the log level, ignoring", "error", err.Error())
	}
	return nil
}

// idle ends a process that has had no call for long enough.
func (r *Registry) idle(o *owned) {
	limit := o.main.Server().Sessions.Idle
	if limit <= 0 {
		return
	}
	var check func()
	check = func() {
		rest := o.up.Idle().Retire(limit, o.client.Keeps != nil && o.client.Keeps())
		switch {
		case o.up.Why() != nil:
		case rest <= 0:
			o.up.log.Info("ending a session's process", "reason", "it had no call for "+limit.String())
			r.release(o)
		default:
			time.AfterFunc(rest, check)
		}
	}
	time.AfterFunc(limit, check)
}

var (
	errOtherProgram = errors.New("its program has changed since the server was started; its owner restarts the server (pfar restart) and accepts the change (pfar pins)")
	errUnasked      = errors.New("nobody asked for a process of this session")
	errSessionOver  = errors.New("its session is over")
)
