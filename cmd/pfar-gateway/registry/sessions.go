package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
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

// sessions are the processes that serve one client session each.
type sessions struct {
	log    *slog.Logger
	limits *Limits
	stored *stored
	opener Opener               // of processes; nil: there are none
	freed  func(main *Upstream) // is called when a process has ended; must not block
	unmade rate.Sometimes       // of the log's entries about processes that are not started

	mu      sync.Mutex           // may be taken with the registry's lock held, but not the other way round
	owned   map[string]*owned    // by handle
	orphans map[string]orphan    // by handle
	later   map[string]time.Time // when the service of a server wants to be asked again, by server
	closed  bool
}

// Opens sets who starts processes for single sessions, before any is asked for.
func (s *sessions) Opens(o Opener) { s.opener = o }

// SessionClient is the one client of a process of its own. Its functions must not block.
type SessionClient struct {
	protocol.Client
	Ask   func(*protocol.Ask) bool           // takes what the process asks outside of calls
	Note  func(method string, params []byte) // takes its notifications
	Keeps func() bool                        // reports whether something other than a request needs it; nil: nothing does
	Level string                             // of the log messages that the client wants, "" for none
}

// ClientOf returns who is to have a process that another gateway has started.
type ClientOf func(handover.Server) (SessionClient, error)

// Own is a process of a server's that serves one client session alone.
type Own struct{ o *owned }

// Handle is the process's name among those of its server.
func (o Own) Handle() string { return o.o.handle }

// owned is one of sessions.
type owned struct {
	server, handle string
	main           *Upstream
	client         SessionClient
	ready          chan struct{} // closed when up or err is set
	launched       *Upstream     // locked
	up             *Upstream
	err            error
	end            sync.Once
}

// Start has a process started for a session, of the server that main is the shared process of, and returns it when it
// can be called. It ends by End, when it has had no call for the time that the declaration gives, and with the server.
func (s *sessions) Start(ctx context.Context, main *Upstream, client SessionClient) (Own, *Upstream, error) {
	o := &owned{
		server: main.Server().Name, handle: units.NewSession(), main: main, client: client, ready: make(chan struct{}),
	}
	if err := s.own(o); err != nil {
		return Own{}, nil, err
	}
	err := s.await(ctx, o)
	code := protocol.CodeUnavailable
	if _, full := errors.AsType[*Full](err); full {
		code = protocol.CodeBusy
	}
	switch {
	case err == nil:
		return Own{o}, o.up, nil
	case ctx.Err() != nil: // the client's doing
		err = protocol.Interrupted(ctx)
	case failure.Of(err).Class == failure.Unauthorized:
	default:
		f := failure.Of(err)
		err = jsonrpc.Errorf(code, "starting a process of %q for this session: %v", o.server, err)
		if f.Class != "" {
			e := failure.As(f.Class, o.server, err)
			e.After, err = f.After, e
		}
	}
	s.release(o)
	return Own{}, nil, err
}

// await has the process started and waits until it can be called.
func (s *sessions) await(ctx context.Context, o *owned) error {
	late := notReady(s.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Handshake, late)
	defer cancel()
	if err := s.opener.Open(ctx, o.server, o.handle); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, full := errors.AsType[*Full](err)
		login := unsigned(o.main.Server(), err)
		switch {
		case login != nil:
			return login
		case full:
			return err
		}
		s.unmade.Do(func() {
			s.log.Warn("a session's process is not started", "server", o.server, "error", err.Error())
		})
		return refused(err)
	}
	select {
	case <-o.ready:
		if o.err == nil {
			return nil
		}
		if login := unsigned(o.main.Server(), o.err); login != nil {
			return login
		}
		return classed(o.server, o.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// classed returns the error of an ended conversation in words for clients, with its class and when to try again.
func classed(server string, why error) error {
	f := failure.Of(why)
	if f.Class == "" {
		return fact(why)
	}
	e := failure.As(f.Class, server, fact(why))
	e.After = shown(why).After
	return e
}

// longestPause limits the pause that a service can ask for before the next start.
const longestPause = time.Hour

// paused returns the error of a start that comes before a service wants to be asked again. s.mu is held.
func (s *sessions) paused(server string) error {
	wait := time.Until(s.later[server])
	if wait <= 0 {
		delete(s.later, server)
		return nil
	}
	e := failure.As(failure.RateLimited, server, jsonrpc.Errorf(protocol.CodeUnavailable,
		"starting a process of %q for this session: the service wants to be asked later", server))
	e.After = int64(math.Ceil(wait.Seconds()))
	return e
}

// End ends a session's process.
func (s *sessions) End(own Own) { s.release(own.o) }

// own enters a process in the books, if there is room for it.
func (s *sessions) own(o *owned) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opener == nil || s.closed {
		return jsonrpc.Errorf(protocol.CodeUnavailable, "server %q: no processes are started for single sessions here",
			o.server)
	}
	if err := s.paused(o.server); err != nil {
		return err
	}
	n := 0
	for _, other := range s.owned {
		if other.server == o.server && (other.launched == nil || other.launched.Alive()) { // pfard counts what is about to end
			n++
		}
	}
	if most := o.main.Server().Sessions.Max; n >= most {
		return jsonrpc.Errorf(protocol.CodeBusy, "server %q has %d processes of single sessions already, and its declaration "+
			"allows no more: end another session, or raise sessions_max", o.server, n)
	}
	s.owned[o.handle] = o
	return nil
}

// release ends a process, in whatever state it is: it is hung up on, and pfard is told, which stops it as it stops any
// server. It stays in the books until its launcher has left.
func (s *sessions) release(o *owned) {
	o.end.Do(func() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.limits.Handshake)
			defer cancel()
			if err := s.opener.Close(ctx, o.server, o.handle); err != nil {
				s.log.Warn("ending a session's process, ignoring", "server", o.server, "error", err.Error())
			}
			s.mu.Lock()
			up := o.launched
			if up == nil {
				delete(s.owned, o.handle)
			}
			s.mu.Unlock()
			if up != nil {
				up.end(errSessionOver)
			}
		}()
	})
}

// admit refuses a session's own process if its program differs from the server's, and tells the session.
func (s *sessions) admit(server handover.Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[server.Session]
	if o == nil || o.server != server.Name || o.launched != nil || bytes.Equal(server.Files, o.main.Server().Files) {
		return nil // or launch says why not
	}
	delete(s.owned, o.handle) // another launcher would be unasked for
	o.err = errOtherProgram
	close(o.ready)
	return fmt.Errorf("a process of %q for one session: %w", server.Name, errOtherProgram)
}

// launch makes u the process that a session waits for, under the server's declaration as of now, nil for that of its
// main process: its launcher may have been told before an edit.
func (s *sessions) launch(u *Upstream, now *handover.Server) (*owned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[u.Server().Session]
	switch {
	case s.closed:
		return nil, errShutdown
	case o == nil || o.server != u.Server().Name || o.launched != nil:
		return nil, errUnasked
	}
	o.launched, o.up = u, u
	if now == nil {
		now = new(o.main.Server())
	}
	u.amend(*now)
	u.assign(o.client)
	return o, nil
}

// assign makes u the process of one session.
func (u *Upstream) assign(client SessionClient) {
	u.ServeOne(client.Ask)
	u.note = func(_, method string, params []byte) { client.Note(method, params) }
}

// converse is the whole life of a session's process, from begin on.
func (s *sessions) converse(ctx context.Context, c *handover.Conn, u *Upstream, o *owned, begin func(context.Context) error) {
	left := listen(c, u, func() {
		u.Stop()
		s.stored.giveUp(u) // or its stdin stays open
	})
	go u.Run()
	if o.err = begin(ctx); o.err != nil {
		s.postpone(o.server, time.Duration(shown(o.err).After)*time.Second)
		if ctx.Err() == nil { // its launcher ends by itself, and pfard hears from it why
			o.end.Do(func() {})
		}
		u.end(o.err)
	} else {
		u.remember(new(Listing))
		if !s.stored.has(u) {
			s.stored.store(c, u)
		}
	}
	close(o.ready)
	if o.err == nil {
		_ = c.Send(ready(u, new(Listing), reviewed{}))
		s.idle(o)
		<-u.Done()
	}
	if errors.Is(u.Why(), errShutdown) {
		return
	}
	s.stored.drop(u)
	u.log.Info("session's process gone", "reason", u.Why().Error())
	s.release(o)
	if !u.Stopping() {
		_ = c.Send(handover.Message{Failed: u.Why().Error(), Shown: shown(u.Why())}) // it may have left
	}
	select {
	case <-left:
	case <-time.After(exitGrace): // its launcher hears that we have hung up
	}
	s.mu.Lock()
	delete(s.owned, o.handle)
	s.mu.Unlock()
	o.main.Idle().Touch()
	s.freed(o.main)
}

// postpone keeps a server's processes from starting for a while.
func (s *sessions) postpone(server string, pause time.Duration) {
	if pause <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if until := time.Now().Add(min(pause, longestPause)); until.After(s.later[server]) {
		s.later[server] = until
	}
}

// anew ends the pause of a server that has been started anew, perhaps with another token.
func (s *sessions) anew(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.later, server)
}

// greet is the handshake of a session's process, in the generation of its client where the server knows that: its
// clients are of those that have sessions.
func (s *sessions) greet(ctx context.Context, u *Upstream, o *owned) error {
	late := notReady(s.limits.Handshake)
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits.Handshake, late)
	defer cancel()
	a, err := u.Handshake(ctx, o.client.Client, o.main.Agreed().Legacy())
	if err := u.settle(a, err, o.client.Client); err != nil {
		return err
	}
	if o.client.Level == "" || a.Modern() || !a.Has("logging") {
		return nil
	}
	params := fmt.Appendf(nil, `{"level":%q}`, o.client.Level)
	if _, err = u.Call(ctx, protocol.Call{Method: string(mcp.MethodSetLogLevel), Params: params}); err != nil {
		u.log.Warn("setting the log level, ignoring", "error", err.Error())
	}
	return nil
}

// idle ends a process that has had no call for long enough.
func (s *sessions) idle(o *owned) {
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
			s.release(o)
		default:
			time.AfterFunc(rest, check)
		}
	}
	time.AfterFunc(limit, check)
}

// orphan is a process of one session whose session has not been found yet.
type orphan struct {
	u *Upstream
	c *handover.Conn
}

// claim gives a session the process back that it had with another gateway, false if that is not there.
func (s *sessions) claim(ctx context.Context, main *Upstream, handle string, clientOf ClientOf) (Own, *Upstream, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server, found := main.Server(), s.orphans[handle]
	if found.u == nil || found.u.Server().Name != server.Name {
		return Own{}, nil, false
	}
	client, err := clientOf(found.u.Server())
	if err != nil {
		return Own{}, nil, false
	}
	delete(s.orphans, handle)
	u := found.u
	o := &owned{
		server: server.Name, handle: handle, main: main, client: client, ready: make(chan struct{}), launched: u, up: u,
	}
	s.owned[handle] = o
	u.Agree(u.Agreed(), client.Client)
	u.Inherit()
	u.amend(server)
	u.assign(client)
	begin := func(context.Context) error {
		u.Resume()
		go u.prove()
		return nil
	}
	go during(ctx, found.c, func(ctx context.Context) { s.converse(ctx, found.c, u, o, begin) })
	return Own{o}, u, true
}

// Abandon ends the processes that no session has claimed.
func (s *sessions) Abandon() {
	s.mu.Lock()
	orphans := s.orphans
	s.orphans = make(map[string]orphan)
	s.mu.Unlock()
	for handle, o := range orphans {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), s.limits.Handshake)
			defer cancel()
			if s.opener != nil {
				if err := s.opener.Close(ctx, o.u.Server().Name, handle); err != nil {
					o.u.log.Warn("ending a process whose session is not known, ignoring", "error", err.Error())
				}
			}
			o.u.end(errSessionOver)
			s.stored.drop(o.u)
			o.c.Close()
		}()
	}
}

// orphan keeps a process until its session is found.
func (s *sessions) orphan(u *Upstream, c *handover.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orphans[u.Server().Session] = orphan{u, c}
}

// of returns the processes of a server.
func (s *sessions) of(server string) (list []*Upstream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owned {
		if o.server == server && o.launched != nil {
			list = append(list, o.launched)
		}
	}
	for _, o := range s.orphans {
		if o.u.Server().Name == server {
			list = append(list, o.u)
		}
	}
	return list
}

// count returns how many sessions have such a process, or wait for one.
func (s *sessions) count(is func(*owned) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.owned {
		if is(o) {
			n++
		}
	}
	return n
}

// close takes no more sessions, and ends every conversation; those that are stored go on with the next gateway.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Values(s.owned))
	s.mu.Unlock()
	for _, o := range all {
		s.mu.Lock()
		u := o.launched
		s.mu.Unlock()
		if u != nil {
			u.end(errShutdown)
		}
		if !s.stored.has(u) {
			s.release(o)
		}
	}
}

var (
	errOtherProgram error = failure.Fact("the server's program has changed since the server was started; " +
		"its owner restarts the server (pfar restart) and accepts the change (pfar pins)")
	errUnasked     error = failure.Fact("nobody asked for a process of this session")
	errSessionOver error = failure.Fact("the session is over")
)
