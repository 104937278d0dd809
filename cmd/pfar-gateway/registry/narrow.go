package registry

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/pfar/pfar/policies/access"
)

// narrow remembers what each client was last shown, so that lists that have not changed stay as they are.
type narrow struct {
	mu   sync.Mutex
	last map[*access.Rights]*Catalogue
}

// For returns the catalogue as a client with these rights finds it. What it may not use is not in it: every path from a
// client to a server leads through here, so that on none of them is there more than on another (GC-50). It is made when
// it is first asked for.
func (r *Registry) For(rights *access.Rights) *Catalogue {
	c := r.Catalogue()
	if rights.All() {
		return c
	}
	if n, ok := c.narrowed.Load(rights); ok {
		return n.(*Catalogue)
	}
	r.narrow.mu.Lock()
	defer r.narrow.mu.Unlock()
	if n, ok := c.narrowed.Load(rights); ok {
		return n.(*Catalogue)
	}
	n := r.narrowed(c, rights, r.narrow.last[rights])
	c.narrowed.Store(rights, n)
	if r.narrow.last == nil {
		r.narrow.last = make(map[*access.Rights]*Catalogue)
	}
	r.narrow.last[rights] = n
	return n
}

// Retain gives up what is remembered of rights that nobody has any more.
func (r *Registry) Retain(has func(*access.Rights) bool) {
	r.narrow.mu.Lock()
	defer r.narrow.mu.Unlock()
	maps.DeleteFunc(r.narrow.last, func(rights *access.Rights, _ *Catalogue) bool { return !has(rights) })
}

func (r *Registry) narrowed(c *Catalogue, rights *access.Rights, last *Catalogue) *Catalogue {
	n := &Catalogue{states: make(map[string]State)}
	for name, state := range c.states {
		if rights.Server(name) {
			n.states[name] = state
		}
	}
	for _, s := range c.serving {
		if !rights.Server(s.name) {
			continue
		}
		var old *served
		if last != nil {
			old = last.find(s.name)
		}
		n.serving = append(n.serving, r.part(s, rights, old))
	}
	var before *View
	changed := AllKinds
	if last != nil {
		before, changed = last.all, differences(n.serving, last.serving)
	}
	n.all = r.view("", n.serving, before, changed)
	n.all.private()
	return n
}

// part is what of a server is there for a client; old is what was.
func (r *Registry) part(s *served, rights *access.Rights, old *served) *served {
	label := rights.Label(s.name, s.label)
	if !rights.Filters(s.name) && label == s.label {
		return s
	}
	if old != nil && old.of == s {
		return old
	}
	listing := *s.listing
	listing[Tools] = nil
	for _, i := range s.listing[Tools] {
		if rights.Tool(s.name, i.Name) {
			listing[Tools] = append(listing[Tools], i)
		}
	}
	p := &served{name: s.name, label: label, of: s, upstream: s.upstream, listing: &listing, found: s.found, held: s.held, instructions: s.instructions, waiting: s.waiting}
	p.held[Tools] = maps.Clone(s.held[Tools])
	maps.DeleteFunc(p.held[Tools], func(name string, _ bool) bool { return !rights.Tool(s.name, name) })
	p.index()
	var before *View
	changed := AllKinds
	if old != nil && old.of != nil { // lists of the whole are not of a part, even where they hold the same
		before, changed = old.view, differences([]*served{p}, []*served{old})
	}
	p.view = r.view(p.name, []*served{p}, before, changed)
	p.view.private()
	return p
}

// private has lists that are not everybody's kept by their client alone (MS-91).
func (v *View) private() {
	for _, l := range v.Lists {
		if l.hint.Public { // it is new: nobody has it yet
			l.hint.Public = false
		}
	}
}

// differences returns the kinds in which what is served shows otherwise.
func differences(now, before []*served) Kinds {
	var changed Kinds
	for k := Tools; k <= Templates; k++ {
		if !slices.EqualFunc(having(k, now), having(k, before), func(a, b *served) bool { return a == b || a.looks(k, b) }) {
			changed |= k.Set()
		}
	}
	return changed
}

func having(k Kind, list []*served) []*served {
	return slices.DeleteFunc(slices.Clone(list), func(s *served) bool { return len(s.listing[k]) == 0 })
}

// looks reports whether a list of both has the same bytes.
func (s *served) looks(k Kind, old *served) bool {
	if s.name != old.name || s.label != old.label || s.listing.changes(old.listing).Has(k) {
		return false
	}
	return k != Tools || reflect.DeepEqual(s.upstream.server.Tools, old.upstream.server.Tools)
}
