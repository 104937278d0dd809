package monitor

import (
	"cmp"
	"container/list"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/visible"
)

const (
	recent   = 200         // connections that are over and still shown
	longest  = 512         // octets of a text: a name with its port has at most 259
	interval = time.Second // between the byte counts of an open connection
)

// Table is what a bridge keeps of its connections: all that are open, and the last of those that are over. It is
// bounded whatever a server does, as long as the bridge bounds how many connections it opens.
//
// Both lists are in the order of the last change, and a watcher remembers the number of the last change that it was
// sent. So a slow one costs nothing: it gets the newest state of what is still there.
type Table struct {
	saved string // file; "" if there is none

	mu       sync.Mutex
	id       uint64 // of the last connection
	change   uint64 // number of the last one
	open     list.List
	past     list.List
	watchers map[*watcher]bool
	tick     *time.Timer // nil unless somebody watches something open
}

// Entry is a connection that was opened.
type Entry struct {
	table *Table
	bytes func() (sent, received int64)

	// All of these belong to table.mu.
	connection Connection
	change     uint64
	place      *list.Element
	once       bool // it was a refusal of this process, with which an equal one may be merged
}

type watcher struct {
	wake   chan struct{}
	change uint64 // all changes up to it were sent
	lost   int
}

// NewTable returns a table that goes on where the one ended that was last saved in the file. A file that is not there
// or makes no sense is ignored. With an empty name nothing is kept.
func NewTable(saved string) *Table {
	t := &Table{saved: saved, watchers: map[*watcher]bool{}}
	t.load()
	return t
}

// Begin shows an open connection. ID, Open and Seconds are the table's to fill in, and Time if it is zero. bytes says
// how much has passed: it must be safe for concurrent use, must not wait and must not call the table, and it is not
// called any more once End has returned. It may be nil.
func (t *Table) Begin(c Connection, bytes func() (sent, received int64)) *Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Open, c.Count, c.Last = true, 0, time.Time{}
	e := t.add(&t.open, c)
	e.bytes = bytes
	t.arm()
	return e
}

// Refuse shows what was never open. Equal refusals in a row are one, with their count.
func (t *Table) Refuse(c Connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.Open, c.Count, c.Last = false, 0, time.Time{}
	if back := t.past.Back(); back != nil {
		if e := entryOf(back); e.once && e.merge(c) {
			t.changed(&t.past, e)
			return
		}
	}
	t.add(&t.past, c).once = true
	t.trim()
}

// End moves a connection to those that are over. f, which may be nil, says how it ended; the bytes are counted before.
// To end a connection again does nothing.
func (e *Entry) End(f func(*Connection)) {
	t := e.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.place == nil || !e.connection.Open {
		return
	}
	e.count()
	e.bytes = nil // it may hold the connection's memory
	e.connection.Seconds = time.Since(e.connection.Time).Seconds()
	if f != nil {
		id := e.connection.ID
		f(&e.connection)
		e.connection.ID = id
		e.connection.shorten()
	}
	e.connection.Open = false
	t.open.Remove(e.place)
	e.place = t.past.PushBack(e)
	t.changed(&t.past, e)
	t.trim()
}

// count takes the present number of bytes and reports whether it is another.
func (e *Entry) count() bool {
	if e.bytes == nil {
		return false
	}
	sent, received := e.bytes()
	c := &e.connection
	if sent == c.Sent && received == c.Received {
		return false
	}
	c.Sent, c.Received = sent, received
	return true
}

// merge counts an equal refusal.
func (e *Entry) merge(c Connection) bool {
	old := &e.connection
	c.shorten()
	if c.Path != old.Path || c.Protocol != old.Protocol || c.Host != old.Host || c.Address != old.Address ||
		c.Verdict != old.Verdict || c.Reason != old.Reason || c.Detail != old.Detail || c.Rule != old.Rule || c.Sent != 0 || c.Received != 0 {
		return false
	}
	old.Count, old.Last = max(1, old.Count)+1, c.Time
	if c.Time.IsZero() {
		old.Last = time.Now()
	}
	return true
}

func (c *Connection) shorten() {
	for _, s := range [...]*string{(*string)(&c.Path), &c.Protocol, &c.Host, &c.Address, &c.Verdict, &c.Reason, &c.Detail, &c.Rule} {
		if len(*s) <= longest {
			continue
		}
		*s = strings.Clone(visible.Cut(*s, longest)) + "..." // a part would keep the whole in memory
	}
}

func entryOf(l *list.Element) *Entry { return l.Value.(*Entry) }

// add, changed, trim, arm, refresh, since and load's part of the table are called with t.mu held.
func (t *Table) add(to *list.List, c Connection) *Entry {
	t.id++
	c.ID = t.id
	if c.Time.IsZero() {
		c.Time = time.Now()
	}
	c.shorten()
	e := &Entry{table: t, connection: c}
	e.place = to.PushBack(e)
	t.changed(to, e)
	return e
}

// changed numbers a change and wakes whoever watches.
func (t *Table) changed(in *list.List, e *Entry) {
	t.change++
	e.change = t.change
	in.MoveToBack(e.place)
	for w := range t.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// trim drops what has been over for longest.
func (t *Table) trim() {
	for t.past.Len() > recent {
		e := entryOf(t.past.Front())
		t.past.Remove(e.place)
		e.place = nil
		for w := range t.watchers {
			if e.change > w.change {
				w.lost++
			}
		}
	}
}

// arm sets the timer of the byte counts, if there is somebody to see them.
func (t *Table) arm() {
	if t.tick != nil || len(t.watchers) == 0 || t.open.Len() == 0 {
		return
	}
	var tick *time.Timer
	tick = time.AfterFunc(interval, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.tick == tick { // and not another's, since the last watcher left and a new one came
			t.tick = nil
			t.refresh()
			t.arm()
		}
	})
	t.tick = tick
}

// refresh counts the bytes of all open connections.
func (t *Table) refresh() {
	var counted []*Entry
	for l := t.open.Front(); l != nil; l = l.Next() {
		if e := entryOf(l); e.count() {
			counted = append(counted, e)
		}
	}
	for _, e := range counted { // now, for it moves them to the list's end
		t.changed(&t.open, e)
	}
}

// since returns what has changed after a change, in the order of the changes.
func (t *Table) since(change uint64) []Connection {
	var entries []*Entry
	for _, in := range [...]*list.List{&t.open, &t.past} {
		for l := in.Back(); l != nil && entryOf(l).change > change; l = l.Prev() {
			entries = append(entries, entryOf(l))
		}
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.change, b.change) })
	now, all := time.Now(), make([]Connection, len(entries))
	for i, e := range entries {
		all[i] = e.connection
		if e.connection.Open {
			all[i].Seconds = now.Sub(e.connection.Time).Seconds()
		}
	}
	return all
}

// watch adds a watcher, to whom all that is there is news.
func (t *Table) watch() *watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &watcher{wake: make(chan struct{}, 1)}
	t.watchers[w] = true
	t.refresh()
	t.arm()
	return w
}

func (t *Table) unwatch(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, w)
	if len(t.watchers) == 0 && t.tick != nil {
		t.tick.Stop()
		t.tick = nil
	}
}

// news returns what a watcher has not been sent, and how much of it is gone.
func (t *Table) news(w *watcher) (all []Connection, lost int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, lost = t.since(w.change), w.lost
	w.change, w.lost = t.change, 0
	return all, lost
}
