package serve

import (
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/handover"
)

// settle ends the sessions, streams and requests of clients that a new table does not let in. It tells clients whose
// rights changed.
func (s *Server) settle(t *clients.Table) {
	for _, open := range s.sessions.All() {
		m := s.Admits(t, open.Bound())
		if m == nil || open.Endpoint() != "" && !m.Rights.Server(open.Endpoint()) || s.unlabelled(open) {
			s.sessions.Remove(open)
			continue
		}
		if s.turn(open.Sub, m.Rights) {
			s.release(open, m.Rights)
		}
	}
	for _, sub := range s.hub.Listening() {
		if m := s.Admits(t, sub.Bound); m == nil || sub.Endpoint != "" && !m.Rights.Server(sub.Endpoint) {
			sub.Dismiss()
		} else {
			s.turn(sub, m.Rights)
		}
	}
	s.requests.Dismiss(func(b clients.Binding) bool { return s.Admits(t, b) == nil })
	s.calls.Parking.Dismiss(func(by clients.Binding, server string) bool {
		m := s.Admits(t, by)
		return m == nil || !m.Rights.Server(server)
	})
	if s.calls.Gate != nil {
		s.calls.Gate.Dismiss(s.Gone(t))
	}
	if s.flows != nil {
		s.flows.Settle(t)
	}
	s.calls.Registry.Retain(t.Uses)
}

// unlabelled reports whether a connection has lost its label: the operator has ended it, or the gateway before this one
// had not written it down. Its client has to connect again, for nothing is called without a label.
func (s *Server) unlabelled(t *session.Session) bool {
	return t.Label != "" && (s.calls.Gate == nil || !s.calls.Gate.Sessions.Known(t.Bound().Client, t.Label))
}

// turn has a subscriber see with other rights, and reports whether they are others.
func (s *Server) turn(sub *hub.Subscriber, rights *access.Rights) bool {
	lost, changed := sub.Turn(rights)
	s.methods.Watches.Unwatch(lost, sub.Tag)
	return changed
}

// release ends a session's own processes of servers that are not its client's any more.
func (s *Server) release(open *session.Session, rights *access.Rights) {
	for server, p := range open.Own.Running() {
		if !rights.Server(server) {
			s.calls.Registry.End(p.Own)
		}
	}
	s.noted()
}

// closed tidies up behind a session that is over.
func (s *Server) closed(t *session.Session) {
	for _, p := range t.Own.Running() {
		s.calls.Registry.End(p.Own)
	}
	s.replays.Forget(t.ID)
	s.left(t.Sub, t.Label)
	if t.Label != "" {
		client := t.Bound().Client
		s.calls.Gate.Approvals.Forget(client, t.Label)
		s.calls.Gate.Grants.Forget(client, t.Label)
		if err := s.calls.Gate.Sessions.End(client, t.Label); err != nil {
			s.log.Warn("forgetting what a connection has seen, ignoring", "error", err.Error())
		}
	}
	s.noted()
}

// left tidies up behind a subscriber whose client has gone. label is the handle of a label that the connection alone
// has.
func (s *Server) left(sub *hub.Subscriber, label string) {
	s.hub.Remove(sub)
	who, here := s.IdentityOf(sub.Bound, label)
	s.methods.Watches.Leave(sub, who, here)
}

// clientOf is a session's client as a process of a server's has it that serves it alone.
func (s *Server) clientOf(t *session.Session, server handover.Server) (registry.SessionClient, error) {
	client, err := t.AsClient(server.Capabilities)
	if err != nil {
		return registry.SessionClient{}, err
	}
	return registry.SessionClient{
		Client: client, Level: t.Level(),
		Ask: func(a *protocol.Ask) bool {
			if s.calls.Gate == nil || !s.unbidden.Allow(server.Name) {
				return false
			}
			go func() { // the gate may write to the disk
				who, here := s.IdentityOf(t.Bound(), t.Label)
				s.calls.Put(t, who, here, a)
			}()
			return true
		},
		Keeps: func() bool { return len(t.Sub.WatchedOf(server.Name)) > 0 },
		Note: func(method string, params []byte) {
			e := registry.Event{Server: server.Name, Declared: server.Declared, Method: method, Params: params}
			t.Sub.Event(e, hub.SubjectOf(method, params))
		},
	}, nil
}
