// Package registry holds the conversations with the servers that launchers hand over, and the catalogue of what they
// offer.
package registry

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units/handover"
)

// Registry is every server and its state.
type Registry struct {
	log     *slog.Logger
	limits  Limits
	version string
	*views
	*table
	*demand
	*sessions
	*trials

	older     older // servers that are not probed
	stored    *stored
	reviewer  *reviewer
	undecided *undecided
	upstreams *upstreams
}

// New returns an empty registry. The version is what servers are told.
func New(log *slog.Logger, version string, limits Limits) *Registry {
	by, kept := &reviewer{log: log}, &stored{by: make(map[string]*Upstream)}
	r := &Registry{
		log: log, limits: limits, version: version, views: newViews(limits.Page), reviewer: by,
		upstreams: &upstreams{log: log, limits: &limits},
		undecided: &undecided{by: by, log: log, of: make(map[*handover.Conn]handover.Server)},
		stored:    kept,
	}
	r.table = &table{views: r.views, reviewer: by, entries: make(map[string]*entry)}
	r.sessions = &sessions{
		log: log, limits: &r.limits, stored: kept, owned: make(map[string]*owned), orphans: make(map[string]orphan),
		later:  make(map[string]time.Time),
		freed:  func(main *Upstream) { go r.demand.renew(main) },
		unmade: rate.Sometimes{Interval: time.Minute},
	}
	r.demand = &demand{table: r.table, limits: &r.limits, upstreams: r.upstreams, sessions: r.sessions}
	r.trials = &trials{r.views, r.demand, r.upstreams, &r.limits}
	return r
}

// Pin has definitions held back that the owner has not accepted, from before the first server comes up.
func (r *Registry) Pin(s *pins.Store) {
	r.reviewer.pins = s
	s.Watch(func(server string) {
		r.undecided.decide(server)
		r.demand.reviewAgain(server)
	})
}

// Redact sets what lines pass, before the first server comes up.
func (r *Registry) Redact(by *protocol.Redaction) { r.upstreams.redaction = by }

// Close ends every conversation; those that are kept go on with the next gateway.
func (r *Registry) Close() {
	for _, u := range r.table.close() {
		u.end(errShutdown)
	}
	r.sessions.close()
}
