package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/units/handover"
)

// process is a server's process that serves one session alone. It is started by the session's first call, and by the
// next one after its end.
type process struct {
	turn chan struct{} // held while it is started
	own  registry.Own
	up   *registry.Upstream
}

// owns reports whether the session has processes of the server's to itself. Clients of 2026-07-28 have no session; what
// their requests need is in the requests, and they share the server's one process.
func (x *exchange) owns(main *registry.Upstream) bool {
	return x.session != nil && main.Server().Sessions.Own
}

// process returns the process that a call goes to: the one that all share, or the session's own.
func (x *exchange) process(ctx context.Context, main *registry.Upstream) (*registry.Upstream, error) {
	if !x.owns(main) {
		return main, nil
	}
	name := main.Server().Name
	s := x.session
	s.mu.Lock()
	p := s.owns[name]
	if p == nil {
		p = &process{turn: make(chan struct{}, 1)}
		s.owns[name] = p
	}
	s.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", context.Cause(ctx))
	}
	defer func() { <-p.turn }()
	if p.up != nil && p.up.Alive() {
		return p.up, nil
	}
	if err := x.begin(ctx, p, main); err != nil {
		return nil, err
	}
	return p.up, nil
}

// begin starts a session's process and tells it what the client watches. p.turn is held.
func (x *exchange) begin(ctx context.Context, p *process, main *registry.Upstream) error {
	s := x.session
	name := main.Server().Name
	client, err := x.srv.clientOf(s, main.Server())
	if err != nil {
		return err
	}
	own, up, err := x.srv.registry.Start(ctx, main, client)
	if err != nil {
		return err
	}
	s.mu.Lock()
	p.own, p.up = own, up
	s.mu.Unlock()
	x.srv.noted()
	select {
	case <-s.ended: // in the meantime
		x.srv.registry.End(own)
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", errEnded)
	default:
	}
	if uris := s.sub.watchedOf(name); len(uris) > 0 {
		if err := up.Watch(ctx, uris...); err != nil {
			x.srv.log.Warn("subscribing again in a new process, ignoring", "request", x.request, "server", name, "error", err.Error())
		}
	}
	return nil
}

// clientOf is a session's client as a process of a server's has it that serves it alone.
func (s *Server) clientOf(t *session, server handover.Server) (registry.SessionClient, error) {
	client, err := t.asClient(server.Capabilities)
	if err != nil {
		return registry.SessionClient{}, err
	}
	return registry.SessionClient{
		Client: client, Level: t.level(),
		Ask: func(a *registry.Ask) bool {
			if s.gate == nil || !s.unbidden.allow(server.Name) {
				return false
			}
			go s.put(t, a) // the gate may write to the disk
			return true
		},
		Keeps: func() bool { return len(t.sub.watchedOf(server.Name)) > 0 },
		Note: func(method string, params []byte) {
			t.sub.event(registry.Event{Server: server.Name, Declared: server.Declared, Method: method, Params: params}, subjectOf(method, params))
		},
	}, nil
}

// put asks a session's client something that no call of its is about, on the stream that it may have open.
func (s *Server) put(t *session, a *registry.Ask) {
	pass, err := s.unasked(t, a)
	if err != nil {
		a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client may not be asked"))
		return
	}
	if err := pass.End("asked", 0); err != nil {
		a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client may not be asked: there is no record of it"))
		return
	}
	m := t.ask(s.calls, s, a, pass, t.endpoint == "", func(m []byte) { t.sub.push(m) })
	if m == nil {
		return
	}
	if !t.sub.push(m) {
		a.GiveUp(jsonrpc.Errorf(registry.CodeBusy, "too much waits for the client"))
		return
	}
	time.AfterFunc(s.limits.Human, func() { // of an answered one this does nothing
		a.GiveUp(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "%v", errUnanswered))
	})
}

// processes returns the session's own that run.
func (s *session) processes() []*process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(s.owns)), func(p *process) bool { return p.up == nil || !p.up.Alive() })
}

// setLevel tells the session's own processes.
func (s *session) setLevel(ctx context.Context, level string) {
	for _, p := range s.processes() {
		if p.up.Modern() || !p.up.Agreed().Has("logging") || !p.up.Louder(severity(level)) {
			continue
		}
		_, _ = p.up.Call(ctx, registry.Call{Method: string(mcp.MethodSetLogLevel), Params: fmt.Appendf(nil, `{"level":%q}`, level)}) // it may be about to end
	}
}

// rootsChanged passes on that the client's folders are others now, to those who know that there is such a client and
// may hear it.
func (x *exchange) rootsChanged() {
	const method = mcp.MethodNotificationRootsListChanged
	for _, p := range x.session.processes() {
		knows := slices.Contains(p.up.Server().Capabilities, "roots") && !p.up.Modern()
		if knows && x.srv.heard(x.identity(), p.up.Server(), mcp.MCPMethod(method)) {
			p.up.Notify(string(mcp.MethodNotificationRootsListChanged))
		}
	}
}
