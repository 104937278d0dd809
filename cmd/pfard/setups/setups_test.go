package setups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// world is everything around flows, as one test has it. It outlives each pfard.
type world struct {
	t   *testing.T
	dir string

	mu       sync.Mutex
	vault    map[string]string
	declared map[string]bool
	runs     map[string]bool
	packages map[string]bool
	records  []audit.Record
	done     []string // what was done, in order
	proof    Proof
	tools    int
	now      time.Time
	alarm    time.Time

	// before and after are called with what is done, around its effect; an error is what comes of it.
	before, after func(ctx context.Context, what string) error
}

func newWorld(t *testing.T) *world {
	pass := func(context.Context, string) error { return nil }
	return &world{
		t: t, dir: filepath.Join(t.TempDir(), "set-ups"), vault: map[string]string{}, declared: map[string]bool{},
		runs: map[string]bool{}, packages: map[string]bool{}, proof: Proof{Result: units.Verified, Tool: "get_me"},
		tools: 3, now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), before: pass, after: pass,
	}
}

// does does something, unless the test has it fail or wait.
func (w *world) does(ctx context.Context, what string, effect func()) error {
	w.mu.Lock()
	before, after := w.before, w.after
	w.mu.Unlock()
	if err := before(ctx, what); err != nil {
		return err
	}
	w.mu.Lock()
	w.done = append(w.done, what)
	effect()
	w.mu.Unlock()
	return after(ctx, what)
}

func (w *world) Stored(keys []string) (there []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if _, ok := w.vault[key]; ok {
			there = append(there, key)
		}
	}
	return there, nil
}

func (w *world) Store(_ int, key string, v Value) error {
	return w.does(context.Background(), "store "+key, func() { w.vault[key] = v.Text })
}

func (w *world) Install(ctx context.Context, pkg string) error {
	return w.does(ctx, "install", func() { w.packages[pkg] = true })
}

func (w *world) Write(o Order) error {
	return w.does(context.Background(), "write", func() {
		if o.Flow.Package != "" && !w.packages[o.Flow.Package] {
			w.t.Errorf("%q is declared before its package is there", o.Flow.Server)
		}
		w.declared[o.Flow.Server] = true
	})
}

func (w *world) Start(ctx context.Context, server string, again bool) (int, error) {
	what := "start"
	if again {
		what = "restart"
	}
	err := w.does(ctx, what, func() { w.runs[server] = true })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tools, err
}

func (w *world) Verify(ctx context.Context, _ string) (Proof, error) {
	err := w.does(ctx, "verify", func() {})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proof, err
}

func (w *world) Stop(server string) error {
	return w.does(context.Background(), "stop", func() { w.runs[server] = false })
}

func (w *world) Append(r audit.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records = append(w.records, r)
	return nil
}

func (w *world) Clean(text string) string { return strings.ReplaceAll(text, "hunter2", "***") }

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) Wake(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm = at
	return nil
}

// pfard is the flows of one.
func (w *world) pfard() *Flows {
	f := New(World{Log: slog.New(slog.DiscardHandler), Dir: w.dir, Vault: w, Servers: w, Records: w, Clock: w})
	w.t.Cleanup(f.Close)
	return f
}

// list is what was done.
func (w *world) list() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.done, ", ")
}

// recorded is what was recorded of set-ups.
func (w *world) recorded() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, r := range w.records {
		all = append(all, r.Method)
	}
	return strings.Join(all, ", ")
}

// ordered is an order of a server with secrets.
func ordered(principal, server string, keys ...string) Order {
	o := Order{Text: []byte("text"), Flow: setup.Flow{Server: server, Principal: principal, Package: "npm:x@1.0.0"}}
	for _, key := range keys {
		w := control.Wanted{Key: key, Variable: strings.ToUpper(key), Optional: strings.HasPrefix(key, "optional")}
		o.Flow.Secrets = append(o.Flow.Secrets, setup.Secret{Wanted: w})
	}
	return o
}

// until follows a flow to a state, and returns it.
func until(t *testing.T, f *Flows, id string, state control.FlowState) (now control.Flow) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	enough := errors.New("enough")
	err := f.Follow(ctx, id, true, func(next control.Flow) error {
		if now = next; now.State == state {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatalf("it is %+v (%v), want %s", now, err, state)
	}
	return now
}

// begins begins a flow.
func begins(t *testing.T, f *Flows, o Order) string {
	t.Helper()
	id, err := f.Begin(o)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func supplies(f *Flows, id, value string) error {
	_, err := f.Supply(Answer{FlowAnswer: control.FlowAnswer{ID: id}, Value: &Value{Text: value}})
	return err
}

// nothingLeft wants no file of a flow, and none of a value.
func (w *world) nothingLeft() {
	w.t.Helper()
	left, err := os.ReadDir(w.dir)
	if len(left) > 0 || err != nil {
		w.t.Errorf("left: %v, %v", left, err)
	}
}

// TestWay: a set-up asks for what is missing, and does one thing after another.
func TestWay(t *testing.T) {
	w := newWorld(t)
	w.vault["had"] = "x"
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "had", "token", "optional"))
	if now := until(t, f, id, control.AwaitingCredential); now.Wants.Key != "token" || w.list() != "" {
		t.Fatalf("it is %+v, done %q", now, w.list())
	}
	if err := supplies(f, id, "skip"); !errors.Is(err, control.ErrInvalid) && err != nil {
		t.Errorf("skip what is required: %v", err)
	}
	id = begins(t, f, ordered("uid 0", "a", "had", "token", "optional")) // skip has ended it
	until(t, f, id, control.AwaitingCredential)
	if err := supplies(f, id, "hunter2"); err != nil {
		t.Fatal(err)
	}
	if now := until(t, f, id, control.AwaitingCredential); now.Wants.Key != "optional" || !now.Wants.Optional {
		t.Fatalf("it asks %+v", now.Wants)
	}
	if err := supplies(f, id, "Skip"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	r := f.of[id]
	f.mu.Unlock()
	if r != nil {
		<-r.over
	}
	if got := w.list(); got != "store token, install, write, start, verify" {
		t.Errorf("done: %s", got)
	}
	now, err := f.look(id)
	if err != nil || now.State != control.FlowComplete || now.Tools != 3 || now.Verified != "get_me" {
		t.Errorf("it ended as %+v, %v", now, err)
	}
	if got := w.recorded(); got != "begin, fail, begin, complete" {
		t.Errorf("recorded: %s", got)
	}
	w.nothingLeft()
	if !w.alarm.IsZero() {
		t.Errorf("somebody is woken at %s", w.alarm)
	}
}

// TestThreeRefused: each value that the service refuses is told with its words and another one asked for; the third
// ends the set-up, and the last value stays.
func TestThreeRefused(t *testing.T) {
	w := newWorld(t)
	w.proof = Proof{Result: units.Invalid, Words: "API token hunter2 is invalid"}
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	until(t, f, id, control.AwaitingCredential)
	for n := range 2 {
		if err := supplies(f, id, fmt.Sprint("wrong", n)); err != nil {
			t.Fatal(err)
		}
		now := until(t, f, id, control.CredentialRefused)
		if now.Attempts != n+1 || now.Detail != "API token *** is invalid" || now.Wants == nil ||
			now.Deadline.IsZero() {
			t.Fatalf("refused %d: %+v", n, now)
		}
	}
	if err := supplies(f, id, "wrong2"); err != nil {
		t.Fatal(err)
	}
	now := until(t, f, id, control.FlowFailed)
	const want = "no value worked in 3 attempts; the service refused the last: API token *** is invalid"
	if now.Detail != want || w.runs["a"] || w.vault["token"] != "wrong2" {
		t.Errorf("it ended as %+v, runs %v, vault %v", now, w.runs, w.vault)
	}
	if got := w.recorded(); got != "begin, refused, refused, refused, fail" {
		t.Errorf("recorded: %s", got)
	}
	again := "store token, install, write, restart, verify"
	if got := w.list(); got != "store token, install, write, start, verify, "+again+", "+again+", stop" {
		t.Errorf("done: %s", got)
	}
	w.nothingLeft()
}

// TestServerEnds: a server that crashes with a new value may do so because of it, and another one is asked for. With no
// new value there is nothing to ask for.
func TestServerEnds(t *testing.T) {
	w := newWorld(t)
	wrong := true
	w.before = func(_ context.Context, what string) error {
		if wrong && strings.HasSuffix(what, "start") {
			return &Ended{errors.New("exit status 1: hunter2 is no key")}
		}
		return nil
	}
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	until(t, f, id, control.AwaitingCredential)
	if err := supplies(f, id, "wrong"); err != nil {
		t.Fatal(err)
	}
	now := until(t, f, id, control.CredentialRefused)
	if now.Reason != control.FlowNotStarted || now.Attempts != 1 || now.Wants == nil ||
		now.Detail != "exit status 1: *** is no key" {
		t.Fatalf("asked again: %+v", now)
	}
	wrong = false
	if err := supplies(f, id, "right"); err != nil {
		t.Fatal(err)
	}
	if now := until(t, f, id, control.FlowComplete); w.vault["token"] != "right" {
		t.Errorf("it ended as %+v, vault %v", now, w.vault)
	}
	if got := w.list(); got != "store token, install, write, store token, install, write, restart, verify" {
		t.Errorf("done: %s", got)
	}
	wrong = true
	id = begins(t, f, ordered("uid 0", "a", "token"))
	if now := until(t, f, id, control.FlowFailed); now.Reason != control.FlowNotStarted || now.Attempts != 0 {
		t.Errorf("with the value of before: %+v", now)
	}
}

// TestServerEndsThrice: the third value is the last, and the set-up's end says how to store another.
func TestServerEndsThrice(t *testing.T) {
	w := newWorld(t)
	w.before = func(_ context.Context, what string) error {
		if strings.HasSuffix(what, "start") {
			return &Ended{errors.New("exit status 1")}
		}
		return nil
	}
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	until(t, f, id, control.AwaitingCredential)
	for n := range 3 {
		if err := supplies(f, id, fmt.Sprint("wrong", n)); err != nil {
			t.Fatal(err)
		}
		if n < 2 {
			until(t, f, id, control.CredentialRefused)
		}
	}
	now := until(t, f, id, control.FlowFailed)
	const want = "no value worked in 3 attempts; the last start failed: exit status 1; " +
		"to store another token, run: pfar vault rotate token"
	if now.Reason != control.FlowNotStarted || now.Detail != want || w.runs["a"] {
		t.Errorf("it ended as %+v, runs %v", now, w.runs)
	}
}

// TestFails: what goes wrong is told in words without secrets, and what runs is stopped.
func TestFails(t *testing.T) {
	const other = "to store another token, run: pfar vault rotate token"
	for _, c := range []struct {
		at, done, want string
		why            control.FlowReason
	}{
		{"install", "store token", "no *** registry", control.FlowNotInstalled},
		{"write", "store token, install, stop", "no *** registry", control.FlowNotWritten},
		{"start", "store token, install, write, stop", "no *** registry; " + other, control.FlowNotStarted},
		{"verify", "store token, install, write, start, stop", "no *** registry; " + other, control.FlowNotVerified},
		{"tools", "store token, install, write, start, stop", "the server has no tools", control.FlowNoTools},
	} {
		w := newWorld(t)
		w.before = func(_ context.Context, what string) error {
			if what == c.at {
				return errors.New("no hunter2 registry")
			}
			return nil
		}
		if c.at == "tools" {
			w.tools = 0
		}
		f := w.pfard()
		id := begins(t, f, ordered("uid 0", "a", "token"))
		until(t, f, id, control.AwaitingCredential)
		if err := supplies(f, id, "hunter2"); err != nil {
			t.Fatal(err)
		}
		f.wait(id)
		now, err := f.look(id)
		if err != nil || now.State != control.FlowFailed || now.Detail != c.want || now.Reason != c.why ||
			w.list() != c.done || w.vault["token"] == "" {
			t.Errorf("%s: %+v, %v, done %s", c.at, now, err, w.list())
		}
		w.nothingLeft()
	}
}

// wait waits for the end of a flow.
func (f *Flows) wait(id string) {
	f.mu.Lock()
	r := f.of[id]
	f.mu.Unlock()
	if r != nil {
		<-r.over
	}
}

// TestStoreFails: a value that cannot be stored is the person's to know, and the set-up waits as before.
func TestStoreFails(t *testing.T) {
	w := newWorld(t)
	w.before = func(_ context.Context, what string) error {
		if strings.HasPrefix(what, "store") {
			return unix.ENOSPC
		}
		return nil
	}
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	until(t, f, id, control.AwaitingCredential)
	if err := supplies(f, id, "hunter2"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("told %v", err)
	}
	if now := until(t, f, id, control.AwaitingCredential); now.Attempts != 0 ||
		!strings.Contains(now.Detail, "no space") {
		t.Errorf("it is %+v", now)
	}
}

// TestEnds: a set-up ends by a person's word, by another one of the same principal and by the clock, not by who follows
// it. What it was doing is over before it is said to have ended, and what runs is stopped.
func TestEnds(t *testing.T) {
	for _, c := range []struct{ by, detail string }{
		{"cancel", "cancelled"}, {"another", "another set-up was begun"},
		{"clock", "the server did not start within 5 minutes"},
	} {
		w := newWorld(t)
		w.vault["token"] = "x"
		starting := make(chan struct{}, 1)
		var stuck sync.Once
		w.before = func(ctx context.Context, what string) error {
			if what != "start" {
				return nil
			}
			held := false
			stuck.Do(func() { held = true })
			if held {
				starting <- struct{}{}
				<-ctx.Done()
			}
			return ctx.Err()
		}
		f := w.pfard()
		id := begins(t, f, ordered("uid 0", "a", "token"))
		<-starting
		var next string
		switch c.by {
		case "cancel":
			if _, err := f.Supply(Answer{FlowAnswer: control.FlowAnswer{ID: id, Cancel: true}}); err != nil {
				t.Fatal(err)
			}
		case "another":
			next = begins(t, f, ordered("uid 0", "a", "token"))
		case "clock":
			w.mu.Lock()
			early := w.alarm.Sub(w.now)
			w.mu.Unlock()
			f.Due() // the clock was set
			if now, _ := f.look(id); now.State != control.FlowSpawning || early != setup.StartTime {
				t.Errorf("before its time it is %+v, and %s are left", now, early)
			}
			w.mu.Lock()
			w.now = w.alarm
			w.mu.Unlock()
			f.Due()
		}
		f.wait(id)
		now, err := f.look(id)
		if c.by != "another" && (err != nil || now.State != control.FlowFailed || now.Detail != c.detail) {
			t.Errorf("%s: it ended as %+v, %v", c.by, now, err)
		}
		want := "install, write, stop"
		if next != "" {
			f.wait(next)
			want += ", install, write, start, verify"
		}
		if got := w.list(); got != want {
			t.Errorf("%s: done %s", c.by, got)
		}
		w.nothingLeft()
	}
}

// TestUnderWay: who looks at all set-ups is told of each change, of no page's link, and of none that has ended.
func TestUnderWay(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	list, changed := UnderWay(f)
	if len(list) != 0 {
		t.Fatalf("at first: %+v", list)
	}
	next := func() control.Flow {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("nobody says that it has changed")
		}
		if list, changed = UnderWay(f); len(list) > 1 {
			t.Fatalf("there are %+v", list)
		}
		return append(list, control.Flow{})[0]
	}
	f.UsePages(&paper{})
	o := ordered("uid 0", "a", "token")
	o.Flow.Page = true
	id := begins(t, f, o)
	now := next()
	for !now.Paged {
		now = next()
	}
	if now.ID != id || now.Page != "" || now.Wants == nil || now.Deadline.IsZero() {
		t.Errorf("while it waits: %+v", now)
	}
	if _, err := f.Supply(Answer{FlowAnswer: control.FlowAnswer{ID: id, Cancel: true}}); err != nil {
		t.Fatal(err)
	}
	for next().ID != "" {
	}
}

// TestDeadline: nobody answers for ten minutes.
func TestDeadline(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	until(t, f, id, control.AwaitingCredential)
	w.mu.Lock()
	left := w.alarm.Sub(w.now)
	w.now = w.alarm
	w.mu.Unlock()
	f.Due()
	f.wait(id)
	now, err := f.look(id)
	if err != nil || now.Detail != "nobody gave TOKEN within 10 minutes" || left != 10*time.Minute || w.list() != "" {
		t.Errorf("%+v, %v after %s; done %s", now, err, left, w.list())
	}
	until(t, f, id, control.FlowFailed) // who follows it late is told how it ended
	if _, err := f.Of("uid 0"); !errors.Is(err, control.ErrNoFlow) ||
		!strings.Contains(err.Error(), "nobody gave TOKEN") {
		t.Errorf("who joins is told %v", err)
	}
}

// TestPrincipals: each has one flow, and no two set up one server. A client keeps nobody from that.
func TestPrincipals(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	client := func(name, server string) Order {
		o := ordered("client "+name, server, "token")
		o.Client, o.Flow.Consent = true, true
		return o
	}
	a := begins(t, f, ordered("uid 0", "a", "token"))
	b := begins(t, f, client("one", "b"))
	if _, err := f.Begin(client("two", "a")); !errors.Is(err, control.ErrBusy) {
		t.Errorf("a client begins what the operator has: %v", err)
	}
	if _, err := f.Begin(client("two", "b")); !errors.Is(err, control.ErrBusy) {
		t.Errorf("a client begins what another one has: %v", err)
	}
	for principal, want := range map[string]string{"uid 0": a, "client one": b} {
		if id, err := f.Of(principal); err != nil || id != want {
			t.Errorf("%s has %q, %v", principal, id, err)
		}
	}
	if _, err := f.Of("client two"); !errors.Is(err, control.ErrNoFlow) {
		t.Errorf("who has none: %v", err)
	}
	if _, err := f.Begin(ordered("uid 7", "a", "token")); !errors.Is(err, control.ErrBusy) {
		t.Errorf("one operator begins what another one has: %v", err)
	}
	c := begins(t, f, ordered("uid 7", "c", "token"))
	for range 9 { // in whatever order they are looked at
		if _, err := f.Begin(ordered("uid 7", "a", "token")); !errors.Is(err, control.ErrBusy) {
			t.Errorf("one operator begins what another one has: %v", err)
		}
	}
	until(t, f, c, control.AwaitingCredential)            // and its own goes on
	again := begins(t, f, ordered("uid 0", "b", "token")) // ends a, which is its own, and b, which is a client's
	for _, id := range []string{a, b} {
		if now, err := f.look(id); err == nil && now.State != control.FlowFailed {
			t.Errorf("%+v goes on", now)
		}
	}
	until(t, f, again, control.AwaitingCredential)

	w = newWorld(t)
	f = w.pfard()
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() { // many at once
			o := ordered(fmt.Sprint("uid ", n%4), fmt.Sprint("s", n%5), "token")
			id, err := f.Begin(o)
			if err != nil && !errors.Is(err, control.ErrBusy) {
				t.Error(err)
			}
			if n%3 == 0 && err == nil {
				_ = supplies(f, id, "hunter2")
			}
		})
	}
	all.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	principals, servers := map[string]bool{}, map[string]bool{}
	for _, r := range f.of {
		o := r.order.Flow
		if principals[o.Principal] || servers[o.Server] {
			t.Errorf("%s and %s have two flows", o.Principal, o.Server)
		}
		principals[o.Principal], servers[o.Server] = true, true
	}
}

// TestRestart: pfard is killed before and after each thing that a set-up does, and what was said of that is lost. The
// next one goes on to the end, and whoever asks for the value again is asked once.
func TestRestart(t *testing.T) {
	for _, at := range []string{"asked", "store token", "install", "write", "start", "verify", "stop"} {
		for _, when := range []string{"before", "after"} {
			w := newWorld(t)
			if at == "stop" {
				w.tools = 0
			}
			reached, killed := make(chan struct{}), make(chan struct{})
			var one sync.Once
			kill := func(_ context.Context, what string) error {
				dead := false
				if what == at {
					one.Do(func() { dead = true })
				}
				if dead {
					close(reached)
					<-killed
					return errors.New("nobody hears this")
				}
				return nil
			}
			if when == "before" {
				w.before = kill
			} else {
				w.after = kill
			}
			f := w.pfard()
			id := begins(t, f, ordered("uid 0", "a", "token"))
			until(t, f, id, control.AwaitingCredential)
			go func() {
				if at != "asked" {
					_ = supplies(f, id, "hunter2")
					return
				}
				close(reached)
			}()
			<-reached
			f.Close()
			close(killed)

			next := w.pfard()
			next.Resume()
			if got, err := next.Of("uid 0"); err == nil && got != id {
				t.Fatalf("%s %s: it is %q", when, at, got)
			}
			lost := at == "asked" || at == "store token" && when == "before"
			if lost {
				until(t, next, id, control.AwaitingCredential)
				if err := supplies(next, id, "hunter2"); err != nil {
					t.Fatalf("%s %s: %v", when, at, err)
				}
			}
			next.wait(id)
			now, err := next.look(id)
			want := control.FlowComplete
			if at == "stop" {
				want = control.FlowFailed
			}
			if err != nil || now.State != want {
				t.Errorf("%s %s: it ended as %+v, %v", when, at, now, err)
			}
			w.mu.Lock()
			if w.vault["token"] != "hunter2" || !w.declared["a"] || w.runs["a"] != (want == control.FlowComplete) {
				t.Errorf("%s %s: vault %v, declared %v, runs %v", when, at, w.vault, w.declared, w.runs)
			}
			w.mu.Unlock()
			w.nothingLeft()
		}
	}
}

// TestLateRestart: the time of a person goes on while no pfard runs.
func TestLateRestart(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	f.Close()
	if err := supplies(f, id, "hunter2"); !errors.Is(err, errEnding) {
		t.Errorf("a value for a pfard that ends: %v", err)
	}
	w.now = w.now.Add(setup.PersonTime)
	next := w.pfard()
	next.Resume()
	next.wait(id)
	if now, err := next.look(id); err != nil || now.Detail != "nobody gave TOKEN within 10 minutes" ||
		len(w.vault) > 0 {
		t.Errorf("%+v, %v, %v", now, err, w.vault)
	}
	w.nothingLeft()
}

// TestStrangeFiles: what cannot be gone on with is removed and recorded, and does not keep pfard from others.
func TestStrangeFiles(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	f.Close()
	for name, text := range map[string]string{
		"torn.json": `{"format":1,"flo`, "newer.json": `{"format":2,"flow":{"id":"newer"}}`, ".new-1": "x", "other": "",
		"wrong.json": `{"format":1,"flow":{"id":"x"}}`, "beyond.json": `{"format":1,"flow":{"id":"beyond","at":7}}`,
	} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := w.pfard()
	next.Resume()
	until(t, next, id, control.AwaitingCredential)
	left, err := os.ReadDir(w.dir)
	if len(left) != 1 || err != nil || left[0].Name() != id+".json" || w.recorded() != "begin, fail, fail, fail, fail" {
		t.Errorf("left %v, %v; recorded %s", left, err, w.recorded())
	}
	text, err := os.ReadFile(filepath.Join(w.dir, left[0].Name()))
	if info, serr := left[0].Info(); err != nil || serr != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: %s", err, serr, text)
	}
}

// TestFullDisk: each write of a flow's file fails once. Nothing is done then that was not written down: whoever asked
// is told, or the set-up fails in words, and what runs is stopped.
func TestFullDisk(t *testing.T) {
	writes := 0
	for n := 0; n <= writes; n++ { // the first round counts them
		w := newWorld(t)
		f := w.pfard()
		count := 0
		write := f.kept.write
		f.kept.write = func(path string, text []byte) error {
			if strings.Contains(string(text), "hunter2") {
				t.Errorf("the file has the value: %s", text)
			}
			if count++; count == n {
				return unix.ENOSPC
			}
			return write(path, text)
		}
		id, err := f.Begin(ordered("uid 0", "a", "token"))
		if err != nil {
			if n != 1 || !errors.Is(err, unix.ENOSPC) || w.list() != "" {
				t.Errorf("write %d: begin: %v", n, err)
			}
			w.nothingThere()
			continue
		}
		until(t, f, id, control.AwaitingCredential)
		for tries := 0; ; tries++ {
			err := supplies(f, id, "hunter2")
			if err == nil || tries > 0 {
				break
			}
			if !errors.Is(err, unix.ENOSPC) || w.list() != "" {
				t.Errorf("write %d: supply: %v, done %s", n, err, w.list())
			}
		}
		f.wait(id)
		now, err := f.look(id)
		if err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		if n == 0 {
			writes = count
		}
		if now.State == control.FlowFailed && (!strings.Contains(now.Detail, "no space left") || w.runs["a"]) {
			t.Errorf("write %d: it ended as %+v, runs %v", n, now, w.runs)
		}
		w.nothingLeft()
	}
	if writes < 6 {
		t.Errorf("only %d writes", writes)
	}
}

// nothingThere wants no file of a flow, whether or not there is the folder.
func (w *world) nothingThere() {
	w.t.Helper()
	if left, _ := os.ReadDir(w.dir); len(left) > 0 {
		w.t.Errorf("left: %v", left)
	}
}

// paper is pages of which nothing is seen.
type paper struct {
	mu     sync.Mutex
	open   []string
	closed []string
	err    error
}

func (p *paper) Open(o Order) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, o.Flow.Server)
	return fmt.Sprintf("http://127.0.0.1:1/%s/%d", o.Flow.Server, len(p.open)), p.err
}

func (p *paper) Close(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = append(p.closed, id)
}

// TestPage: a client's set-up opens a page and does nothing before a person has used it, also when nothing is missing.
// Only who may is told where the page is.
func TestPage(t *testing.T) {
	w := newWorld(t)
	w.vault["token"] = "x"
	f, p := w.pfard(), &paper{}
	f.UsePages(p)
	o := ordered("client one", "a", "token")
	o.Client, o.Flow.Page, o.Flow.Consent = true, true, true
	id := begins(t, f, o)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := errors.New("seen")
	for _, with := range []bool{true, false} {
		err := f.Follow(ctx, id, true, func(now control.Flow) error {
			if now.Page != "" {
				return seen
			}
			return nil
		})
		if !errors.Is(err, seen) {
			t.Fatal(err)
		}
		err = f.Follow(ctx, id, with, func(now control.Flow) error {
			if now.Wants != nil || now.State != control.AwaitingCredential || (now.Page != "") != with {
				t.Errorf("it is %+v", now)
			}
			return seen
		})
		if !errors.Is(err, seen) {
			t.Fatal(err)
		}
	}
	if w.list() != "" {
		t.Errorf("done before anybody consented: %s", w.list())
	}
	if err := supplies(f, id, "hunter2"); !errors.Is(err, control.ErrInvalid) || w.vault["token"] != "x" {
		t.Errorf("a value that nobody asked for: %v", err)
	}
	if now, err := f.Supply(Answer{FlowAnswer: control.FlowAnswer{ID: id}}); err != nil || now.Page != "" {
		t.Errorf("consent: %+v, %v", now, err)
	}
	f.wait(id)
	got := w.list()
	if got != "install, write, start, verify" || !slices.Equal(p.closed, []string{id}) || len(p.open) != 1 {
		t.Errorf("done %s; pages %+v", got, p)
	}
	id = begins(t, f, o)
	until(t, f, id, control.AwaitingCredential)
	f.Lost(id, "its page was closed")
	f.wait(id)
	if now, _ := f.look(id); now.Detail != "its page was closed" {
		t.Errorf("without its page it is %+v", now)
	}
	p.err = errors.New("no port")
	id = begins(t, f, o)
	f.wait(id)
	if now, _ := f.look(id); !strings.Contains(now.Detail, "no port") {
		t.Errorf("whose page does not open: %+v", now)
	}
}

// TestPageLostAtWork: a page that closes while nobody is asked ends nothing. Its link is told no more, and what is
// asked next has another page.
func TestPageLostAtWork(t *testing.T) {
	w := newWorld(t)
	w.proof = Proof{Result: units.Invalid, Words: "no"}
	verifies, goOn := make(chan struct{}), make(chan struct{})
	w.before = func(_ context.Context, what string) error {
		if what == "verify" {
			verifies <- struct{}{}
			<-goOn
		}
		return nil
	}
	f, p := w.pfard(), &paper{}
	f.UsePages(p)
	o := ordered("client one", "a", "token")
	o.Client, o.Flow.Page, o.Flow.Consent = true, true, true
	id := begins(t, f, o)
	linked := func(than string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		link, enough := "", errors.New("enough")
		err := f.Follow(ctx, id, true, func(now control.Flow) error {
			if link = now.Page; now.Wants != nil && link != "" && link != than {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatalf("the link is %q, %v", link, err)
		}
		return link
	}
	first := linked("")
	if err := supplies(f, id, "hunter2"); err != nil {
		t.Fatal(err)
	}
	<-verifies
	f.Lost(id, "its page was closed")
	if now := until(t, f, id, control.FlowVerifying); now.Page != "" {
		t.Errorf("a page that has closed is told: %+v", now)
	}
	goOn <- struct{}{}
	if second := linked(first); len(p.open) != 2 || second == first {
		t.Errorf("%d pages, the link is %s", len(p.open), second)
	}
	if now := until(t, f, id, control.CredentialRefused); now.Attempts != 1 {
		t.Errorf("it is %+v", now)
	}
}

// TestUnrecorded: what cannot be recorded is not begun.
func TestUnrecorded(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	f.Records = mute{}
	if _, err := f.Begin(ordered("uid 0", "a")); err == nil || w.list() != "" {
		t.Errorf("begun: %v, done %s", err, w.list())
	}
	w.nothingThere()
	if _, err := f.Of("uid 0"); !errors.Is(err, control.ErrNoFlow) {
		t.Error(err)
	}
}

type mute struct{}

func (mute) Append(audit.Record) error { return errors.New("full") }
func (mute) Clean(text string) string  { return text }

// TestLately: who joins late is told of an end for a minute.
func TestLately(t *testing.T) {
	w := newWorld(t)
	f := w.pfard()
	id := begins(t, f, ordered("uid 0", "a", "token"))
	if got := Lately(f, "uid 0"); got != "" {
		t.Errorf("under way: %q", got)
	}
	if _, err := f.Supply(Answer{FlowAnswer: control.FlowAnswer{ID: id, Cancel: true}}); err != nil {
		t.Fatal(err)
	}
	f.wait(id)
	for _, c := range []struct {
		later     time.Duration
		principal string
		want      string
	}{{0, "uid 0", id}, {0, "uid 1", ""}, {59 * time.Second, "uid 0", id}, {time.Second, "uid 0", ""}} {
		w.mu.Lock()
		w.now = w.now.Add(c.later)
		w.mu.Unlock()
		if got := Lately(f, c.principal); got != c.want {
			t.Errorf("%s later, %s: %q, want %q", c.later, c.principal, got, c.want)
		}
	}
}
