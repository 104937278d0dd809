package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/units/control"
)

func refusal(host string) Connection {
	return Connection{Path: Proxy, Host: host, Verdict: "deny", Reason: "name-not-declared"}
}

func opened(host string) Connection {
	return Connection{Path: Redirect, Host: host, Verdict: "allow", Reason: "declared", Rule: "a", Address: "192.0.2.1:443"}
}

// all is what a watcher who comes now is sent.
func (t *Table) all() []Connection {
	w := t.watch()
	defer t.unwatch(w)
	all, _ := t.news(w)
	return all
}

func hosts(all []Connection) string {
	var list []string
	for _, c := range all {
		list = append(list, c.Host)
	}
	return strings.Join(list, " ")
}

func TestMemoryIsBounded(t *testing.T) {
	table := NewTable("")
	open := table.Begin(opened("kept:443"), nil)
	long := strings.Repeat("ü", 8<<10)
	for i := range 10 * recent {
		c := refusal(fmt.Sprintf("%d.%s", i, long))
		c.Protocol, c.Reason, c.Rule, c.Address, c.Path = long, long, long, long, Path(long)
		table.Refuse(c)
		table.Begin(opened(fmt.Sprint(i)), nil).End(nil)
	}
	if n := len(table.all()); n != recent+1 {
		t.Errorf("%d connections are kept, want %d and the open one", n, recent)
	}
	for _, c := range table.all() {
		for _, s := range []string{c.Host, c.Protocol, c.Reason, c.Rule, c.Address, string(c.Path)} {
			if len(s) > longest+3 || strings.Contains(s, "\ufffd") || !json.Valid([]byte(`"`+s+`"`)) {
				t.Fatalf("a text of %d octets is kept: %.20q", len(s), s)
			}
		}
		b, err := json.Marshal(Message{Connection: &c})
		if err != nil || len(b) > maxLine {
			t.Errorf("a message of %d octets, %v", len(b), err)
		}
	}
	open.End(nil)
	if n := len(table.all()); n != recent {
		t.Errorf("%d connections after the last was closed", n)
	}
}

func TestLifeOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		var sent, calls atomic.Int64
		began := time.Now()
		e := table.Begin(Connection{ID: 99, Host: "a:443", Verdict: "allow", Count: 7}, func() (int64, int64) { calls.Add(1); return sent.Load(), 2 * sent.Load() })
		time.Sleep(3 * time.Second)
		if calls.Load() != 0 {
			t.Error("bytes are counted while nobody watches")
		}
		sent.Store(5)
		c := table.all()[0]
		if c.ID != 1 || !c.Time.Equal(began) || !c.Open || c.Seconds != 3 || c.Sent != 5 || c.Received != 10 || c.Count != 0 {
			t.Errorf("open: %+v", c)
		}
		sent.Store(7)
		time.Sleep(time.Second)
		e.End(func(c *Connection) { c.ID, c.Reason, c.Received, c.Open = 50, "done", 1, true })
		if c := table.all()[0]; c.ID != 1 || c.Open || c.Seconds != 4 || c.Sent != 7 || c.Received != 1 || c.Reason != "done" {
			t.Errorf("ended: %+v", c)
		}
		counted := calls.Load()
		e.End(func(c *Connection) { c.Host = "another" })
		if all := table.all(); len(all) != 1 || all[0].Host != "a:443" || calls.Load() != counted {
			t.Errorf("changed after its end: %+v", all)
		}
	})
}

func TestRefusalsInARowAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewTable("")
		first := time.Now()
		for range 3 {
			table.Refuse(refusal("a:443"))
			time.Sleep(time.Second)
		}
		table.Refuse(refusal("b:443"))
		table.Refuse(refusal("a:443"))
		other := refusal("a:443")
		other.Reason = "port-not-declared"
		table.Refuse(other)
		table.Begin(other, nil).End(nil)
		table.Refuse(other)
		all := table.all()
		if hosts(all) != "a:443 b:443 a:443 a:443 a:443 a:443" {
			t.Fatalf("%+v", all)
		}
		if c := all[0]; c.Count != 3 || !c.Time.Equal(first) || !c.Last.Equal(first.Add(2*time.Second)) {
			t.Errorf("three in a row: %+v", c)
		}
		for _, c := range all[1:] {
			if c.Count != 0 || !c.Last.IsZero() {
				t.Errorf("merged though it differs, or something was between: %+v", c)
			}
		}
	})
}

func TestSavedAndLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "connections")
	table := NewTable(path)
	table.Refuse(refusal("a:443"))
	table.Begin(opened("b:443"), func() (int64, int64) { return 3, 4 })
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	next := NewTable(path)
	all := next.all()
	if hosts(all) != "a:443 b:443" || all[1].Open || all[1].Sent != 3 || all[1].Received != 4 || all[1].ID != 2 {
		t.Errorf("loaded %+v", all)
	}
	next.Refuse(refusal("b:443")) // a number is never given twice, and a watcher may have seen the old refusal
	next.Refuse(refusal("a:443"))
	if all := next.all(); hosts(all) != "a:443 b:443 b:443 a:443" || all[2].ID != 3 || all[3].Count != 0 {
		t.Errorf("after the load %+v", all)
	}
	for i := range recent + 5 {
		next.Begin(opened(fmt.Sprint(i)), nil)
	}
	if err := next.Save(); err != nil {
		t.Fatal(err)
	}
	if n := len(NewTable(path).all()); n != recent {
		t.Errorf("%d loaded, want %d", n, recent)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("left beside it: %v, %v", entries, err)
	}
	if err := NewTable("").Save(); err != nil {
		t.Errorf("without a file: %v", err)
	}
	if err := NewTable(filepath.Join(path, "none")).Save(); err == nil {
		t.Error("saved below a file")
	}
}

func TestCorruptFilesAreIgnored(t *testing.T) {
	many, err := json.Marshal(make([]Connection, recent+1))
	if err != nil {
		t.Fatal(err)
	}
	const sound = `"id":1,"time":"2026-08-01T12:00:00Z"`
	for name, text := range map[string]string{
		"empty": "", "no JSON": "\x00\xff", "half": `[{"id":1,`, "an object": `{` + sound + `}`, "no number": `[{"time":"2026-08-01T12:00:00Z"}]`,
		"a huge number": `[{"id":18446744073709551615,"time":"2026-08-01T12:00:00Z"}]`, "no time": `[{"id":1}]`,
		"the future": `[{"id":1,"time":"9000-08-01T12:00:00Z"}]`, "open": `[{` + sound + `,"open":true}]`,
		"negative": `[{` + sound + `,"sent":-1}]`, "too many": string(many), "huge": `[{` + sound + `,"host":"` + strings.Repeat("x", maxSaved) + `"}]`,
		"a bad one among good ones": `[{` + sound + `},{"id":0}]`,
	} {
		path := filepath.Join(t.TempDir(), "connections")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		table := NewTable(path)
		if all := table.all(); len(all) != 0 {
			t.Errorf("%s: loaded %+v", name, all)
		}
		table.Refuse(refusal("a"))
		if all := table.all(); len(all) != 1 || all[0].ID != 1 {
			t.Errorf("%s: goes on with %+v", name, all)
		}
	}
	path := filepath.Join(t.TempDir(), "connections")
	if err := os.WriteFile(path, []byte(`[{`+sound+`}]`), 0o600); err != nil || len(NewTable(path).all()) != 1 {
		t.Errorf("what the others are made from is not loaded, %v", err)
	}
}

// bridge serves a table as a bridge does, until the test ends.
func bridge(t *testing.T, table *Table) (path string, stop func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if err := table.Serve(ctx, c); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // of a watcher that does not read
					t.Errorf("Serve: %v", err)
				}
			})
		}
	})
	stop = func() { cancel(); l.Close(); serving.Wait() }
	t.Cleanup(func() { stop(); os.RemoveAll(dir) })
	return path, stop
}

// TestFollow: what was there, oldest first, then Synced, then what comes; and the last word of a bridge that ends.
func TestFollow(t *testing.T) {
	table := NewTable("")
	e := table.Begin(opened("first:443"), func() (int64, int64) { return 1, 2 })
	table.Refuse(refusal("second:443"))
	path, stop := bridge(t, table)
	messages := make(chan Message)
	done := make(chan error, 1)
	go func() {
		done <- Follow(t.Context(), path, func(m Message) error { messages <- m; return nil })
	}()
	next := func(host string, open bool) Connection {
		t.Helper()
		var m Message
		select {
		case m = <-messages:
		case err := <-done:
			t.Fatalf("it ends with %v before %s", err, host)
		}
		if m.Connection == nil || m.Connection.Host != host || m.Connection.Open != open {
			t.Fatalf("got %+v, %+v; want %s", m, m.Connection, host)
		}
		return *m.Connection
	}
	if c := next("first:443", true); c.Sent != 1 || c.Received != 2 {
		t.Errorf("bytes at the beginning: %+v", c)
	}
	next("second:443", false)
	if m := <-messages; !m.Synced {
		t.Fatalf("got %+v", m)
	}
	table.Refuse(refusal("third:443"))
	next("third:443", false)
	e.End(nil)
	next("first:443", false)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		table.Refuse(refusal("last:443"))
		stop()
	}()
	next("last:443", false)
	if err := <-done; !errors.Is(err, io.EOF) {
		t.Errorf("after the bridge's end: %v", err)
	}
	<-stopped // the connection ends before nobody listens any more
	if err := Follow(t.Context(), path, nil); !errors.Is(err, control.ErrNotRunning) {
		t.Errorf("without a bridge: %v", err)
	}
}

func TestFollowEndsWithItsCaller(t *testing.T) {
	table := NewTable("")
	path, _ := bridge(t, table)
	enough := errors.New("enough")
	if err := Follow(t.Context(), path, func(Message) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err := Follow(ctx, path, func(Message) error { cancel(enough); return nil })
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	waitForWatchers(t, table, 0)
}

func waitForWatchers(t *testing.T, table *Table, want int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		table.mu.Lock()
		n, tick := len(table.watchers), table.tick
		table.mu.Unlock()
		switch {
		case n == want && (want > 0 || tick == nil):
			return
		case time.Now().After(deadline):
			t.Fatalf("%d watchers, timer %v; want %d", n, tick, want)
		}
	}
}

// TestFollowDistrusts: a bridge reads strangers' bytes, and might have been taken over.
func TestFollowDistrusts(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": "hello\n", "another type": "[1]\n", "endless": strings.Repeat("x", maxLine+1), "a wrong member": `{"connection":{"id":"x"}}` + "\n",
	} {
		path := filepath.Join(shortDir(t), "a.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if c, err := l.Accept(); err == nil {
				_, _ = io.WriteString(c, text) // the client may have gone
				c.Close()
			}
		}()
		err = Follow(t.Context(), path, func(m Message) error { t.Errorf("%s: got %+v", name, m); return nil })
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		l.Close()
		<-done
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestACutMessageIsTheEnd: a bridge may be killed while it writes.
func TestACutMessageIsTheEnd(t *testing.T) {
	path := filepath.Join(shortDir(t), "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, `{"synced":true}`+"\n"+`{"connec`)
			c.Close()
		}
	}()
	n := 0
	if err := Follow(t.Context(), path, func(Message) error { n++; return nil }); !errors.Is(err, io.EOF) || n != 1 {
		t.Errorf("%d messages, %v", n, err)
	}
}
