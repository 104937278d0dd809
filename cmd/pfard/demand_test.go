package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/systemd"
)

const idle = "idle_timeout = \"5m\"\n"

// up has the runner say that a server runs, once its launcher is under way.
func (d *daemon) up(t *testing.T, name string) {
	t.Helper()
	for d.state(t)[name].PID == 0 {
		time.Sleep(time.Millisecond)
	}
	d.fleet.changed(units.Update{Server: name, State: units.StateRunning, PID: 7})
	if s := d.state(t)[name]; s.State != control.Running {
		t.Fatalf("%s: %s", name, s.State)
	}
}

func demand(t *testing.T, d *daemon, verb control.Verb, name string) error {
	t.Helper()
	return request(t.Context(), d, verb, name, "")
}

// TestOnDemand: each step, and the state and number of starts after it.
func TestOnDemand(t *testing.T) {
	type step struct {
		do, want string
		err      error
	}
	const credential = "auth = { TOKEN = \"vault:a_token\" }\n"
	for _, tt := range []struct {
		name  string
		extra string // of the declaration
		steps []step
	}{
		{"idle", idle, []step{{"", "starting 1", nil}, {"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"wake", "starting 2", nil}, {"up", "running 2", nil}, {"sleep", "sleeping 2", nil}}},
		{"asleep from the beginning", "autostart = false\n" + idle, []step{{"", "sleeping 0", nil}, {"wake", "starting 1", nil}, {"up", "running 1", nil}, {"sleep", "sleeping 1", nil}}},
		{"without idle_timeout", "autostart = false\n", []step{{"", "sleeping 0", nil}, {"wake", "starting 1", nil}, {"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"wake", "starting 2", nil}}},
		{"not on demand", "", []step{{"up", "running 1", nil}, {"sleep", "running 1", control.ErrInvalid}, {"wake", "running 1", nil}}},
		{"waking what runs", idle, []step{{"up", "running 1", nil}, {"wake", "running 1", nil}}},
		{"sleeping twice", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"sleep", "sleeping 1", nil}}},
		{"not while it starts", idle, []step{{"sleep", "starting 1", control.ErrDown}}},
		{"stopped by the operator", idle, []step{{"up", "running 1", nil}, {"stop", "stopped 1", nil}, {"wake", "stopped 1", control.ErrStopped}, {"start", "starting 2", nil}, {"up", "running 2", nil}, {"sleep", "sleeping 2", nil}}},
		{"stopped while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"stop", "stopped 1", nil}, {"wake", "stopped 1", control.ErrStopped}, {"look", "stopped 1", nil}}},
		{"started while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"start", "starting 2", nil}}},
		{"restarted while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"restart", "starting 2", nil}}},
		{"an unrelated event", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"look", "sleeping 1", nil}}},
		{"a changed file starts it", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"edit", "starting 2", nil}}},
		{"a changed file puts it to sleep", "autostart = false\n" + idle, []step{{"wake", "starting 1", nil}, {"up", "running 1", nil}, {"edit", "sleeping 1", nil}, {"wake", "starting 2", nil}}},
		{"disabled while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"disable", "stopped 1", nil}, {"wake", "stopped 1", control.ErrDisabled}, {"sleep", "stopped 1", control.ErrDisabled}}},
		{"removed while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"remove", " 1", nil}, {"wake", " 1", control.ErrNoServer}}},
		{"broken while it sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"break", "sleeping 1", nil}, {"wake", "starting 2", nil}}},
		{"crashed", idle, []step{{"up", "running 1", nil}, {"crash", "back-off 1", nil}, {"sleep", "back-off 1", control.ErrDown}, {"wake", "back-off 1", control.ErrDown}, {"again", "starting 1", nil}, {"up", "running 1", nil}, {"sleep", "sleeping 1", nil}}},
		{"failed", idle, []step{{"up", "running 1", nil}, {"fail", "failed 1", nil}, {"sleep", "failed 1", control.ErrDown}, {"wake", "failed 1", control.ErrDown}, {"start", "starting 2", nil}}},
		{"offline", "", []step{
			{"up", "running 1", nil}, {"offline", "offline 1", nil}, {"wake", "offline 1", nil}, {"again", "starting 1", nil},
			{"offline", "offline 1", nil}, {"stop", "stopped 1", nil}, {"wake", "stopped 1", control.ErrStopped},
		}},
		{"learning", idle, []step{{"up", "running 1", nil}, {"learn", "starting 2", nil}, {"up", "running 2", nil}, {"sleep", "running 2", control.ErrBusy}, {"hang up", "starting 3", nil}}},
		{"learning what sleeps", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"learn", "starting 2", nil}, {"hang up", "sleeping 2", nil}}},
		{"woken while somebody learns", idle, []step{{"up", "running 1", nil}, {"sleep", "sleeping 1", nil}, {"learn", "starting 2", nil}, {"wake", "starting 2", nil}, {"hang up", "starting 3", nil}}},
		{"no credential", "autostart = false\n" + idle + credential, []step{{"", "sleeping 0", nil}, {"wake", "waiting 0", control.ErrDown}, {"wake", "waiting 0", control.ErrDown}, {"store", "starting 1", nil}}},
		{"a credential meanwhile", "autostart = false\n" + idle + credential, []step{{"wake", "waiting 0", control.ErrDown}, {"store unseen", "waiting 0", nil}, {"wake", "starting 1", nil}}},
		{"stopped while it waits", "autostart = false\n" + idle + credential, []step{{"wake", "waiting 0", control.ErrDown}, {"stop", "stopped 0", nil}, {"wake", "stopped 0", control.ErrStopped}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, m, changed := fixture(t)
			m.loud = true
			write := func(text string) {
				d.put(t, "a.hcl", text)
				changed <- struct{}{}
			}
			write(fmt.Sprintf(good, "x") + tt.extra)
			d.state(t)
			var l *lesson
			for i, s := range tt.steps {
				var err error
				switch s.do {
				case "":
				case "up":
					d.up(t, "a")
				case "crash":
					d.fleet.changed(units.Update{Server: "a", State: units.StateBackOff, Detail: "5s after crash 1 of 3"})
				case "offline":
					wait := units.Wait{Until: time.Now().Add(time.Second)}
					d.fleet.changed(units.Update{Server: "a", State: units.StateOffline, PID: 7, Wait: wait})
				case "again":
					d.fleet.changed(units.Update{Server: "a", State: units.StateStarting, PID: 7})
				case "fail":
					d.fleet.changed(units.Update{Server: "a", State: units.StateFailed, Detail: "disabled after 3 crashes in a row"})
				case "wake", "sleep", "start", "stop", "restart":
					err = demand(t, d, control.Verb(s.do), "a")
				case "learn":
					l, err = d.learnNow(t, "a")
				case "hang up":
					l.hangUp()
					<-l.ended
				case "edit":
					write(fmt.Sprintf(good, "edited") + tt.extra)
				case "disable":
					write(fmt.Sprintf(good, "x") + tt.extra + "enabled = false\n")
				case "break":
					write("server {")
				case "remove":
					os.Remove(filepath.Join(d.options.declarations, "a.hcl"))
					changed <- struct{}{}
				case "look":
					changed <- struct{}{}
				case "store":
					ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
				case "store unseen":
					err = d.vault.Set("a_token", []byte("hunter2"))
				default:
					t.Fatalf("no such step: %q", s.do)
				}
				if !errors.Is(err, s.err) || err != nil && s.err == nil {
					t.Errorf("step %d, %q: %v, want %v", i+1, s.do, err, s.err)
				}
				r := d.state(t)["a"]
				if got := fmt.Sprint(r.State, " ", m.count("a")); got != s.want {
					t.Errorf("step %d, %q: %s (%s), want %s", i+1, s.do, got, r.Detail, s.want)
				}
			}
		})
	}
}

func TestWhyAServerSleeps(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+"autostart = false\n"+idle)
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	d.put(t, "c.hcl", fmt.Sprintf(good, "x")+"autostart = false\nauth = { TOKEN = \"vault:a_token\" }\n")
	changed <- struct{}{}
	d.state(t)
	err := demand(t, d, control.Wake, "c")
	if err == nil || !strings.Contains(err.Error(), "waits for") && !strings.Contains(err.Error(), "waiting: for credentials: TOKEN: pfar vault set a_token") {
		t.Errorf("waking what lacks a credential: %v", err)
	}
	for name, want := range map[string]string{
		"a": "starts with the first call (idle_timeout 5m)", "b": "starts with the first call (autostart = false)", "c": "for credentials: TOKEN: pfar vault set a_token",
	} {
		if got := d.state(t)[name].Detail; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A call that comes while the idle server is being stopped finds it started again, once, and is not told before that.
func TestWakingWhileItIsBeingStopped(t *testing.T) {
	d, m, changed := fixture(t)
	m.loud = true
	stopping, let := make(chan struct{}), make(chan struct{})
	m.gate = func(string) { close(stopping); <-let }
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+idle)
	changed <- struct{}{}
	d.up(t, "a")
	if err := demand(t, d, control.Sleep, "a"); err != nil {
		t.Fatal(err)
	}
	<-stopping
	var woken sync.WaitGroup
	errs := make(chan error, 2)
	for range 2 {
		woken.Go(func() { errs <- request(t.Context(), d, control.Wake, "a", "") })
	}
	select {
	case err := <-errs:
		t.Fatalf("woken while it is being stopped: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	m.gate = nil
	close(let)
	woken.Wait()
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if s := d.state(t)["a"]; s.State != control.Starting || m.count("a") != 2 {
		t.Errorf("%s after %d starts", s.State, m.count("a"))
	}
}

// Whoever stops a server that is about to be started for a call has the last word, and the call is told.
func TestStoppingWhileItIsBeingWoken(t *testing.T) {
	d, m, changed := fixture(t) // its launchers never get under way
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	changed <- struct{}{}
	d.state(t)
	woken := make(chan error, 1)
	go func() { woken <- request(t.Context(), d, control.Wake, "a", "") }()
	for d.state(t)["a"].State != control.Starting {
		time.Sleep(time.Millisecond)
	}
	ask(t, d, control.Request{Verb: control.Stop, Server: "a"})
	if err := <-woken; !errors.Is(err, control.ErrStopped) {
		t.Errorf("woken: %v", err)
	}
	if s := d.state(t)["a"]; s.State != control.Stopped || len(m.instances()) != 0 {
		t.Errorf("%s, running %v", s.State, m.instances())
	}
}

// A session's process keeps its server awake.
func TestSleepWithSessions(t *testing.T) {
	d, m, changed := fixture(t)
	m.loud = true
	d.put(t, "a.hcl", fmt.Sprintf(own, "x")+idle)
	changed <- struct{}{}
	d.up(t, "a")
	d.mustOpen(t, "a", first)
	if err := demand(t, d, control.Sleep, "a"); !errors.Is(err, control.ErrBusy) {
		t.Errorf("with a session: %v", err)
	}
	d.mustClose(t, "a", first)
	d.state(t)
	if err := demand(t, d, control.Sleep, "a"); err != nil {
		t.Errorf("without one: %v", err)
	}
}

// TestTheListOnDemand: what the gateway hears, and that it hears each change once.
func TestTheListOnDemand(t *testing.T) {
	d, m, changed := fixture(t)
	m.loud = true
	lists := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- d.answer(ctx, control.Peer{}, control.Request{Verb: control.Demand}, func(r control.Response) error {
			var words []string
			for _, o := range r.OnDemand {
				words = append(words, fmt.Sprintf("%s/%s %t %s", o.Server.Name, o.Server.Label, o.Sleeps, o.Down))
			}
			lists <- strings.Join(words, "; ")
			return nil
		})
	}()
	until := func(want string) {
		t.Helper()
		var seen []string
		for {
			select {
			case got := <-lists:
				if seen = append(seen, got); got == want {
					return
				}
			case <-time.After(2 * time.Minute):
				t.Fatalf("saw %q, and not %q", seen, want)
			}
		}
	}
	until("")
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+idle+"auth = { TOKEN = \"vault:a_token\" }\n")
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	d.put(t, "plain.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	until("a/sensitive true ; b/sensitive true ")
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
	until("a/sensitive false ; b/sensitive true ")
	d.up(t, "a")
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7, Tools: 3}) // nothing new for the gateway
	ask(t, d, control.Request{Verb: control.Sleep, Server: "a"})
	until("a/sensitive true ; b/sensitive true ")
	ask(t, d, control.Request{Verb: control.Stop, Server: "b"})
	until("a/sensitive true ; b/sensitive false stopped")
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+idle+"enabled = false\nlabel = \"public\"\n")
	changed <- struct{}{}
	until("a/public false stopped; b/sensitive false stopped")
	os.Remove(filepath.Join(d.options.declarations, "a.hcl"))
	changed <- struct{}{}
	until("b/sensitive false stopped")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	select {
	case got := <-lists:
		t.Errorf("and %q", got)
	default:
	}
}

// The gateway may wake and put to sleep, and nothing that is the operator's.
func TestTheGatewaysVerbs(t *testing.T) {
	may := gatewayGuest(1234).Verbs
	for _, v := range []control.Verb{
		control.Wake, control.Sleep, control.Demand, control.Redaction, control.Clients,
		control.Audit, control.Stuck, control.Policy, control.Open, control.Close, control.LastRefusal, control.Begin,
	} {
		if !slices.Contains(may, v) {
			t.Errorf("%s is missing", v)
		}
	}
	if len(may) != 12 {
		t.Errorf("the gateway may ask for %q", may)
	}
}

// A pfard that is started again while systemd runs the servers leaves asleep what was, and wakes nothing that was
// stopped.
func TestSleepIsRemembered(t *testing.T) {
	d, m, changed := fixture(t)
	m.loud = true
	err := d.do(func() (err error) {
		d.fleet.intents, err = newIntents(t.TempDir(), d.log)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+idle)
	changed <- struct{}{}
	d.up(t, "a")
	remembered := func() (run, asleep bool) {
		_ = d.do(func() error {
			s := d.fleet.recall(systemd.Found{Plan: *d.fleet.servers["a"].want, Idle: true})
			run, asleep = s.run, s.asleep
			return nil
		})
		return run, asleep
	}
	for _, step := range []struct {
		verb        control.Verb
		run, asleep bool
	}{{control.Sleep, false, true}, {control.Wake, true, false}, {control.Stop, false, false}, {control.Start, true, false}} {
		if err := demand(t, d, step.verb, "a"); err != nil {
			t.Errorf("%s: %v", step.verb, err)
		}
		if run, asleep := remembered(); run != step.run || asleep != step.asleep {
			t.Errorf("after %s: to run %t, asleep %t", step.verb, run, asleep)
		}
		d.state(t)
	}
}
