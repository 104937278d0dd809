package systemd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// world is a Runner with its systemd.
type world struct {
	t       *testing.T
	systemd *fakeSystemd
	runner  *Runner
	run     string

	mu       sync.Mutex
	updates  []units.Update
	relimits []sandbox.Limits             // that were asked for
	relimit  func(l sandbox.Limits) error // what comes of it; nil: they hold
	left     []string
	told     []plan.Plan
	deaf     error // of the gateway
}

func (w *world) tell(p plan.Plan) error {
	w.told = append(w.told, p)
	return w.deaf
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, systemd: newFakeSystemd(t), run: t.TempDir()}
	w.restart()
	return w
}

// restart is another pfard's Runner, which watches.
func (w *world) restart() {
	w.t.Helper()
	link := NewLink(func(ctx context.Context) (*Bus, error) { return ConnectTo(ctx, w.systemd.address) })
	r, err := NewRunner(Config{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Run: w.run, Runtime: w.run, Link: link, Limits: w,
		Told: w.tell, Events: w.event,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.runner = r
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); r.Watch(ctx) }()
	w.t.Cleanup(func() { cancel(); link.Close(); <-watched })
}

func (w *world) event(event units.Event) {
	switch e := event.(type) {
	case units.Left:
		w.left = append(w.left, e.Instance)
	case units.Update:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.updates = append(w.updates, e)
	}
}

func (w *world) Remove(string) error { return nil }

func (w *world) Relimit(_ context.Context, _ *Bus, _ string, l sandbox.Limits) (string, error) {
	w.mu.Lock()
	w.relimits = append(w.relimits, l)
	meets := w.relimit
	w.mu.Unlock()
	if meets != nil {
		if err := meets(l); err != nil {
			return "", err
		}
	}
	return held(l), nil
}

// held is how limits are told of.
func held(l sandbox.Limits) string { return fmt.Sprintf("%d bytes", l.Memory) }

// until waits for an update.
func (w *world) until(what string, ok func(units.Update) bool) units.Update {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		if i := slices.IndexFunc(w.updates, ok); i >= 0 {
			u := w.updates[i]
			w.updates = w.updates[i+1:]
			w.mu.Unlock()
			return u
		}
		all := slices.Clone(w.updates)
		w.mu.Unlock()
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not among %+v", what, all)
		}
	}
}

func hello() plan.Plan {
	p := plan.Plan{Name: "hello", Enabled: true, Autostart: true}
	p.Sandbox.Command, p.Sandbox.Limits = "/usr/bin/true", sandbox.Limits{Memory: 1 << 28, Tasks: 10}
	return p
}

// start has the server started, its launcher attached and running.
func (w *world) start(p plan.Plan) string {
	w.t.Helper()
	if err := w.runner.Start(p, units.Secrets{}); err != nil {
		w.t.Fatal(err)
	}
	name := units.Instance(p.Name, p.Gateway.Session)
	digest := plan.Digest(p)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) { // for systemd to be asked
		if started, _ := w.runner.plans.applied(name); started == digest {
			break
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%q is not started", name)
		}
	}
	if _, err := w.runner.Attach(name, digest, 7, 61200); err != nil {
		w.t.Fatal(err)
	}
	said := map[string]string{units.NotifyState: units.StateRunning, units.NotifyTools: "3", "STATUS": "3 tools"}
	w.runner.Tell(name, func(u *units.Update) { u.Take(said) })
	w.until("running", func(u units.Update) bool { return u.State == units.StateRunning && u.PID == 7 && u.Tools == 3 })
	return digest
}

const helloUnit = "pfar-mcp@hello.service"

func TestRunnerStartsAndStops(t *testing.T) {
	w := newWorld(t)
	w.start(hello())
	if err := w.runner.Start(hello(), units.Secrets{}); err == nil {
		t.Error("started twice")
	}
	if _, err := os.Stat(filepath.Join(w.run, "plan", "hello.json")); err != nil {
		t.Error(err)
	}
	w.runner.Stop("hello")
	w.systemd.mu.Lock()
	stopped := slices.Clone(w.systemd.stopped)
	w.systemd.mu.Unlock()
	if started, _ := w.runner.plans.applied("hello"); started != "" || !slices.Equal(stopped, []string{helloUnit}) || !slices.Equal(w.left, []string{"hello"}) {
		t.Errorf("applied %q, stopped %q, left %q", started, stopped, w.left)
	}
	w.runner.Stop("hello") // does nothing
	w.runner.Forget("hello")
	if list, err := w.runner.plans.instances(); err != nil || len(list) != 0 {
		t.Errorf("left are %q, %v", list, err)
	}
}

func TestRunnerWhatSystemdSays(t *testing.T) {
	for name, c := range map[string]struct {
		active, sub string
		more        map[string]any
		want        units.Update
	}{
		"stopped by systemctl": {"inactive", "dead", nil, units.Update{State: "stopped", Detail: "stopped by systemctl", Ended: true, Outside: true}},
		"failed":               {"failed", "failed", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(78), "StatusText": "failed: disabled after 3 crashes; label public"}, units.Update{State: "failed", Detail: "disabled after 3 crashes", Ended: true}},
		"failed, no word":      {"failed", "failed", map[string]any{"Result": "signal", "ExecMainStatus": int32(9)}, units.Update{State: "failed", Detail: "the launcher was killed by signal 9", Ended: true}},
		"to be started again":  {"activating", "auto-restart", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(1)}, units.Update{State: "back-off", Detail: "the launcher ended with status 1; see its log"}},
		"no fault of its own":  {"activating", "auto-restart", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(75), "StatusText": "starting: pfard cannot be had"}, units.Update{State: "starting", Detail: "pfard cannot be had"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start(hello())
			w.systemd.becomes(helloUnit, c.active, c.sub, c.more)
			c.want.Server, c.want.UID = "hello", 61200
			w.until(name, func(u units.Update) bool { return u == c.want })
			if c.want.Outside { // it is not ours any more, and can be started by whoever likes
				if _, err := w.runner.Attach("hello", plan.Digest(hello()), 8, 61201); err != nil {
					t.Error(err)
				}
				w.until("started by systemctl", func(u units.Update) bool { return u.Outside && !u.Ended && u.PID == 8 && u.UID == 61201 })
			}
		})
	}
}

// What systemd says while our own job is under way is older than it.
func TestRunnerJobsThatFail(t *testing.T) {
	for result, want := range map[string]string{
		"assert":     "systemd could not start it (assert); systemctl status " + helloUnit,
		"dependency": "systemd could not start it (dependency); systemctl status " + helloUnit,
	} {
		w := newWorld(t)
		w.systemd.job = result
		if err := w.runner.Start(hello(), units.Secrets{}); err != nil {
			t.Fatal(err)
		}
		w.until(result, func(u units.Update) bool {
			return u.State == units.StateFailed && u.Ended && !u.Outside && u.Detail == want
		})
		w.systemd.mu.Lock()
		w.systemd.job = "done"
		w.systemd.mu.Unlock()
		w.runner.Stop("hello")
		w.start(hello())
	}
	w := newWorld(t)
	w.systemd.masked = helloUnit
	if err := w.runner.Start(hello(), units.Secrets{}); err != nil {
		t.Fatal(err)
	}
	w.until("masked", func(u units.Update) bool {
		return u.State == units.StateFailed && strings.Contains(u.Detail, "systemctl unmask")
	})
}

func TestRunnerRefuses(t *testing.T) {
	w := newWorld(t)
	digest := w.start(hello())
	for name, c := range map[string]struct{ instance, digest, want string }{
		"unknown":       {"nobody", digest, "no such file"},
		"another plan":  {"hello", strings.Repeat("0", 64), "changed"},
		"no plan":       {"hello", "", "changed"},
		"path":          {"../plan/hello", digest, ""},
		"not a session": {"hello_abcdefgh", digest, "no such file"},
	} {
		if _, err := w.runner.Attach(c.instance, c.digest, 9, 9); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := w.runner.Admit(c.instance, c.digest); err == nil {
			t.Errorf("%s: its bridge is admitted", name)
		}
	}
	p := hello()
	p.Gateway.Session = "../../etc"
	if err := w.runner.Start(p, units.Secrets{}); err == nil {
		t.Error("started a session with a handle that is none")
	}
	p.Gateway.Session, p.State = "abcdefgh", true
	if err := w.runner.Start(p, units.Secrets{}); err == nil {
		t.Error("started a session with a home")
	}
}

// A session's process leaves nothing, and is nothing that others could start.
func TestRunnerSessions(t *testing.T) {
	w := newWorld(t)
	p := hello()
	p.Gateway.Session = "abcdefgh"
	digest := w.start(p)
	w.runner.Tell("hello_abcdefgh", func(u *units.Update) {
		u.Take(map[string]string{units.NotifyState: units.StateFailed, "STATUS": "exit status 3"})
	})
	w.systemd.becomes("pfar-mcp@hello_abcdefgh.service", "inactive", "dead", nil)
	u := w.until("ended", func(u units.Update) bool { return u.Ended })
	if u.Session != "abcdefgh" || u.Detail != "exit status 3" {
		t.Errorf("%+v", u)
	}
	if list, err := w.runner.plans.instances(); err != nil || len(list) != 0 {
		t.Errorf("left are %q, %v", list, err)
	}
	if _, err := w.runner.Attach("hello_abcdefgh", digest, 8, 8); err == nil {
		t.Error("a session that is over was started again")
	}
}

// TestRunnerBridges: those that run, of the whole server, and no other's whose name begins alike.
func TestRunnerBridges(t *testing.T) {
	w := newWorld(t)
	for server, sessions := range map[string][]string{"a-name-of-23-characters": {"", "aaaaaaaa", "bbbbbbbb"}, "a-name-of-23-other-ones": {"cccccccc"}} {
		for _, session := range sessions {
			p := hello()
			p.Name, p.Gateway.Name, p.Gateway.Session = server, server, session
			if err := w.runner.Start(p, units.Secrets{}); err != nil {
				t.Fatal(err)
			}
			if session != "bbbbbbbb" {
				w.systemd.becomes(BridgeUnit(units.Instance(server, session)), "active", "running", nil)
			}
		}
	}
	got, err := w.runner.Bridges(t.Context(), "a-name-of-23-characters")
	slices.Sort(got)
	if want := []string{"a-name-of-23-c_aaaaaaaa", "a-name-of-23-characters"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

func TestRunnerAdjust(t *testing.T) {
	w := newWorld(t)
	old := w.start(hello())
	p := hello()
	p.Sandbox.Limits.Memory = 1 << 29
	if err := w.runner.Adjust(p); err != nil {
		t.Fatal(err)
	}
	w.until("relimited", func(u units.Update) bool { return u.Limits == held(p.Sandbox.Limits) && u.PID == 7 })
	w.restart() // and the launcher comes again with what it was started with
	if found, err := w.runner.Adopt(t.Context()); err != nil || len(found) != 1 || found[0].Applied != plan.Digest(p) {
		t.Errorf("found %v, %v", found, err)
	}
	if got, err := w.runner.Attach("hello", old, 7, 61200); err != nil || got.Sandbox.Limits.Memory != 1<<29 {
		t.Errorf("%+v, %v", got.Sandbox.Limits, err)
	}
	p.Sandbox.Limits.Tasks = 11
	if w.runner.Adjust(p) == nil {
		t.Error("another number of tasks takes no start")
	}
}

// TestRunnerAdjustsFacts: the gateway is told, the bridge ends if it is to go by something else, and only then the plan
// is the one by which the server runs. What was begun and not finished is no plan by which anything runs.
func TestRunnerAdjustsFacts(t *testing.T) {
	w := newWorld(t)
	names := func(list ...string) egress.Policy {
		var p egress.Policy
		for _, name := range list {
			p.Endpoints = append(p.Endpoints, egress.Endpoint{Host: name})
		}
		return p
	}
	p := hello()
	p.Egress = names("a.example", "b.example")
	began := w.start(p)
	stopped := func() []string {
		w.systemd.mu.Lock()
		defer w.systemd.mu.Unlock()
		return slices.Clone(w.systemd.stopped)
	}
	half := func() bool {
		w.restart()
		found, err := w.runner.Adopt(t.Context())
		if err != nil || len(found) != 1 {
			t.Fatalf("found %v, %v", found, err)
		}
		return found[0].Half
	}
	p.Gateway.Label, w.deaf = "secret", errors.New("deaf")
	if err := w.runner.Adjust(p); !errors.Is(err, w.deaf) || !half() {
		t.Errorf("the gateway goes by the old label, and that is an adjustment: %v", err)
	}
	w.deaf = nil
	p.Gateway.Label = "regulated"
	if err := w.runner.Adjust(p); err != nil || half() || len(stopped()) > 0 || w.told[len(w.told)-1].Gateway.Label != "regulated" {
		t.Errorf("%v, stopped %q, told %+v", err, stopped(), w.told)
	}
	told := len(w.told)
	w.systemd.becomes(BridgeUnit("hello"), "active", "running", nil)
	p.Egress = names("c.example", "b.example")
	if err := w.runner.Adjust(p); err != nil || half() || !slices.Equal(stopped(), []string{BridgeUnit("hello")}) || len(w.told) != told {
		t.Errorf("%v, stopped %q, told %d times", err, stopped(), len(w.told))
	}
	got, err := w.runner.Admit("hello", began)
	if want := []string{"a.example", "b.example", "c.example"}; err != nil || !slices.Equal(got.Egress.Places(), want) {
		t.Errorf("the next bridge has the names %q, want %q, %v", got.Egress.Places(), want, err)
	}
	p.Gateway.Capabilities = []string{"roots"}
	if err := w.runner.Adjust(p); err == nil || len(w.told) != told {
		t.Errorf("what was agreed on in the handshake changes: %v", err)
	}
}

// TestRunnerLimitsArrive: whatever befalls systemd and in whatever order it is asked, what runs ends with the newest
// limits.
func TestRunnerLimitsArrive(t *testing.T) {
	limited := func(memory int64) plan.Plan {
		p := hello()
		p.Sandbox.Limits.Memory = memory
		return p
	}
	adjust := func(w *world, memory int64) {
		w.t.Helper()
		if err := w.runner.Adjust(limited(memory)); err != nil {
			w.t.Fatal(err)
		}
	}
	arrive := func(w *world, memory int64) {
		w.t.Helper()
		w.until("the newest limits", func(u units.Update) bool { return u.Limits == held(limited(memory).Sandbox.Limits) })
	}
	notThere := Final(errors.New("no such scope"))

	t.Run("systemd goes away", func(t *testing.T) {
		w := newWorld(t)
		w.start(hello())
		tries := 0
		w.relimit = func(sandbox.Limits) error {
			if tries++; tries < 3 {
				w.systemd.hangUp()
				return errors.New("connection closed by the user")
			}
			return nil
		}
		adjust(w, 1<<29)
		arrive(w, 1<<29)
	})
	t.Run("edited meanwhile", func(t *testing.T) {
		w := newWorld(t)
		w.start(hello())
		asked, answer := make(chan sandbox.Limits, 9), make(chan error)
		w.relimit = func(l sandbox.Limits) error { asked <- l; return <-answer }
		adjust(w, 1<<29)
		if l := <-asked; l.Memory != 1<<29 {
			t.Fatalf("asked for %+v", l)
		}
		adjust(w, 1<<30)
		adjust(w, 1<<31)
		select {
		case l := <-asked:
			t.Fatalf("asked for %+v before there was an answer to the last", l)
		case <-time.After(20 * time.Millisecond):
		}
		answer <- errors.New("no answer")
		for range 3 { // the first one's next try is for the newest already
			if l := <-asked; l.Memory != 1<<31 {
				t.Errorf("asked for %+v", l)
			}
			answer <- nil
		}
		arrive(w, 1<<31)
	})
	t.Run("edited while it is placed", func(t *testing.T) {
		w := newWorld(t)
		w.start(hello())
		refused := make(chan bool, 9)
		w.relimit = func(sandbox.Limits) error { refused <- true; return notThere }
		adjust(w, 1<<29)
		<-refused // and is not asked again
		w.mu.Lock()
		w.relimit = nil
		w.mu.Unlock()
		w.runner.Relimit("hello", hello().Sandbox.Limits) // it was placed with the old ones
		arrive(w, 1<<29)
		w.runner.Relimit("hello", limited(1<<29).Sandbox.Limits)
		w.runner.Relimit("nobody", hello().Sandbox.Limits)
		time.Sleep(20 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		// The beginning of the watch may have asked, too.
		if want := limited(1 << 29).Sandbox.Limits; len(w.relimits) < 2 || len(w.relimits) > 3 || !slices.Equal(slices.Compact(w.relimits), []sandbox.Limits{want}) {
			t.Errorf("asked for %+v", w.relimits)
		}
	})
	t.Run("pfard is killed", func(t *testing.T) {
		w := newWorld(t)
		old := w.start(hello())
		w.relimit = func(sandbox.Limits) error { return notThere } // as if it had not been asked
		adjust(w, 1<<29)
		w.restart()
		if _, err := w.runner.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		w.relimit = nil
		w.mu.Unlock()
		if _, err := w.runner.Attach("hello", old, 7, 61200); err != nil {
			t.Fatal(err)
		}
		w.runner.Tell("hello", func(u *units.Update) { u.Take(map[string]string{units.NotifyLimits: "old ones"}) })
		w.runner.Relimit("hello", sandbox.Limits{}) // an earlier pfard has placed it
		arrive(w, 1<<29)
	})
}

func TestRunnerAdopts(t *testing.T) {
	w := newWorld(t)
	w.start(hello())
	for name, act := range map[string]func(p *plan.Plan){
		"failed":  func(p *plan.Plan) { p.Name = "failed" },
		"idle":    func(p *plan.Plan) { p.Name = "idle" },
		"session": func(p *plan.Plan) { p.Gateway.Session = "abcdefgh" },
		"over":    func(p *plan.Plan) { p.Gateway.Session = "bbbbbbbb" },
	} {
		p := hello()
		act(&p)
		w.start(p)
		_ = name
	}
	for _, name := range []string{"offered", "others", "stopping", "halted"} {
		p := hello()
		p.Name = name
		w.runner.Offer(name, &p)
	}
	for _, name := range []string{"stopping", "halted"} { // and pfard is killed
		if err := w.runner.plans.stop(name); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(w.run, "pfar-egress", "stray") // of a DynamicUser= unit
	if err := errors.Join(os.Mkdir(filepath.Dir(link), 0o755), os.Symlink("../private/pfar-egress/stray", link)); err != nil {
		t.Fatal(err)
	}
	w.systemd.mu.Lock() // pfard is not there to see this
	w.systemd.units["pfar-mcp@failed.service"]["ActiveState"] = w.systemd.units[helloUnit]["ActiveState"]
	w.systemd.set("pfar-mcp@failed.service", "failed", "failed", map[string]any{"Result": "exit-code", "ExecMainStatus": int32(78)})
	delete(w.systemd.units, "pfar-mcp@idle.service")
	delete(w.systemd.units, "pfar-mcp@hello_bbbbbbbb.service")
	for _, name := range []string{"stray", "others", "stopping"} {
		w.systemd.set("pfar-mcp@"+name+".service", "active", "running", nil)
	}
	w.systemd.mu.Unlock()
	if err := os.WriteFile(filepath.Join(w.run, "plan", ".new-123"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.restart()
	found, err := w.runner.Adopt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		words := units.Instance(f.Plan.Name, f.Plan.Gateway.Session) + " " + f.Update.State
		for word, is := range map[string]bool{" idle": f.Idle, " outside": f.Outside} {
			if is {
				words += word
			}
		}
		if f.Applied == plan.Digest(f.Plan) {
			words += " applied"
		}
		got = append(got, words)
	}
	slices.Sort(got)
	want := []string{"failed failed applied", "halted  idle", "hello starting applied", "hello_abcdefgh starting applied", "idle  idle applied", "offered  idle", "others starting outside", "stopping starting"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		w.systemd.mu.Lock()
		stopped := slices.Contains(w.systemd.stopped, "pfar-mcp@stray.service")
		w.systemd.mu.Unlock()
		if _, err := os.Lstat(link); stopped && errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what nobody knows still runs, or something of it is left")
		}
	}
	list, err := w.runner.plans.instances()
	slices.Sort(list)
	if want := []string{"failed", "halted", "hello", "hello_abcdefgh", "idle", "offered", "others", "stopping"}; err != nil || !slices.Equal(list, want) {
		t.Errorf("plans of %q, want %q", list, want)
	}
}

// TestRunnerIsOvertaken: what systemd has said of the last launcher, before the next one came, is not about that.
func TestRunnerIsOvertaken(t *testing.T) {
	w := newWorld(t)
	digest := w.start(hello())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go w.runner.Watch(ctx)
	w.systemd.mu.Lock()
	w.systemd.set(helloUnit, "inactive", "dead", nil)
	w.systemd.between = func() {
		w.systemd.set(helloUnit, "active", "running", nil)
		if _, err := w.runner.Attach("hello", digest, 8, 61200); err != nil {
			t.Error(err)
		}
	}
	w.systemd.mu.Unlock()
	w.runner.Observe("hello")
	u := w.until("the next launcher's word", func(u units.Update) bool { return u.PID == 8 || u.Ended })
	w.runner.Observe("hello")
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range append(w.updates, u) {
		if u.Ended {
			t.Errorf("told as ended: %+v", u)
		}
	}
}

// TestRunnerLosesSystemd: what was asked is asked again, and what happened meanwhile is seen.
func TestRunnerLosesSystemd(t *testing.T) {
	w := newWorld(t)
	w.start(hello())
	w.systemd.hangUp()
	w.systemd.mu.Lock()
	w.systemd.set(helloUnit, "failed", "failed", map[string]any{"Result": "signal", "ExecMainStatus": int32(9)}) // nobody hears it
	w.systemd.mu.Unlock()
	w.until("failed while nobody listened", func(u units.Update) bool { return u.State == units.StateFailed })
	w.systemd.hangUp()
	w.runner.Stop("hello")
	w.start(hello())
}

func TestPlansAreWhole(t *testing.T) {
	p := plans{run: t.TempDir()}
	if err := p.make(); err != nil {
		t.Fatal(err)
	}
	digest, err := p.write("hello", hello())
	if err != nil || digest != plan.Digest(hello()) {
		t.Fatalf("%q, %v", digest, err)
	}
	if st, err := os.Stat(p.file("hello")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := p.write("other", hello()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.read("other"); err == nil || !strings.Contains(err.Error(), `it is that of "hello"`) {
		t.Errorf("another's plan: %v", err)
	}
	if err := os.WriteFile(p.file("half"), []byte(`{"name":"ha`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.read("half"); err == nil {
		t.Error("half a plan is one")
	}
	if err := os.Chmod(filepath.Join(p.run, "plan"), 0o500); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(filepath.Join(p.run, "nowhere", "x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("writing into no directory: %v", err)
	}
}

func TestUnitIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/pfar.slice/pfar-mcp@notion.service\n":                                         "notion false",
		"0::/pfar.slice/pfar-egress.slice/pfar-egress@notion.service\n":                    "notion true",
		"0::/pfar.slice/pfar-egress.slice/pfar-refresh@drive.service\n":                    "drive refresh",
		"0::/pfar.slice/pfar-egress.slice/pfar-login@drive.service\n":                      "drive login",
		"0::/pfar.slice/pfar-egress.slice/pfar-model@llm.service\n":                        "llm model",
		"0::/pfar.slice/pfar-chat@home.service\n":                                          "home chat",
		"0::/pfar.slice/pfar-setup@abcdefgh.service\n":                                     "abcdefgh page",
		"0::/pfar.slice/pfar-console@1000.service\n":                                       "1000 console",
		"0::/pfar.slice/pfar-console.service\n":                                            " console remote",
		"0::/pfar.slice/pfar-console.service/sub\n":                                        "",
		"0::/pfar.slice/pfar-console.scope\n":                                              "",
		"0::/pfar.slice/pfar-console@.service\n":                                           " console",
		"0::/pfar.slice/pfar-inspect@llm.service\n":                                        "",
		"0::/pfar.slice/pfar-refresh@drive.service/pfar-mcp@drive.scope\n":                 "",
		"0::/pfar.slice/pfar-mcp@long-name-here_abcdefgh.service\n":                        "long-name-here_abcdefgh false",
		"9:name=systemd:/pfar.slice/pfar-mcp@a.service\n2:cpu:/\n0::/\n":                   "a false",
		"9:name=systemd:/\n0::/pfar.slice/pfar-mcp@a.service\n":                            "a false",
		"0::/user.slice/user-1000.slice/user@1000.service/pfar.slice/pfar-mcp@a.service\n": "a false",
		"2:cpu:/pfar.slice/pfar-mcp@a.service\n0::/user.slice\n":                           "",
		"0::/pfar.slice/pfar-mcp-a.scope\n":                                                "",
		"0::/pfar.slice/pfar-mcp@a.service/sub\n":                                          "",
		"0::/pfar.slice/pfar-mcp@a.service:x\n":                                            "",
		"":                                                                                 "",
	} {
		p, _, err := unitIn(text)
		got := ""
		if err == nil {
			got = p.Instance + map[bool]string{true: " true", false: " false"}[p.Bridge]
			if p.Refresh {
				got = p.Instance + " refresh"
			}
			if p.Chat {
				got = p.Instance + " chat"
			}
			if p.Login {
				got = p.Instance + " login"
			}
			if p.Model {
				got = p.Instance + " model"
			}
			if p.Page {
				got = p.Instance + " page"
			}
			if p.Console {
				got = p.Instance + " console"
			}
			if p.Remote {
				got += " remote"
			}
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestUnescape(t *testing.T) {
	for _, unit := range []string{"pfar-mcp@notion.service", "pfar-mcp@a_bcdefghi.service", "x"} {
		if got := unescape(escape(unit)); got != unit {
			t.Errorf("%q becomes %q", unit, got)
		}
	}
	for in, want := range map[string]string{"_": "_", "a_2": "a_2", "_zz": "_zz", "": ""} {
		if got := unescape(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// TestRunnerReadsUnitsAgain: an administrator's drop-in counts once systemd has read it, and what of it does not reach
// the server is told, without values.
func TestRunnerReadsUnitsAgain(t *testing.T) {
	w := newWorld(t)
	w.start(hello())
	w.runner.Tell("hello", func(u *units.Update) { u.Take(map[string]string{units.NotifyLimits: "as declared"}) })
	w.until("limits", func(u units.Update) bool { return u.Limits == "as declared" })
	w.systemd.mu.Lock()
	w.systemd.units[helloUnit]["Environment"] = dbus.MakeVariant([]string{"TOKEN=hidden"})
	w.systemd.units[helloUnit]["LoadCredential"] = dbus.MakeVariant([][2]string{})
	w.systemd.mu.Unlock()
	w.systemd.reloaded()
	const want = "Environment= of " + helloUnit + " does not reach the server: write env in the declaration"
	u := w.until("what does not reach it", func(u units.Update) bool { return u.Unreached != "" })
	if u.Unreached != want {
		t.Errorf("told %q, want %q", u.Unreached, want)
	}
	if u.Limits != held(hello().Sandbox.Limits) {
		w.until("limits by the unit as it is now", func(u units.Update) bool { return u.Limits == held(hello().Sandbox.Limits) })
	}
}

func TestUnreachedBy(t *testing.T) {
	credential := func(name string) []any { return []any{name, "/run/pfar/credentials.sock"} }
	for name, c := range map[string]struct {
		properties map[string]any
		want       string
	}{
		"nothing":          {nil, ""},
		"as shipped":       {map[string]any{"Environment": []string{}, "LoadCredential": [][]any{credential("user"), credential("plan"), credential("secrets")}}, ""},
		"a credential":     {map[string]any{"LoadCredential": [][]any{credential("user"), credential("token")}}, "LoadCredential= of x does not reach the server: write auth in the declaration"},
		"a file":           {map[string]any{"EnvironmentFiles": [][]any{{"/etc/default/x", true}}}, "EnvironmentFile= of x does not reach the server: write env in the declaration"},
		"more":             {map[string]any{"Environment": []string{"A=b"}, "SetCredential": [][]any{{"t", []byte("hidden")}}}, "Environment= and SetCredential= of x do not reach the server: write env and auth in the declaration"},
		"of another shape": {map[string]any{"Environment": "A=b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := unreachedBy("x", c.properties); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
