package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Process is a server's process that serves one session alone. It is started by the session's first call, and by the
// next one after its end.
type Process struct {
	Own registry.Own
	Up  *registry.Upstream
}

// Processes are those of one session, by server.
type Processes struct {
	mu       sync.Mutex
	byServer map[string]*process
}

type process struct {
	turn chan struct{} // held while it is started
	Process
}

// turn returns the entry of a server, which is the caller's until it gives the turn back.
func (p *Processes) turn(ctx context.Context, server string) (*process, error) {
	p.mu.Lock()
	one := p.byServer[server]
	if one == nil {
		one = &process{turn: make(chan struct{}, 1)}
		p.byServer[server] = one
	}
	p.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
		return one, nil
	case <-ctx.Done():
		return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", context.Cause(ctx))
	}
}

// set enters a process that runs.
func (p *Processes) set(server string, is Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byServer[server] == nil {
		p.byServer[server] = &process{turn: make(chan struct{}, 1)}
	}
	p.byServer[server].Process = is
}

// Running returns those that run, by server.
func (p *Processes) Running() map[string]Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string]Process)
	for server, one := range p.byServer {
		if one.Up != nil && one.Up.Alive() {
			all[server] = one.Process
		}
	}
	return all
}

// Starter starts the processes of sessions.
type Starter struct {
	Registry *registry.Registry
	Log      *slog.Logger
	Noted    func() // is called when what the next gateway has to know has changed

	// Client returns what a process is told of its session's client.
	Client func(*Session, handover.Server) (registry.SessionClient, error)
}

// Owns reports whether a session has processes of the server's to itself. Clients of 2026-07-28 have no session. What
// their requests need is in the requests, and they share the server's one process.
func (s *Session) Owns(main *registry.Upstream) bool { return s != nil && main.Server().Sessions.Own }

// Process returns the process that a call goes to: the one that all share, or the session's own.
func (st *Starter) Process(ctx context.Context, s *Session, main *registry.Upstream) (*registry.Upstream, error) {
	if !s.Owns(main) {
		return main, nil
	}
	p, err := s.Own.turn(ctx, main.Server().Name)
	if err != nil {
		return nil, err
	}
	defer func() { <-p.turn }()
	if p.Up != nil && p.Up.Alive() {
		return p.Up, nil
	}
	return st.start(ctx, s, main)
}

// start starts a session's process and tells it what the client watches. Its turn is held.
func (st *Starter) start(ctx context.Context, s *Session, main *registry.Upstream) (*registry.Upstream, error) {
	client, err := st.Client(s, main.Server())
	if err != nil {
		return nil, err
	}
	own, up, err := st.Registry.Start(ctx, main, client)
	if err != nil {
		return nil, err
	}
	s.Own.set(main.Server().Name, Process{own, up})
	st.Noted()
	select {
	case <-s.ended: // in the meantime
		st.Registry.End(own)
		return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", errEnded)
	default:
	}
	st.watch(ctx, s, up)
	return up, nil
}

// watch tells a session's process what its client watches.
func (st *Starter) watch(ctx context.Context, s *Session, up *registry.Upstream) {
	server := up.Server().Name
	if uris := s.Sub.WatchedOf(server); len(uris) > 0 {
		if err := up.Watch(ctx, uris...); err != nil {
			st.Log.Warn("subscribing again in a process of a session, ignoring", "server", server, "error", err.Error())
		}
	}
}

// Claim takes over the processes that a session had in the gateway before this one, by their handles. They are told
// what the client watches until calls ends.
func (st *Starter) Claim(ctx, calls context.Context, s *Session, handles map[string]string) {
	for server, handle := range handles {
		own, up, ok := st.Registry.Claim(ctx, server, handle, func(h handover.Server) (registry.SessionClient, error) { return st.Client(s, h) })
		if !ok {
			continue // its client's next call starts another
		}
		s.Own.set(server, Process{own, up})
		go st.watch(calls, s, up)
	}
}

// SetLevel tells the session's own processes.
func (s *Session) SetLevel(ctx context.Context, level string) {
	for _, p := range s.Own.Running() {
		if p.Up.Modern() || !p.Up.Agreed().Has("logging") || !p.Up.Louder(hub.Severity(level)) {
			continue
		}
		_, _ = p.Up.Call(ctx, protocol.Call{Method: string(mcp.MethodSetLogLevel), Params: fmt.Appendf(nil, `{"level":%q}`, level)}) // it may be about to end
	}
}
