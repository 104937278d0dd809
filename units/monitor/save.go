package monitor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/pfar/pfar/units/durable"
)

const (
	maxSaved = 4 << 20 // octets of the file; the longest has half of that
	maxID    = 1 << 53 // what a JSON number holds exactly
)

// Save writes what is over, and what is open as if it were over, so that the next process goes on from there. It is for
// the process's end: what was open is over by then.
func (t *Table) Save() error {
	if t.saved == "" {
		return nil
	}
	t.mu.Lock()
	t.refresh()
	all := t.since(0)
	t.mu.Unlock()
	for i := range all {
		all[i].Open = false
	}
	b, err := json.Marshal(all[max(0, len(all)-recent):])
	if err != nil {
		return fmt.Errorf("saving the connections: %w", err)
	}
	if err := durable.Replace(t.saved, b); err != nil {
		return fmt.Errorf("saving the connections: %w", err)
	}
	return nil
}

// load takes over what was saved, or nothing.
func (t *Table) load() {
	if t.saved == "" {
		return
	}
	f, err := os.Open(t.saved)
	if err != nil {
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSaved))
	if err != nil {
		return
	}
	var all []Connection
	if json.Unmarshal(b, &all) != nil || len(all) > recent || slices.ContainsFunc(all, func(c Connection) bool { return !c.sound() }) {
		return
	}
	for _, c := range all {
		c.shorten()
		t.id = max(t.id, c.ID) // a number is given once, so that a watcher knows what it has seen already
		t.change++
		e := &Entry{table: t, connection: c, change: t.change}
		e.place = t.past.PushBack(e)
	}
}

// sound reports whether a connection could have been saved.
func (c *Connection) sound() bool {
	return c.ID > 0 && c.ID < maxID && !c.Open && c.Sent >= 0 && c.Received >= 0 && c.Count >= 0 && c.Seconds >= 0 &&
		!c.Time.IsZero() && c.Time.Before(time.Now().Add(time.Hour))
}
