// Package serve is the MCP endpoint: clients' HTTP requests in, calls to the registry's servers out, answers and
// notifications back.
package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/connect"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/method"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/seal"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/stream"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// Limits bound what clients may cost.
type Limits struct {
	stream.Limits
	Body     int           // bytes of one request
	Read     time.Duration // for the body to arrive
	Write    time.Duration // for a client to take an event of a stream
	Sessions int
	Idle     time.Duration // until a session that nobody uses ends
	Streams  int           // open at once in one session
	Listens  int           // streams without a session (2026-07-28)
	Queue    int           // notifications that wait for one client
	Watched  int           // resources that one client subscribes to
	Batch    int           // messages of a batch (2025-03-26)
	Parked   int           // calls that wait for their clients to come back with input
	Human    time.Duration // for a client to answer what it is asked
	Alive    time.Duration // between signs of life on a stream
	Last     time.Duration // for clients to take their answers when the server stops
}

// DefaultLimits are generous to honest clients of one machine.
func DefaultLimits() Limits {
	return Limits{
		Body: 16 << 20, Read: 30 * time.Second, Write: 30 * time.Second,
		Sessions: 1024, Idle: time.Hour, Streams: 4, Listens: 1024, Queue: 64, Watched: 256, Batch: 32, Parked: 256,
		Human: 10 * time.Minute, Alive: 25 * time.Second,
		Limits: stream.Limits{Replay: 4 << 20, Replays: 64 << 20, Resume: 30 * time.Second}, Last: time.Second,
	}
}

// Server is the endpoint.
type Server struct {
	*clients.Clients
	log      *slog.Logger
	limits   Limits
	calls    *call.Calls
	methods  method.Methods
	sessions *session.Table
	requests session.Requests
	replays  *stream.Replays
	hub      *hub.Hub
	unbidden quota.Quota // of questions that servers put outside of any call, by server
	kept     kept
	flows    Flows // nil: there are none

	giveUp   context.CancelCauseFunc // ends calls in flight
	draining chan struct{}           // closed when streams are to end
	once     sync.Once
}

// Flows takes the orders about flows (flowdesk.Desk).
type Flows interface {
	Serve(w http.ResponseWriter, r *http.Request, visitor clients.Visitor)
	Settle(t *clients.Table) // ends the runs of clients that are not let in any more
}

// Flow has the endpoint serve flows, from before the first client is let in. open makes what serves them of the calls
// that the endpoint makes for clients.
func (s *Server) Flow(open func(*call.Calls) (Flows, error)) (err error) {
	s.flows, err = open(s.calls)
	return err
}

// How often there is a record of requests and questions that lead to nothing.
const (
	unbiddenEvery = 5 * time.Second // questions of one server that no call is about, of two records each
	missedEvery   = time.Second     // requests of one client for what there is not
)

// Parts are those of an endpoint.
type Parts struct {
	Log       *slog.Logger
	Version   string // of pfar
	Registry  *registry.Registry
	Gate      *enforce.Point       // that every request to a server passes; nil: none does
	Telemetry *telemetry.Telemetry // nil: nothing is counted or traced
	Refusals  call.Refusals        // nil: none are known
	Wishes    *connect.Wishes      // of models for services; nil: they may wish for none
	Clock     call.Clock           // by which calls that failed are made again; nil: the machine's
	Await     bool                 // requests wait until Learn says who is declared
	Limits    Limits
}

// New returns the endpoint of a registry's servers, which it watches by Event.
func New(p Parts) *Server {
	s := &Server{log: p.Log, limits: p.Limits, hub: hub.New(), draining: make(chan struct{}), unbidden: quota.Quota{Every: unbiddenEvery}}
	s.sessions = session.NewTable(p.Limits.Sessions, p.Limits.Idle, s.closed)
	s.replays = stream.NewReplays(p.Limits.Limits)
	s.calls = &call.Calls{
		Registry: p.Registry, Gate: p.Gate, Refusals: p.Refusals, Misses: quota.Quota{Every: missedEvery},
		Log:     call.NewLog(p.Log, p.Telemetry),
		Starter: &session.Starter{Registry: p.Registry, Log: p.Log, Noted: s.noted, Client: s.clientOf},
		Parking: call.NewParking(p.Limits.Parked, p.Limits.Human), Sealer: seal.New(), Human: p.Limits.Human,
		Clock: p.Clock,
	}
	if s.calls.Clock == nil {
		s.calls.Clock = call.Machine()
	}
	s.calls.Life, s.giveUp = context.WithCancelCause(context.Background())
	context.AfterFunc(s.calls.Life, func() { s.replays.GiveUp(session.ErrStopping) })
	watches := &method.Watches{
		Calls: s.calls, Hub: s.hub, Signals: &method.Signals{Calls: s.calls, Quota: quota.Quota{Every: missedEvery}},
		Limit: p.Limits.Watched, Noted: s.noted,
	}
	s.methods = method.Methods{
		Calls: s.calls, Watches: watches, About: method.About{Calls: s.calls, Version: p.Version},
		Sessions: method.Sessions{Calls: s.calls, Table: s.sessions, Hub: s.hub, Queue: p.Limits.Queue, Noted: s.noted},
		Connect:  method.Connecting{Calls: s.calls, Wishes: p.Wishes, Lost: rate.Sometimes{Interval: time.Minute}},
		Levels:   method.Levels{Calls: s.calls, Hub: s.hub, Noted: s.noted},
		Listens: method.Listens{
			Watches: watches, Limit: p.Limits.Listens, Queue: p.Limits.Queue, Alive: p.Limits.Alive, Draining: s.draining, Left: s.left,
		},
	}
	p.Registry.Keeps(s.hub.WatchesAny)
	if p.Gate == nil {
		s.Clients = clients.New(nil, p.Await, s.settle)
	} else {
		s.Clients = clients.New(p.Gate.Sessions, p.Await, s.settle)
		s.guard(p.Gate)
	}
	s.calls.Clients = s.Clients
	return s
}

// guard has the gate know the clients, and say what they are offered.
func (s *Server) guard(p *enforce.Point) {
	p.Now = s.Now
	s.BeginBy(&label.Tasks{Sessions: p.Sessions, Record: func(client, handle string) error {
		return p.Trail.Append(&audit.Record{
			Kind: audit.Session, ID: audit.NewID(), Client: client, Session: handle, Method: "begin-session",
		})
	}})
	s.unbidden.Record, s.calls.Misses.Record, s.methods.Watches.Signals.Quota.Record = p.Unheard, p.MissedMore, p.SignalledMore
	s.calls.Registry.Offer(func(profile string, rights *access.Rights, up *registry.Upstream, tool registry.Item) bool {
		return p.Offers(enforce.Identity{Profile: profile, Rights: rights}, toolOf(registry.Route{Upstream: up, Name: tool.Name, Item: tool}))
	})
}

// toolOf is a tool as the gate judges it.
func toolOf(r registry.Route) enforce.Item { return call.Target{Route: r, Kind: gate.Tool}.Judged() }

// Facts are the gate's facts about each tool that is served, before a client's declaration makes them stricter.
func (s *Server) Facts() []operator.ToolFacts {
	list := []operator.ToolFacts{}
	if s.calls.Gate == nil {
		return list
	}
	for route := range s.calls.Registry.Catalogue().Tools() {
		server := route.Upstream.Server()
		list = append(list, operator.ToolFacts{
			Server: server.Name, Tool: route.Name, Facts: s.calls.Gate.Facts(toolOf(route)),
			Pin: route.Item.Standing(), Described: server.Tools[route.Name].Description != "",
			Scopes: route.Upstream.Scopes(route.Name),
		})
	}
	return list
}

// Event passes on what happens in the registry. It does not block.
func (s *Server) Event(e registry.Event) {
	s.hub.Event(e)
	if e.Redeclared != nil {
		s.hub.Renewed(e.Server, e.Redeclared.Server().Declared)
	}
	if e.Up != nil {
		s.hub.Renewed(e.Server, e.Up.Server().Declared)
		go s.restore(e.Up)
	}
}

// restore tells a server's new process what its clients want to hear.
func (s *Server) restore(up *registry.Upstream) {
	s.methods.Watches.Restore(up)
	s.methods.Levels.Restore(up)
}

// HTTP returns an http.Server for a listener whose connections h is guarded for.
func (s *Server) HTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:        chunksClose(h),
		ReadTimeout:    s.limits.Read, // of head and body; the time for a call is not in it (exchange.body)
		IdleTimeout:    5 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // mostly scanners' noise
		BaseContext:    func(net.Listener) context.Context { return s.calls.Life },
		ConnContext:    clients.WithPeer,
		// OPTIONS * is answered like any other request that is not MCP.
		DisableGeneralOptionsHandler: true,
	}
}

// chunksClose closes a connection after a request whose body came in chunks. net/http drops a Content-Length beside
// Transfer-Encoding before anybody sees it; such a request may hide another one, so RFC 9112 section 6.1 wants it to be
// the last.
func chunksClose(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// Drain ends the streams at once; the calls in flight have until ctx ends, then they are answered with an error.
func (s *Server) Drain(ctx context.Context, servers ...*http.Server) {
	s.once.Do(func() { close(s.draining) })
	var done sync.WaitGroup
	for _, h := range servers {
		done.Go(func() {
			if h.Shutdown(ctx) == nil {
				return
			}
			s.giveUp(session.ErrStopping)
			last, cancel := context.WithTimeout(context.Background(), s.limits.Last)
			defer cancel()
			if h.Shutdown(last) != nil {
				h.Close()
			}
		})
	}
	done.Wait()
	s.giveUp(session.ErrStopping)
	s.calls.Parking.Abandon(session.ErrStopping)
	for _, q := range []*quota.Quota{&s.unbidden, &s.calls.Misses, &s.methods.Watches.Signals.Quota, s.calls.Log.Entries} {
		q.Flush()
	}
	s.sessions.Close()
	s.write(true)
}
