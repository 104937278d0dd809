package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const (
	own    = "description = %q\nsessions = \"own\"\nsessions_max = 2\nserver {\n  command = \"sh\"\n}\n"
	first  = "aaaaaaaa"
	second = "bbbbbbbb"
	third  = "cccccccc"
)

// ownFixture is a daemon with the server a, each of whose sessions has a process of its own.
func ownFixture(t *testing.T) (*daemon, *machine, chan struct{}) {
	t.Helper()
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(own, "x"))
	changed <- struct{}{}
	d.state(t)
	return d, m, changed
}

// request asks as the gateway does.
func request(ctx context.Context, d *daemon, verb control.Verb, server, session string) error {
	q := control.Request{Verb: verb, Server: server, Session: session}
	return d.answer(ctx, control.Peer{}, q, func(control.Response) error { return nil })
}

func (d *daemon) openNow(t *testing.T, server, session string) error {
	t.Helper()
	return request(t.Context(), d, control.Open, server, session)
}

func (d *daemon) mustOpen(t *testing.T, server, session string) {
	t.Helper()
	if err := d.openNow(t, server, session); err != nil {
		t.Fatalf("opening %s of %s: %v", session, server, err)
	}
}

func (d *daemon) mustClose(t *testing.T, server, session string) {
	t.Helper()
	if err := request(t.Context(), d, control.Close, server, session); err != nil {
		t.Fatalf("closing %s of %s: %v", session, server, err)
	}
}

func expect(t *testing.T, m *machine, want ...string) {
	t.Helper()
	if got := m.instances(); !slices.Equal(got, want) {
		t.Errorf("running %q, want %q", got, want)
	}
}

// TestASessionsTokenIsRefused: the server's own process has the same token, and says as any other whether a person is
// to sign in.
func TestASessionsTokenIsRefused(t *testing.T) {
	d, m, _ := ownFixture(t)
	d.mustOpen(t, "a", first)
	starts := m.count("a")
	wait := units.Wait{For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "a")}
	for range 2 {
		d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateWaiting, Wait: wait})
	}
	d.state(t)
	if n := m.count("a"); n != starts+1 {
		t.Errorf("the server was started %d times, then %d", starts, n)
	}
}

// unserved are ways in which a session's process ends before it serves, and what is said then.
var unserved = map[string]struct {
	update units.Update
	says   string
	login  bool
}{
	"the token is refused": {units.Update{
		State: units.StateWaiting, Detail: "pfar login a: HTTP 401",
		Wait: units.Wait{For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "a")},
	}, "pfar login a: HTTP 401", true},
	"it dies": {units.Update{State: units.StateFailed, Detail: "exit status 1", Ended: true}, "exit status 1", false},
}

// fails has a session's process end as in unserved.
func (d *daemon) fails(t *testing.T, how, session string) {
	t.Helper()
	u := unserved[how].update
	u.Server, u.Session = "a", session
	d.fleet.changed(u)
	d.state(t)
}

// mustWait wants that no session gets a process, and that clients and the owner hear why.
func (d *daemon) mustWait(t *testing.T, m *machine, how, pause string) {
	t.Helper()
	err := d.openNow(t, "a", second)
	const format = "no session gets a process of its own for %s after the last one failed: %s"
	want := unserved[how]
	says := fmt.Sprintf(format, pause, want.says)
	refused, ok := errors.AsType[*control.Refused](err)
	if !ok || !errors.Is(err, control.ErrDown) || !strings.Contains(err.Error(), says) ||
		refused.Wait.NeedsLogin() != want.login {
		t.Errorf("in the pause: %v", err)
	}
	if s := d.state(t)["a"]; !strings.Contains(s.Detail, says) || len(s.Sessions) != 0 {
		t.Errorf("in the pause the owner sees %q, and %d sessions", s.Detail, len(s.Sessions))
	}
	if n := m.count("a_" + second); n != 0 {
		t.Errorf("in the pause %d processes were started", n)
	}
}

// TestSessionsAreNotBegunInALoop: what calls begin in vain is begun ever more rarely, until a process serves.
func TestSessionsAreNotBegunInALoop(t *testing.T) {
	for how := range unserved {
		t.Run(how, func(t *testing.T) {
			d, m, _ := ownFixture(t)
			var a alarms
			d.fleet.after = a.after
			words := []string{"1 s", "5 s", "30 s", "1 min", "5 min", "5 min"}
			for _, pause := range words {
				d.mustOpen(t, "a", first)
				d.fails(t, how, first)
				d.mustWait(t, m, how, pause)
				a.ring()
				if s := d.state(t)["a"]; strings.Contains(s.Detail, "after the last one failed") {
					t.Errorf("after the pause the owner sees %q", s.Detail)
				}
			}
			d.mustOpen(t, "a", first)
			d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateRunning, PID: 7})
			d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateFailed, Ended: true})
			d.state(t)
			d.mustOpen(t, "a", first) // one that has served is no reason to wait
			d.fails(t, how, first)
			d.mustWait(t, m, how, "1 s")
			if want := []time.Duration{1e9, 5e9, 30e9, 60e9, 300e9, 300e9, 1e9}; !slices.Equal(a.pauses, want) {
				t.Errorf("pauses %v, want %v", a.pauses, want)
			}
		})
	}
}

// TestSessionsFailTogether: those that were begun before the pause make it no longer, and one that serves ends it.
func TestSessionsFailTogether(t *testing.T) {
	d, _, _ := ownFixture(t)
	var a alarms
	d.fleet.after = a.after
	d.mustOpen(t, "a", first)
	d.mustOpen(t, "a", second)
	d.fails(t, "it dies", first)
	d.fails(t, "it dies", second)
	if len(a.pauses) != 1 {
		t.Errorf("pauses %v", a.pauses)
	}
	a.ring()
	d.state(t)
	d.mustOpen(t, "a", first)
	d.mustOpen(t, "a", second)
	d.fails(t, "it dies", first)
	late := a.ring
	d.fleet.changed(units.Update{Server: "a", Session: second, State: units.StateRunning, PID: 7})
	d.state(t)
	if a.ring != nil {
		t.Error("the timer runs on")
	}
	d.mustOpen(t, "a", first)
	d.fails(t, "it dies", first)
	late() // it was stopped in the moment that it rang
	if err := d.openNow(t, "a", first); !errors.Is(err, control.ErrDown) {
		t.Errorf("the end of one pause has ended the next one: %v", err)
	}
}

// TestThePauseEnds: what its owner does to a server may be what the sessions have lacked.
func TestThePauseEnds(t *testing.T) {
	const text = own + "auth = { TOKEN = \"vault:token\" }\n"
	verb := func(v control.Verb) func(*testing.T, *daemon, chan struct{}) {
		return func(t *testing.T, d *daemon, _ chan struct{}) { ask(t, d, control.Request{Verb: v, Server: "a"}) }
	}
	for name, do := range map[string]func(*testing.T, *daemon, chan struct{}){
		"pfar start":   verb(control.Start),
		"pfar restart": verb(control.Restart),
		"another file": func(t *testing.T, d *daemon, changed chan struct{}) {
			d.put(t, "a.hcl", fmt.Sprintf(text, "y"))
			changed <- struct{}{}
		},
		"another secret": func(t *testing.T, d *daemon, _ chan struct{}) {
			ask(t, d, control.Request{Verb: control.Rotate, Key: "token", Secret: "other"})
		},
	} {
		for how := range unserved {
			t.Run(name+", "+how, func(t *testing.T) {
				d, m, changed := fixture(t)
				var a alarms
				d.fleet.after = a.after
				d.put(t, "a.hcl", fmt.Sprintf(text, "x"))
				changed <- struct{}{}
				ask(t, d, control.Request{Verb: control.Store, Key: "token", Secret: "hunter2"})
				d.state(t)
				d.mustOpen(t, "a", first)
				d.fails(t, how, first)
				ask(t, d, control.Request{Verb: control.Store, Key: "unrelated", Secret: "x"})
				d.mustWait(t, m, how, "1 s")
				do(t, d, changed)
				d.state(t)
				if a.ring != nil {
					t.Error("the timer runs on")
				}
				d.mustOpen(t, "a", first)
			})
		}
	}
}

func TestSessionsThatAreRefused(t *testing.T) {
	d, m, changed := ownFixture(t)
	d.put(t, "shared.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "off.hcl", fmt.Sprintf(own, "x")+"enabled = false\n")
	d.put(t, "later.hcl", fmt.Sprintf(own, "x")+"autostart = false\n")
	d.put(t, "waits.hcl", fmt.Sprintf(own, "x")+"auth = { TOKEN = \"vault:none\" }\n")
	d.put(t, "failed.hcl", fmt.Sprintf(own, "x"))
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "failed", State: units.StateFailed, Detail: "disabled after 3 crashes in a row"})
	d.mustOpen(t, "a", first)
	for _, tt := range []struct {
		name, server, session string
		want                  error
		says                  string
	}{
		{"unknown server", "none", second, control.ErrNoServer, `"none"`},
		{"no server named", "", second, control.ErrNoServer, `""`},
		{"an instance as a server", "a_" + first, second, control.ErrNoServer, first},
		{"one process for all", "shared", second, control.ErrShared, `sessions = "own"`},
		{"disabled", "off", second, control.ErrDisabled, "off.hcl"},
		{"not started", "later", second, control.ErrDown, "sleeping: starts with the first call"},
		{"waiting", "waits", second, control.ErrDown, "pfar vault set none"},
		{"failed", "failed", second, control.ErrDown, "3 crashes"},
		{"no handle", "a", "", control.ErrInvalid, "8 characters"},
		{"a path as a handle", "a", "../../..", control.ErrInvalid, "8 characters"},
		{"a handle in capitals", "a", strings.ToUpper(second), control.ErrInvalid, "8 characters"},
		{"open already", "a", first, control.ErrOpen, first},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := d.openNow(t, tt.server, tt.session)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.says)
			}
		})
	}
	d.mustOpen(t, "a", second)
	if err := d.openNow(t, "a", third); !errors.Is(err, control.ErrBusy) || !strings.Contains(err.Error(), "sessions_max") {
		t.Errorf("one more than there may be: %v", err)
	}
	expect(t, m, "a", "a_"+first, "a_"+second, "failed", "shared")
}

func TestASession(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(own, "x")+`auth = { TOKEN = "vault:token" }`+"\n")
	changed <- struct{}{}
	ask(t, d, control.Request{Verb: control.Store, Key: "token", Secret: "hunter2"})
	d.state(t)
	d.mustOpen(t, "a", first)
	p, main := m.runs["a_"+first], m.runs["a"]
	if p.Name != "a" || p.Gateway.Name != "a" || p.Gateway.Session != first || main.Gateway.Session != "" {
		t.Errorf("session's plan of %q for the gateway's %q and %q; the server's own for %q", p.Name, p.Gateway.Name, p.Gateway.Session, main.Gateway.Session)
	}
	p.Gateway.Session = ""
	if fmt.Sprintf("%+v", p) != fmt.Sprintf("%+v", main) || m.secret["a_"+first] != m.secret["a"] || !strings.Contains(m.secret["a"], "hunter2") {
		t.Errorf("a session's process differs from the server's own:\n%+v %s\n%+v %s", p, m.secret["a_"+first], main, m.secret["a"])
	}
	s := d.state(t)["a"]
	if len(s.Sessions) != 1 || s.Sessions[0].Handle != first || s.Sessions[0].PID != 7 || s.Sessions[0].UID != 61184 || s.SessionsMax != 2 || s.PID != 0 {
		t.Errorf("report %+v", s)
	}
	d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateRunning, PID: 7, Tools: 5, Refusal: egress.Refusal{Host: "x:443", Reason: egress.NameNotDeclared}})
	d.fleet.changed(units.Update{Server: "a", Session: second, State: units.StateFailed, Ended: true}) // none that there is
	if s := d.state(t)["a"]; s.State != control.Starting || s.Tools != 0 || s.Sessions[0].State != control.Running || s.LastRefusal == "" {
		t.Errorf("after news of the session: %+v", s)
	}
	d.mustClose(t, "a", second)
	d.mustClose(t, "none", first)
	if d.state(t); len(m.instances()) != 2 {
		t.Errorf("running %q after others were closed", m.instances())
	}
	d.mustClose(t, "a", first)
	d.mustClose(t, "a", first)
	if s := d.state(t)["a"]; len(s.Sessions) != 0 {
		t.Errorf("after the close: %+v", s.Sessions)
	}
	expect(t, m, "a")
	if err := request(t.Context(), d, control.Close, "a", "../etc"); !errors.Is(err, control.ErrInvalid) {
		t.Errorf("closing what is no handle: %v", err)
	}
	d.mustOpen(t, "a", first) // nothing is left that would be in the way
	if m.starts["a"] != 1 {
		t.Errorf("the server itself was started %d times", m.starts["a"])
	}
	if err := os.WriteFile(filepath.Join(d.options.declarations, "b.hcl"), []byte(fmt.Sprintf(good, "y")), 0o644); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	d.state(t)
	expect(t, m, "a", "a_"+first, "b")
}

func TestWhatEndsAServerEndsItsSessions(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(t *testing.T, d *daemon)
		want []string
	}{
		"stop":    {func(t *testing.T, d *daemon) { ask(t, d, control.Request{Verb: control.Stop, Server: "a"}) }, nil},
		"restart": {func(t *testing.T, d *daemon) { ask(t, d, control.Request{Verb: control.Restart, Server: "a"}) }, []string{"a"}},
		"edit":    {func(t *testing.T, d *daemon) { d.put(t, "a.hcl", fmt.Sprintf(own, "y")) }, []string{"a"}},
		"shared":  {func(t *testing.T, d *daemon) { d.put(t, "a.hcl", fmt.Sprintf(good, "x")) }, []string{"a"}},
		"disable": {func(t *testing.T, d *daemon) { d.put(t, "a.hcl", fmt.Sprintf(own, "x")+"enabled = false\n") }, nil},
		"remove": {func(t *testing.T, d *daemon) {
			if err := os.Remove(filepath.Join(d.options.declarations, "a.hcl")); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"learning": {func(t *testing.T, d *daemon) {
			if _, err := d.learnNow(t, "a"); err != nil {
				t.Fatal(err)
			}
		}, []string{"a"}},
		"a broken edit":     {func(t *testing.T, d *daemon) { d.put(t, "a.hcl", "server {") }, []string{"a", "a_" + first, "a_" + second}},
		"an unneeded start": {func(t *testing.T, d *daemon) { ask(t, d, control.Request{Verb: control.Start, Server: "a"}) }, []string{"a", "a_" + first, "a_" + second}},
	} {
		t.Run(name, func(t *testing.T) {
			d, m, changed := ownFixture(t)
			m.slow = time.Millisecond
			d.mustOpen(t, "a", first)
			d.mustOpen(t, "a", second)
			d.mustClose(t, "a", second) // on its way already, or not: it must be gone before the server starts again
			if len(tt.want) == 3 {
				d.state(t)
				d.mustOpen(t, "a", second)
			}
			tt.do(t, d)
			changed <- struct{}{}
			d.state(t)
			expect(t, m, tt.want...)
		})
	}
}

// A server begins anew when the last of its sessions has gone, not before.
func TestARestartWaitsForTheSessions(t *testing.T) {
	d, m, _ := ownFixture(t)
	leave := make(chan struct{})
	m.gate = func(instance string) {
		if instance == "a_"+first {
			<-leave
		}
	}
	d.mustOpen(t, "a", first)
	ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
	for { // until the server itself has gone
		if err := d.openNow(t, "a", second); !errors.Is(err, control.ErrDown) {
			t.Fatalf("opened while the server ends: %v", err)
		}
		if len(m.instances()) == 1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	expect(t, m, "a_"+first)
	close(leave)
	d.state(t)
	expect(t, m, "a")
	if m.starts["a"] != 2 {
		t.Errorf("%d starts, want 2", m.starts["a"])
	}
}

func TestASessionThatEndsIsForgotten(t *testing.T) {
	d, m, _ := ownFixture(t)
	d.mustOpen(t, "a", first)
	d.mustOpen(t, "a", second)
	d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateRunning, PID: 7})
	d.fleet.changed(units.Update{Server: "a", Session: first, State: units.StateFailed, Detail: "exit status 1", Ended: true})
	if s := d.state(t)["a"]; len(s.Sessions) != 1 || s.Sessions[0].Handle != second || s.State != control.Starting {
		t.Errorf("after a crash: %+v", s)
	}
	expect(t, m, "a", "a_"+second)
	if m.starts["a_"+first] != 1 {
		t.Errorf("started %d times", m.starts["a_"+first])
	}
	d.mustOpen(t, "a", third) // there is room again
	m.mu.Lock()
	m.broken = true
	m.mu.Unlock()
	d.mustClose(t, "a", third)
	if err := d.openNow(t, "a", first); !errors.Is(err, control.ErrDown) || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("a process that cannot be started: %v", err)
	}
	d.state(t)
	expect(t, m, "a", "a_"+second)
}

// What is being stopped counts: a client that comes and goes must not have more processes than there may be.
func TestASessionThatLeavesTakesItsPlace(t *testing.T) {
	d, m, _ := ownFixture(t)
	leave := make(chan struct{})
	m.gate = func(string) { <-leave }
	d.mustOpen(t, "a", first)
	d.mustOpen(t, "a", second)
	d.mustClose(t, "a", first)
	if err := d.openNow(t, "a", first); !errors.Is(err, control.ErrOpen) {
		t.Errorf("opening what is not gone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	impatient, patient := make(chan error, 1), make(chan error, 1)
	go func() { impatient <- request(ctx, d, control.Open, "a", third) }()
	cancel()
	if err := <-impatient; !errors.Is(err, control.ErrBusy) && !errors.Is(err, context.Canceled) {
		t.Errorf("one that did not wait: %v", err)
	}
	go func() { patient <- d.openNow(t, "a", third) }()
	d.reportNow(t)
	expect(t, m, "a", "a_"+first, "a_"+second)
	close(leave)
	if err := <-patient; err != nil {
		t.Errorf("one that waited for a place: %v", err)
	}
	d.state(t)
	expect(t, m, "a", "a_"+second, "a_"+third)
}

// Nobody would ever close what was opened for a gateway that did not wait for it.
func TestWhoeverAskedHasLeft(t *testing.T) {
	d, m, _ := ownFixture(t)
	updates := make(chan units.Update, 1)
	m.tell = func(u units.Update) { updates <- u } // and nothing is said of a process
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- request(ctx, d, control.Open, "a", first) }()
	<-updates
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s := d.state(t)["a"]; len(s.Sessions) != 0 {
		t.Errorf("left open: %+v", s.Sessions)
	}
	expect(t, m, "a")
}

// TestRandomWalkOfSessions: whatever comes, sessions run only beside their server, each once, never more than there may
// be, and nothing is kept of one that has ended.
func TestRandomWalkOfSessions(t *testing.T) {
	d, m, changed := fixture(t)
	m.slow = time.Millisecond
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	handles := []string{first, second, third, "dddddddd"}
	servers := []string{"a", "b"}
	up, sessions := map[string]bool{}, map[string]map[string]bool{"a": {}, "b": {}}
	for step := range 400 {
		name, handle := servers[r.IntN(2)], handles[r.IntN(len(handles))]
		all := sessions[name]
		switch r.IntN(10) {
		case 0:
			d.put(t, name+".hcl", fmt.Sprintf(own, fmt.Sprint(step)))
			changed <- struct{}{}
			d.reportNow(t)
			up[name] = true
			clear(all)
		case 1:
			os.Remove(filepath.Join(d.options.declarations, name+".hcl"))
			changed <- struct{}{}
			d.reportNow(t)
			up[name] = false
			clear(all)
		case 2:
			verb := []control.Verb{control.Start, control.Stop, control.Restart}[r.IntN(3)]
			if err := request(t.Context(), d, verb, name, ""); err == nil {
				up[name] = verb != control.Stop
				if verb != control.Start {
					clear(all)
				}
			}
		case 3, 4:
			d.mustClose(t, name, handle)
			delete(all, handle)
		case 5:
			d.fleet.changed(units.Update{Server: name, Session: handle, State: units.StateRunning, PID: 7})
			d.fleet.changed(units.Update{Server: name, Session: handle, State: units.StateFailed, Ended: true})
			delete(all, handle)
		default:
			d.state(t)
			switch err := d.openNow(t, name, handle); {
			case err == nil:
				if !up[name] || all[handle] || len(all) >= 2 {
					t.Fatalf("step %d: opened %s of %s, up %v, with %v", step, handle, name, up[name], all)
				}
				all[handle] = true
			case !up[name] && (errors.Is(err, control.ErrDown) || errors.Is(err, control.ErrNoServer)),
				all[handle] && errors.Is(err, control.ErrOpen), len(all) >= 2 && errors.Is(err, control.ErrBusy):
			default:
				t.Fatalf("step %d: opening %s of %s, up %v, with %v: %v", step, handle, name, up[name], all, err)
			}
		}
		if step%4 != 3 {
			continue
		}
		d.state(t)
		var want []string
		for _, n := range servers {
			if up[n] {
				want = append(want, n)
			}
			for h := range sessions[n] {
				want = append(want, units.Instance(n, h))
			}
		}
		slices.Sort(want)
		if got := m.instances(); !slices.Equal(got, want) {
			t.Fatalf("step %d: running %q, want %q", step, got, want)
		}
	}
}
