// Package registry holds the conversations with the servers that launchers hand over, and the catalogue of what they
// offer.
package registry

import (
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units/handover"
)

// Registry is every server and its state.
type Registry struct {
	log     *slog.Logger
	limits  Limits
	version string
	watch   atomic.Pointer[func(Event)]
	*views

	older  older // servers that are not probed
	waker  Waker // of servers on demand; nil: none ever sleeps
	keeps  func(server string) bool
	stored *stored
	*sessions

	reviewer  *reviewer
	undecided *undecided

	upstreams *upstreams

	mu      sync.Mutex
	entries map[string]*entry
	closed  bool
}

// entry is what is known of a server of one name.
type entry struct {
	upstream *Upstream // the newest, or what stands for a server that sleeps
	served   *served   // nil unless it is up or sleeps
	down     bool      // it was up or starting
	redeclared
	apart int // of its resources and templates, those that the aggregate does not show
	state State
	demand
}

// Event says what happened to a server.
type Event struct {
	Server     string
	Declared   []byte    // what the owner says of it, with Method
	Changed    Kinds     // lists that clients see differently now
	Up         *Upstream // set if a new process has come up
	Redeclared *Upstream // set if its owner says something else of this one
	Method     string    // of a notification to pass on, with Params
	Params     []byte
	To         string // the one caller whom it may be about (Call.Client); "": all are told

	Shared    bool // Method comes from the process that those clients share who have none of their own
	Forgotten bool // there is nothing known of the server any more
}

// New returns an empty registry. The version is what servers are told.
func New(log *slog.Logger, version string, limits Limits) *Registry {
	by, kept := &reviewer{log: log}, &stored{by: make(map[string]*Upstream)}
	r := &Registry{
		log: log, limits: limits, version: version, views: newViews(limits.Page), reviewer: by,
		upstreams: &upstreams{log: log, limits: &limits},
		undecided: &undecided{by: by, log: log, of: make(map[*handover.Conn]handover.Server)},
		stored:    kept, entries: make(map[string]*entry),
	}
	r.sessions = &sessions{
		log: log, limits: &r.limits, stored: kept, owned: make(map[string]*owned), orphans: make(map[string]orphan),
		freed: func(main *Upstream) { go r.renew(main) },
	}
	return r
}

// Watch has every event from now on given to f, after the catalogue shows what it tells. f must not block.
func (r *Registry) Watch(f func(Event)) { r.watch.Store(&f) }

// Pin has definitions held back that the owner has not accepted, from before the first server comes up.
func (r *Registry) Pin(s *pins.Store) {
	r.reviewer.pins = s
	s.Watch(func(server string) {
		r.undecided.decide(server)
		r.mu.Lock()
		e := r.entries[server]
		rests := e != nil && e.rests()
		r.mu.Unlock()
		if e != nil {
			e.upstream.lists.again(0, AllKinds)
		}
		if rests {
			go r.reviewAsleep(server)
		}
	})
}

// Redact sets what lines pass, before the first server comes up.
func (r *Registry) Redact(by *protocol.Redaction) { r.upstreams.redaction = by }

func (r *Registry) event(e Event) {
	if f := r.watch.Load(); f != nil {
		(*f)(e)
	}
}

// publish has views show the entries. r.mu is held.
func (r *Registry) publish(changed Kinds) {
	states, serving := make(map[string]State, len(r.entries)), make([]*served, 0, len(r.entries))
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[name]
		states[name] = e.state
		if e.served != nil {
			serving = append(serving, e.served)
		}
	}
	r.views.publish(states, serving, changed)
}

// Relist makes the lists of clients anew, for what they can call has changed, and has them told.
func (r *Registry) Relist() {
	r.views.forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.publish(0)
	for name, e := range r.entries {
		if e.served != nil {
			r.tell(Event{Server: name, Changed: e.kinds() & Tools.Set()})
		}
	}
}

// adopt makes u the server of its name. One that is there already is replaced: its launcher is about to end.
func (r *Registry) adopt(u *Upstream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	name := u.Server().Name
	next := &entry{upstream: u, state: State{Since: time.Now(), Reason: "it is starting", Starting: true}}
	var changed Kinds
	if old := r.entries[name]; old != nil {
		defer old.upstream.end(errReplaced) // after the catalogue no longer shows it
		next.demand, next.redeclared = old.demand, old.redeclared
		next.update(u)
		if old.rests() && reflect.DeepEqual(old.served.declared, u.Server()) { // its lists stay until it is up
			next.served, next.state.Up = old.served, true
		} else {
			changed = old.kinds()
		}
	}
	r.entries[name] = next
	r.publish(changed)
	r.tell(Event{Server: name, Changed: changed})
	return true
}

// up shows what was discovered, as far as it has been accepted. It reports false if u is not the server of its name any
// more.
func (r *Registry) up(u *Upstream, found *Listing) (handover.Message, Kinds, bool) {
	v := r.reviewNow(u, func() *Listing { return found })
	defer r.mu.Unlock()
	l := v.listing
	e := r.entries[u.Server().Name]
	if e == nil || e.upstream != u || !u.Alive() {
		return handover.Message{}, 0, false
	}
	first := e.served == nil || e.served.upstream != u
	changed := r.serve(e, u, v)
	event := Event{Server: u.Server().Name, Changed: changed}
	if first {
		e.state = State{Up: true, Since: time.Now()}
		event.Up = u
		r.awake(e, u)
	}
	r.publish(changed)
	r.tell(event)
	m := ready(u, l, v)
	why := r.apart(e)
	m.Ready.Apart, m.Ready.Why = len(why), append(m.Ready.Why, why[:min(len(why), maxTold)]...)
	return m, changed, true
}

// apart says what of a server's the aggregate does not show. Of what another server has as well, that one is told, too.
// r.mu is held.
func (r *Registry) apart(e *entry) []string {
	why := e.served.notTogether(r.Catalogue().serving)
	if len(why) != e.apart {
		e.apart = len(why)
		for _, other := range r.entries {
			if other != e && other.served != nil && len(other.served.notTogether(r.Catalogue().serving)) != other.apart {
				other.upstream.lists.again(0, Resources.Set())
			}
		}
	}
	return why
}

// serve makes what was reviewed of u what is served, and returns what of that is new. r.mu is held.
func (r *Registry) serve(e *entry, u *Upstream, v reviewed) Kinds {
	s := &served{
		name: v.server.Name, label: v.server.Label, upstream: u, declared: v.server,
		listing: v.listing, found: v.found, held: v.held,
		about: v.about, waiting: v.count, strange: v.strange,
	}
	s.index()
	changed, before := v.listing.changes(new(Listing)), (*View)(nil)
	if old := e.served; old != nil {
		changed, before = differences([]*served{s}, []*served{old}), old.view
	}
	s.view = r.view(s.name, []*served{s}, before, changed)
	e.served = s
	return changed
}

// retell passes on that a server says that lists changed which show nothing new: clients may know better what to make
// of it. A server that does so again and again is believed a few times.
func (r *Registry) retell(u *Upstream, said Kinds) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[u.Server().Name]; said != 0 && e != nil && e.upstream == u && e.served != nil && u.retells.Allow() {
		r.tell(Event{Server: u.Server().Name, Changed: said})
	}
}

// down takes a server out of every list.
func (r *Registry) down(u *Upstream, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[u.Server().Name]; e != nil && e.upstream == u {
		r.takeDown(e, State{Reason: reason, Stopped: u.Stopping()})
	}
}

// takeDown takes a server out of every list, for the reason in state. r.mu is held.
func (r *Registry) takeDown(e *entry, state State) {
	name := e.upstream.Server().Name
	changed := e.kinds()
	if state.Since = e.state.Since; !e.down {
		state.Since = time.Now()
	}
	e.served, e.down, e.state = nil, true, state
	e.waking.finish(errors.New(briefly(name, state.Reason)))
	forgotten := r.forget()
	r.publish(changed)
	r.tell(Event{Server: name, Changed: changed})
	if forgotten != "" {
		r.tell(Event{Server: forgotten, Forgotten: true})
	}
	if e.sleeps != nil {
		go r.lay(*e.sleeps)
	}
}

// maxEntries bounds the servers that are remembered, also when their names change all the time.
const maxEntries = 1024

// forget drops the server that has been down for longest if there are too many, and returns its name. r.mu is held.
func (r *Registry) forget() (name string) {
	if len(r.entries) <= maxEntries {
		return ""
	}
	var since time.Time
	for n, e := range r.entries {
		if e.down && e.served == nil && (name == "" || e.state.Since.Before(since)) {
			name, since = n, e.state.Since
		}
	}
	delete(r.entries, name)
	return name
}

// kinds returns what of the lists goes away with the server.
func (e *entry) kinds() Kinds {
	if e.served == nil {
		return 0
	}
	return e.served.listing.changes(new(Listing))
}

// tell is called with r.mu held, so that events come in the order of the catalogues.
func (r *Registry) tell(e Event) {
	if e.Changed != 0 || e.Up != nil || e.Redeclared != nil || e.Method != "" || e.Forgotten {
		r.event(e)
	}
}

// Summary says in words what is served, for the unit's status line.
func (r *Registry) Summary() string {
	c := r.Catalogue()
	var waiting []string
	for name, s := range c.states {
		if !s.Up {
			waiting = append(waiting, name)
		}
	}
	slices.Sort(waiting)
	text := count(len(c.serving), "server") + ", " + count(c.all.Lists[Tools].Len(), "tool")
	if len(waiting) > 0 {
		text += "; not running: " + strings.Join(waiting, " ")
	}
	return text
}

// Close ends every conversation; those that are kept go on with the next gateway.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	entries := slices.Collect(maps.Values(r.entries))
	r.mu.Unlock()
	for _, e := range entries {
		e.upstream.end(errShutdown)
	}
	r.sessions.close()
}

func ready(u *Upstream, l *Listing, v reviewed) handover.Message {
	found := u.lists.now()
	d := found.dropped()
	return handover.Message{Ready: &handover.Ready{
		Dropped: d.Count, Why: d.Why,
		Tools: len(l[Tools]), Prompts: len(l[Prompts]), Resources: len(l[Resources]),
		Protocol: u.Agreed().Protocol, Server: u.Agreed().Title(), Held: v.count, Unreviewed: v.strange,
	}}
}
