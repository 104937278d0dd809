package registry

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/failure"
)

// table is the servers by name: what each shows, and in which state it is. Events come in the order of the catalogues.
type table struct {
	views    *views
	reviewer *reviewer
	watch    atomic.Pointer[func(Event)]

	mu      sync.Mutex // guards the entries, too
	entries map[string]*entry
	closed  bool
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

// Watch has every event from now on given to f, after the catalogue shows what it tells. f must not block.
func (t *table) Watch(f func(Event)) { t.watch.Store(&f) }

func (t *table) event(e Event) {
	if f := t.watch.Load(); f != nil {
		(*f)(e)
	}
}

// publish has views show the entries. t.mu is held.
func (t *table) publish(changed Kinds) {
	states, serving := make(map[string]State, len(t.entries)), make([]*served, 0, len(t.entries))
	for _, name := range slices.Sorted(maps.Keys(t.entries)) {
		e := t.entries[name]
		state := e.state
		state.Offline, state.Next, state.Login = e.offline, e.next, e.login || e.state.Login
		if state.Offline {
			state.failed = e.failed
		}
		if state.Login {
			state.refusal = loginFirst(e.upstream.Server())
		}
		states[name] = state
		if e.served != nil {
			serving = append(serving, e.served)
		}
	}
	t.views.publish(states, serving, changed)
}

// Relist makes the lists of clients anew, for what they can call has changed, and has them told.
func (t *table) Relist() {
	t.views.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.publish(0)
	for name, e := range t.entries {
		if e.served != nil {
			t.tell(Event{Server: name, Changed: e.kinds() & Tools.Set()})
		}
	}
}

// adopt makes u the server of its name. One that is there already is replaced: its launcher is about to end.
func (t *table) adopt(u *Upstream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	name := u.Server().Name
	next := &entry{upstream: u, state: State{Since: time.Now(), Reason: "the server is starting", Starting: true}}
	var changed Kinds
	if old := t.entries[name]; old != nil {
		defer old.upstream.end(errReplaced) // after the catalogue no longer shows it
		next.sleep, next.redeclared = old.sleep, old.redeclared
		next.update(u)
		if old.rests() && reflect.DeepEqual(old.served.declared, u.Server()) { // its lists stay until it is up
			next.served, next.state.Up = old.served, true
		} else {
			changed = old.kinds()
		}
	}
	t.entries[name] = next
	t.publish(changed)
	t.tell(Event{Server: name, Changed: changed})
	return true
}

// apart says what of a server's the aggregate does not show. Of what another server has as well, that one is told, too.
// t.mu is held.
func (t *table) apart(e *entry) []string {
	why := e.served.notTogether(t.views.Catalogue().serving)
	if len(why) != e.apart {
		e.apart = len(why)
		for _, other := range t.entries {
			if other != e && other.served != nil && len(other.served.notTogether(t.views.Catalogue().serving)) != other.apart {
				other.upstream.lists.again(0, Resources.Set())
			}
		}
	}
	return why
}

// serve makes what was reviewed of u what is served, and returns what of that is new. t.mu is held.
func (t *table) serve(e *entry, u *Upstream, v reviewed) Kinds {
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
	s.view = t.views.view(s.name, []*served{s}, before, changed)
	e.served = s
	return changed
}

// retell passes on that a server says that lists changed which show nothing new: clients may know better what to make
// of it. A server that does so again and again is believed a few times.
func (t *table) retell(u *Upstream, said Kinds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[u.Server().Name]; said != 0 && e != nil && e.upstream == u && e.served != nil && u.retells.Allow() {
		t.tell(Event{Server: u.Server().Name, Changed: said})
	}
}

// takeDown takes a server out of every list, for the reason in state. t.mu is held.
func (t *table) takeDown(e *entry, state State) {
	name, changed := e.upstream.Server().Name, e.kinds()
	if state.Since = e.state.Since; !e.down {
		state.Since = time.Now()
	}
	e.served, e.down, e.state = nil, true, state
	forgotten := t.forget()
	t.publish(changed)
	// Calls that wait for the server see the new lists.
	e.waking.finish(failure.As(state.failed, name, state.Reason))
	t.tell(Event{Server: name, Changed: changed})
	if forgotten != "" {
		t.tell(Event{Server: forgotten, Forgotten: true})
	}
}

// maxEntries bounds the servers that are remembered, also when their names change all the time.
const maxEntries = 1024

// forget drops the server that has been down for longest if there are too many, and returns its name. t.mu is held.
func (t *table) forget() (name string) {
	if len(t.entries) <= maxEntries {
		return ""
	}
	var since time.Time
	for n, e := range t.entries {
		if e.down && e.served == nil && (name == "" || e.state.Since.Before(since)) {
			name, since = n, e.state.Since
		}
	}
	delete(t.entries, name)
	return name
}

// tell is called with t.mu held, so that events come in the order of the catalogues.
func (t *table) tell(e Event) {
	if e.Changed != 0 || e.Up != nil || e.Redeclared != nil || e.Method != "" || e.Forgotten {
		t.event(e)
	}
}

// reviewNow reviews a listing until neither it nor the declaration has changed meanwhile. It calls found with t.mu held
// and returns with t.mu held.
func (t *table) reviewNow(u *Upstream, found func() *Listing) (v reviewed) {
	for {
		t.mu.Lock()
		l := found()
		if now, _ := u.Declared(); l == nil || v.found == l && v.by == now {
			return v
		}
		t.mu.Unlock()
		v = t.reviewer.review(u, l)
	}
}

// close takes no more servers, and returns those that there are.
func (t *table) close() (list []*Upstream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, e := range t.entries {
		list = append(list, e.upstream)
	}
	return list
}
