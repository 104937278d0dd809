package registry

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/plural"
)

// views shows clients what is served, and remembers what each was last shown, so that lists that have not changed stay
// as they are.
type views struct {
	page   int           // bytes of a list that a client gets at once
	serial atomic.Uint64 // of the newest list
	now    atomic.Pointer[Catalogue]
	offers Offers

	mu   sync.Mutex
	last map[viewer]*Catalogue
}

func newViews(page int) *views {
	w := &views{page: page}
	w.serial.Store(uint64(time.Now().UnixNano())) // a cursor of a gateway before this one is of no list
	w.publish(make(map[string]State), nil, AllKinds)
	return w
}

// Catalogue returns what is served now.
func (w *views) Catalogue() *Catalogue { return w.now.Load() }

// publish replaces what is served. There is one caller at a time.
func (w *views) publish(states map[string]State, serving []*served, changed Kinds) {
	c := &Catalogue{states: states, serving: serving, replaced: make(chan struct{})}
	before := w.Catalogue()
	if before == nil {
		before = &Catalogue{replaced: make(chan struct{})}
	}
	c.all = w.view("", serving, before.all, changed)
	w.now.Store(c)
	close(before.replaced)
}

// view returns the lists of the parts; those of old are taken over where they have not changed.
func (w *views) view(server string, of []*served, old *View, changed Kinds) *View {
	v := &View{Server: server}
	for _, s := range of {
		v.Agreed = append(v.Agreed, Named{s.name, s.declared.Description, s.upstream.Agreed(), s.about})
	}
	for k := Tools; k <= Templates; k++ {
		if old != nil && !changed.Has(k) {
			v.Lists[k] = old.Lists[k]
			continue
		}
		v.Lists[k] = &List{
			kind: k, parts: parts(k, server == "", of), limit: w.page, serial: w.serial.Add(1), hint: hintOf(k, of),
		}
	}
	return v
}

// Offers reports whether a client of this profile and with these rights can ever call a tool. What it cannot is not
// listed to it; a call of it is decided as any other, and recorded.
type Offers func(profile string, rights *access.Rights, u *Upstream, tool Item) bool

// Offer sets what is listed to whom, before the first client is let in.
func (w *views) Offer(o Offers) { w.offers = o }

// forget has what each client was last shown made anew.
func (w *views) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = nil
}

// viewer is who sees a catalogue. An empty profile can call everything.
type viewer struct {
	rights  *access.Rights
	profile string
}

// seen are the catalogues of those with the same rights, by profile. There are few.
type seen []struct {
	profile   string
	catalogue *Catalogue
}

func (s seen) by(profile string) *Catalogue {
	for _, one := range s {
		if one.profile == profile {
			return one.catalogue
		}
	}
	return nil
}

// For returns the catalogue as a client with these rights finds it. What it may not use is not in it: every path from a
// client to a server leads through here, so that on none of them is there more than on another. It is made when it is
// first asked for.
func (w *views) For(rights *access.Rights, profile string) *Catalogue {
	c := w.Catalogue()
	if w.offers == nil {
		profile = ""
	}
	if rights.All() && profile == "" {
		return c
	}
	known, _ := c.narrowed.Load(rights)
	all, _ := known.(seen)
	if n := all.by(profile); n != nil {
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known, _ = c.narrowed.Load(rights)
	all, _ = known.(seen)
	if n := all.by(profile); n != nil {
		return n
	}
	v := viewer{rights, profile}
	n := w.narrowed(c, v, w.last[v])
	c.narrowed.Store(rights, append(slices.Clip(all), seen{{profile, n}}...))
	if w.last == nil {
		w.last = make(map[viewer]*Catalogue)
	}
	w.last[v] = n
	return n
}

// Without returns what an endpoint shows but for these servers, of whose lists the client may not be shown anything.
func (w *views) Without(c *Catalogue, endpoint string, servers []string) *View {
	key := endpoint + "\x00" + strings.Join(servers, ",")
	if v, ok := c.narrowed.Load(key); ok {
		return v.(*View)
	}
	left := slices.DeleteFunc(slices.Clone(c.serving), func(s *served) bool {
		return endpoint != "" && s.name != endpoint || slices.Contains(servers, s.name)
	})
	v := w.view(endpoint, left, nil, AllKinds)
	v.private()
	shared, _ := c.narrowed.LoadOrStore(key, v) // so that cursors are of one list
	return shared.(*View)
}

// Retain gives up what is remembered of rights that nobody has any more.
func (w *views) Retain(has func(*access.Rights) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.last, func(v viewer, _ *Catalogue) bool { return !has(v.rights) })
}

func (w *views) narrowed(c *Catalogue, v viewer, last *Catalogue) *Catalogue {
	rights := v.rights
	n := &Catalogue{states: make(map[string]State)}
	for name, state := range c.states {
		if rights.Server(name) {
			n.states[name] = state
		}
	}
	whole := rights.All()
	for _, s := range c.serving {
		if !rights.Server(s.name) {
			continue
		}
		var old *served
		if last != nil {
			old = last.find(s.name)
		}
		p := w.part(s, v, old)
		whole = whole && p == s
		n.serving = append(n.serving, p)
	}
	if whole {
		return c
	}
	var before *View
	changed := AllKinds
	if last != nil {
		before, changed = last.all, differences(n.serving, last.serving)
	}
	n.all = w.view("", n.serving, before, changed)
	n.all.private()
	return n
}

// part is what of a server is there for a client; old is what was.
func (w *views) part(s *served, v viewer, old *served) *served {
	rights := v.rights
	label := rights.Label(s.name, s.label)
	if old != nil && old.of == s {
		return old
	}
	listing, shown := *s.listing, *s.listing
	listing[Tools], shown[Tools] = nil, nil
	for _, i := range s.listing[Tools] {
		if !rights.Tool(s.name, i.Name) {
			continue
		}
		listing[Tools] = append(listing[Tools], i)
		if v.profile == "" || w.offers(v.profile, rights, s.upstream, i) {
			shown[Tools] = append(shown[Tools], i)
		}
	}
	if !rights.Filters(s.name) && label == s.label && len(shown[Tools]) == len(s.listing[Tools]) {
		return s
	}
	p := &served{
		name: s.name, label: label, of: s, upstream: s.upstream, declared: s.declared, listing: &listing, shown: &shown,
		found: s.found, held: s.held,
		about: s.about, waiting: s.waiting, strange: s.strange,
	}
	p.held[Tools] = maps.Clone(s.held[Tools])
	maps.DeleteFunc(p.held[Tools], func(name string, _ bool) bool { return !rights.Tool(s.name, name) })
	p.index()
	var before *View
	changed := AllKinds
	if old != nil && old.of != nil { // lists of the whole are not of a part, even where they hold the same
		before, changed = old.view, differences([]*served{p}, []*served{old})
	}
	p.view = w.view(p.name, []*served{p}, before, changed)
	p.view.private()
	return p
}

// private has lists that are not everybody's kept by their client alone.
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
	return slices.DeleteFunc(slices.Clone(list), func(s *served) bool { return len(s.shows()[k]) == 0 })
}

// looks reports whether a list of both has the same bytes.
func (s *served) looks(k Kind, old *served) bool {
	if s.name != old.name || s.label != old.label || s.shows().changes(old.shows()).Has(k) {
		return false
	}
	return k != Tools || reflect.DeepEqual(s.declared.Tools, old.declared.Tools)
}

// Summary says in words what is served, for the unit's status line.
func (w *views) Summary() string {
	c := w.Catalogue()
	var waiting []string
	for name, s := range c.states {
		if !s.Up {
			waiting = append(waiting, name)
		}
	}
	slices.Sort(waiting)
	text := plural.Count(len(c.serving), "server") + ", " + plural.Count(c.all.Lists[Tools].Len(), "tool")
	if len(waiting) > 0 {
		text += "; not running: " + strings.Join(waiting, " ")
	}
	return text
}
