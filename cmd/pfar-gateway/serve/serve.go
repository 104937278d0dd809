// Package serve is the MCP endpoint: clients' HTTP requests in, calls to the registry's servers out, answers and
// notifications back.
package serve

import (
	"context"
	"crypto/cipher"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
)

// Limits bound what clients may cost.
type Limits struct {
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
	Replay   int           // bytes of one call's event stream that are kept
	Replays  int           // bytes of all that are kept, of one client a quarter
	Resume   time.Duration // for a client to come back for one
	Parked   int           // calls that wait for their clients to come back with input
	Human    time.Duration // for a client to answer what it is asked
	Alive    time.Duration // between signs of life on a stream
	Last     time.Duration // for clients to take their answers when the server stops
}

// DefaultLimits are generous to honest clients of one machine.
func DefaultLimits() Limits {
	return Limits{
		Body: 16 << 20, Read: 30 * time.Second, Write: 30 * time.Second,
		Sessions: 1024, Idle: time.Hour, Streams: 4, Listens: 1024, Queue: 64, Watched: 256, Batch: 32, Parked: 256, Human: 10 * time.Minute, Alive: 25 * time.Second,
		Replay: 4 << 20, Replays: 64 << 20, Resume: 30 * time.Second, Last: time.Second,
	}
}

// Server is the endpoint.
type Server struct {
	log       *slog.Logger
	version   string
	registry  *registry.Registry
	limits    Limits
	sessions  *sessions
	replays   *replays
	hub       *hub
	telemetry *telemetry.Telemetry // nil: nothing is counted
	logs      quota                // of entries for calls, by their kind
	clients   clients
	unbidden  quota          // of questions that servers put outside of any call, by server
	misses    quota          // of requests for what there is not, by client
	signals   quota          // of what clients do outside of any request, by client
	gate      *enforce.Point // nil: nothing is called
	refusals  Refusals       // nil: nobody knows of any
	parking   parking
	kept      kept
	room      chan struct{} // for parked calls
	spent     spent
	sealKey   []byte      // nobody else knows it but the next gateway
	sealer    cipher.AEAD // of states that clients come back with

	calls    context.Context // ends when calls in flight are given up
	giveUp   context.CancelCauseFunc
	draining chan struct{} // closed when streams are to end
	once     sync.Once
}

// New returns the endpoint of a registry's servers, which it watches by Event.
func New(log *slog.Logger, version string, reg *registry.Registry, limits Limits) *Server {
	s := &Server{
		log: log, version: version, registry: reg, limits: limits, draining: make(chan struct{}),
		parking: parking{byState: make(map[string]*parked)}, room: make(chan struct{}, limits.Parked), sealKey: newSealKey(), spent: spent{until: make(map[string]time.Time)},
		unbidden: quota{every: unbiddenEvery}, misses: quota{every: missedEvery}, signals: quota{every: missedEvery}, logs: quota{every: logEvery},
	}
	s.logs.record = s.leftOut
	s.sealer = newSealer(s.sealKey)
	s.calls, s.giveUp = context.WithCancelCause(context.Background())
	s.hub = &hub{subscribers: make(map[*subscriber]struct{}), declared: make(map[string][]byte), left: make(map[string]map[string]struct{})}
	reg.Keeps(s.hub.watchesAny)
	s.replays = newReplays(limits)
	context.AfterFunc(s.calls, s.replays.giveUp)
	s.sessions = newSessions(limits.Sessions, limits.Idle, s.closed)
	s.clients.heard = make(chan struct{})
	s.let(nil, nil)
	return s
}

// Event passes on what happens in the registry. It does not block.
func (s *Server) Event(e registry.Event) {
	s.hub.event(e)
	if e.Redeclared != nil {
		s.hub.renewed(e.Server, e.Redeclared.Server().Declared)
	}
	if e.Up != nil {
		s.hub.renewed(e.Server, e.Up.Server().Declared)
		go s.restore(e.Up)
	}
}

// HTTP returns an http.Server for a listener whose connections h is guarded for.
func (s *Server) HTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler:        chunksClose(h),
		ReadTimeout:    s.limits.Read, // of head and body; the time for a call is not in it (exchange.body)
		IdleTimeout:    5 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), // mostly scanners' noise
		BaseContext:    func(net.Listener) context.Context { return s.calls },
		ConnContext:    withPeer,
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
			s.giveUp(errStopping)
			last, cancel := context.WithTimeout(context.Background(), s.limits.Last)
			defer cancel()
			if h.Shutdown(last) != nil {
				h.Close()
			}
		})
	}
	done.Wait()
	s.giveUp(errStopping)
	s.abandon()
	s.unbidden.flush()
	s.misses.flush()
	s.signals.flush()
	s.logs.flush()
	s.sessions.close()
	s.write(true)
}
