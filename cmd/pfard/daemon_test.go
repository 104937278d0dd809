package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/plan"
)

// machine stands in for processes: what runs, by instance, with the plan that it was started with.
type machine struct {
	t    *testing.T
	tell func(units.Update)
	gate func(instance string) // called before a stop; nil: nothing keeps it

	adjust func(plan.Plan) error // nil: what runs has to be started again

	mu     sync.Mutex
	loud   bool  // the processes that are not a session's say that they are under way
	broken bool  // no process of a session can be started
	full   error // of the disk
	refuse error // of every start
	runs   map[string]plan.Plan
	secret map[string]string // last credentials, by server
	starts map[string]int
	slow   time.Duration // of a stop
}

func (m *machine) Start(p plan.Plan, secrets units.Secrets) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuse != nil {
		return m.refuse
	}
	name := units.Instance(p.Name, p.Gateway.Session)
	if _, ok := m.runs[name]; ok {
		m.t.Errorf("%q is started while it runs", name)
	}
	m.runs[name] = p
	m.starts[name]++
	m.secret[name] = fmt.Sprintf("%s", secrets.Values)
	if u := (units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateStarting, PID: 7, UID: 61184}); u.Session != "" || m.loud {
		if m.broken {
			u.State, u.Detail, u.PID, u.Ended = units.StateFailed, "no such program", 0, true
		}
		go m.tell(u)
	}
	return nil
}

func (m *machine) Stop(name string) {
	if m.gate != nil {
		m.gate(name)
	}
	time.Sleep(m.slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, name)
}

func (m *machine) Adjust(p plan.Plan) error {
	if m.adjust == nil {
		return errors.New("no")
	}
	err := m.adjust(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if name := units.Instance(p.Name, p.Gateway.Session); err == nil {
		m.runs[name] = p
	}
	return err
}

func (m *machine) Prepare(plan.Plan) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full
}

func (m *machine) Offer(string, *plan.Plan) {}

func (m *machine) Forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.runs[name]; ok {
		m.t.Errorf("%q is forgotten while it runs", name)
	}
}

// count is how often a server has been started.
func (m *machine) count(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.starts[name]
}

// instances lists what runs.
func (m *machine) instances() (list []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.runs {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func (m *machine) Log(name string) string { return name + ".log" }

type (
	ownerFunc   func(failure)
	unitsFunc   func(server, words string)
	bridgesFunc func(server string)
	homesFunc   func()
)

func (f ownerFunc) tell(what failure)               { f(what) }
func (f unitsFunc) notice(server, words string)     { f(server, words) }
func (f unitsFunc) mistaken(server, words string)   { f(server, words) }
func (f unitsFunc) try(string)                      {}
func (unitsFunc) relabelled(instance, label string) {}
func (f bridgesFunc) Changed(server string)         { f(server) }
func (f homesFunc) inUse()                          { f() }

// fixture is a daemon over a directory of declarations, in its loop.
func fixture(t *testing.T) (*daemon, *machine, chan struct{}) {
	t.Helper()
	state := t.TempDir()
	v, err := vault.Open(filepath.Join(state, "vault"))
	if err != nil {
		t.Fatal(err)
	}
	o := options{declarations: t.TempDir(), servers: "/srv/servers", dirs: control.Dirs{Run: t.TempDir(), State: state}}
	d, m, changed, _ := over(t, o, v)
	return d, m, changed
}

// over is a daemon over directories that there are, in its loop, until end is called.
func over(
	t *testing.T, o options, v *vault.Vault, prepare ...func(*daemon),
) (d *daemon, m *machine, changed chan struct{}, end func()) {
	t.Helper()
	d = newDaemon(o, slog.New(slog.NewTextHandler(io.Discard, nil)), v, "127.0.0.1:7417")
	d.audit.open(false)
	m = &machine{
		t: t, tell: d.fleet.changed,
		runs: map[string]plan.Plan{}, secret: map[string]string{}, starts: map[string]int{},
	}
	d.fleet.runner = converge.New(m, d.fleet)
	for _, f := range prepare {
		f(d)
	}
	changed = make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	looked := make(chan struct{}) // at the empty directory, not at a file that a test has half written
	go d.loop(ctx, changed, func() { close(looked) })
	<-looked
	end = func() { cancel(); <-d.ended }
	t.Cleanup(end)
	return d, m, changed, end
}

// TestNoDeafPfard: one whose control socket fails ends, with the error.
func TestNoDeafPfard(t *testing.T) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "control.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	d, _, _ := fixture(t)
	ctx, stop := context.WithCancel(t.Context())
	served := d.serve(ctx, stop, l, os.Getuid())
	if ctx.Err() != nil {
		t.Fatal("it ends from the beginning")
	}
	l.Close() // it fails
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("it goes on")
	}
	if err := <-served; err == nil {
		t.Error("it ends without an error")
	}
}

func (d *daemon) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.options.declarations, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// state waits until nothing is under way any more and returns the report.
func (d *daemon) state(t *testing.T) map[string]control.Server {
	t.Helper()
	for {
		busy, servers := false, map[string]control.Server{}
		err := d.do(func() error {
			for _, s := range d.fleet.servers {
				busy = busy || s.has.Stopping || s.has.Next != nil
				for _, e := range s.sessions {
					busy = busy || e.closing
				}
			}
			for _, s := range d.report().Servers {
				servers[s.Name] = s
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !busy {
			return servers
		}
		time.Sleep(time.Millisecond)
	}
}

const good = "description = %q\nserver {\n  command = \"sh\"\n}\n"

func TestAFileIsAServer(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "one"))
	d.put(t, "b.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	if s := d.state(t); len(s) != 2 || m.starts["a"] != 1 || m.starts["b"] != 1 {
		t.Fatalf("servers %v, starts %v", s, m.starts)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "two"))
	changed <- struct{}{}
	if d.state(t); m.starts["a"] != 2 || m.starts["b"] != 1 || m.runs["a"].Gateway.Description != "two" {
		t.Errorf("after a change of a: starts %v, plan %q", m.starts, m.runs["a"].Gateway.Description)
	}
	d.put(t, "a.hcl", "description = \"three\nserver {")
	changed <- struct{}{}
	s := d.state(t)
	if !s["a"].Stale || s["b"].Stale || m.starts["a"] != 2 || m.runs["a"].Gateway.Description != "two" {
		t.Errorf("a broken edit: %+v, starts %v", s["a"], m.starts)
	}
	if r := d.reportNow(t); r.Directory != d.options.declarations || r.Programs != "/srv/servers" {
		t.Errorf("declarations in %q, programs in %q", r.Directory, r.Programs)
	}
	if r := d.reportNow(t); len(r.Diagnostics) == 0 || !strings.Contains(r.Diagnostics[0].Text, "a.hcl:1:") {
		t.Errorf("diagnostics %+v", r.Diagnostics)
	}
	if err := os.Remove(filepath.Join(d.options.declarations, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); len(s) != 1 || len(m.runs) != 1 || m.starts["b"] != 1 {
		t.Errorf("after a is removed: servers %v, starts %v", s, m.starts)
	}
}

// TestANewFileDoesNotTakeARunningServersName: a name belongs to the file that has it, whatever comes before that in the
// alphabet.
func TestANewFileDoesNotTakeARunningServersName(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "notion.hcl", fmt.Sprintf(good, "the real one"))
	changed <- struct{}{}
	d.state(t)
	d.put(t, "aaa.hcl", "name = \"notion\"\n"+fmt.Sprintf(good, "another"))
	changed <- struct{}{}
	s := d.state(t)
	if m.starts["notion"] != 1 || m.runs["notion"].Gateway.Description != "the real one" || s["notion"].Stale {
		t.Errorf("starts %v, running %q, %+v", m.starts, m.runs["notion"].Gateway.Description, s["notion"])
	}
	r := d.reportNow(t)
	if len(r.Diagnostics) != 1 || !strings.HasSuffix(r.Diagnostics[0].File, "/aaa.hcl") || r.Diagnostics[0].Summary != "Duplicate server" {
		t.Errorf("diagnostics %+v", r.Diagnostics)
	}
}

// A file may name its server itself; broken, it does not say how any more.
func TestABrokenFileWithANameOfItsOwn(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", "name = \"other\"\n"+fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	if s := d.state(t); m.starts["other"] != 1 || len(s) != 1 {
		t.Fatalf("servers %v, starts %v", s, m.starts)
	}
	d.put(t, "a.hcl", "name = \"oth\nserver {")
	changed <- struct{}{}
	if s := d.state(t); !s["other"].Stale || m.starts["other"] != 1 || len(m.runs) != 1 {
		t.Errorf("after the break: %+v, starts %v, runs %v", s, m.starts, m.runs)
	}
}

func (d *daemon) reportNow(t *testing.T) (r control.Report) {
	t.Helper()
	if err := d.do(func() error { r = d.report(); return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAMissingCredentialWaits(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a_token", OTHER = "$PFARD_TEST_OTHER" }`+"\n")
	changed <- struct{}{}
	s := d.state(t)["a"]
	if s.State != control.Waiting || m.starts["a"] != 0 || !strings.Contains(s.Detail, "pfar vault set a_token") || !strings.Contains(s.Detail, "PFARD_TEST_OTHER") {
		t.Fatalf("without a credential: %s %q", s.State, s.Detail)
	}
	t.Setenv("PFARD_TEST_OTHER", "from-env")
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
	if s := d.state(t)["a"]; s.State != control.Starting || !strings.Contains(m.secret["a"], "TOKEN:hunter2") || !strings.Contains(m.secret["a"], "OTHER:from-env") {
		t.Errorf("with it: %s %q, given %q", s.State, s.Detail, m.secret["a"])
	}
	if r := fmt.Sprintf("%+v", d.reportNow(t)); strings.Contains(r, "hunter2") {
		t.Error("the report holds the secret")
	}
}

// A server that waits for its program to be accepted is not started again for what else changes: its launcher comes
// again.
func TestAChangedProgramWaits(t *testing.T) {
	d, m, changed := fixture(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+`auth = { TOKEN = "vault:a_token" }`+"\n")
	changed <- struct{}{}
	d.state(t)
	starts := m.count("a")
	const detail = units.ForProgram + ", which has changed, to be accepted: pfar pins accept a"
	wait := units.Wait{For: units.WaitProgram, Remedy: units.ToDo(units.AcceptPins, "a")}
	d.fleet.changed(units.Update{Server: "a", State: string(control.Waiting), Detail: detail, Wait: wait})
	r := ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter3"})
	if s := d.state(t)["a"]; s.State != control.Waiting || s.Detail != detail || s.Wait != wait || m.count("a") != starts {
		t.Errorf("it is %s: %s; %d starts, then %d", s.State, s.Detail, starts, m.count("a"))
	}
	if want := (control.Use{Server: "a", Then: control.Waits, Why: detail}); len(r.Changes) != 1 || !slices.Equal(r.Changes[0].Uses, []control.Use{want}) {
		t.Errorf("told %+v, want %+v", r.Changes, want)
	}
}

// A remote server that has refused its token is not asked again until there is another one.
func TestARefusedTokenWaits(t *testing.T) {
	t.Run("permanent", func(t *testing.T) { aRefusedTokenWaits(t, "") })
	t.Run("on demand", func(t *testing.T) { aRefusedTokenWaits(t, "idle_timeout = \"1m\"\n") })
}

func aRefusedTokenWaits(t *testing.T, lifecycle string) {
	d, m, changed := fixture(t)
	ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter2"})
	d.put(t, "a.hcl", fmt.Sprintf(good, "x")+lifecycle+`auth = { TOKEN = "vault:a_token" }`+"\n")
	changed <- struct{}{}
	d.state(t)
	starts := m.count("a")
	wait := units.Wait{For: units.WaitLogin, Remedy: units.ToDo(units.SignIn, "a")}
	d.fleet.changed(units.Update{Server: "a", State: string(control.Waiting), Detail: "pfar login a: 401", Wait: wait})
	d.within(t, d.uses.wakeWaiting)
	if s := d.state(t)["a"]; s.State != control.NeedsLogin || s.Wait != wait || m.count("a") != starts {
		t.Errorf("it is %s: %s; %d starts, then %d", s.State, s.Detail, starts, m.count("a"))
	}
	var refusal *control.Refused
	if err := request(t.Context(), d, control.Wake, "a", ""); !errors.As(err, &refusal) ||
		refusal.Code != control.CodeDown || refusal.Wait != wait {
		t.Errorf("a call finds %v, %+v", err, refusal)
	}
	told := func(want bool) {
		t.Helper()
		var list []control.OnDemand
		d.within(t, func() { list = d.orders.onDemand() })
		login := func(o control.OnDemand) bool { return o.Server.Name == "a" && o.Login && !o.Sleeps }
		if slices.ContainsFunc(list, login) != want {
			t.Errorf("the gateway is told %+v", list)
		}
	}
	told(true)
	r := ask(t, d, control.Request{Verb: control.Store, Key: "a_token", Secret: "hunter3"})
	told(false)
	if s := d.state(t)["a"]; s.State == control.NeedsLogin || m.count("a") != starts+1 {
		t.Errorf("with another token it is %s: %s; %d starts, then %d", s.State, s.Detail, starts, m.count("a"))
	}
	if want := (control.Use{Server: "a", Then: control.Restarts}); len(r.Changes) != 1 ||
		!slices.Equal(r.Changes[0].Uses, []control.Use{want}) {
		t.Errorf("told %+v, want %+v", r.Changes, want)
	}
}

func ask(t *testing.T, d *daemon, q control.Request) (r control.Response) {
	t.Helper()
	err := d.answer(t.Context(), control.Peer{}, q, func(a control.Response) error { r = a; return nil })
	if err != nil {
		t.Fatalf("%s %s: %v", q.Verb, q.Server, err)
	}
	return r
}

func TestVerbs(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "off.hcl", fmt.Sprintf(good, "x")+"enabled = false\n")
	d.put(t, "later.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	changed <- struct{}{}
	if s := d.state(t); len(m.runs) != 1 || s["off"].State != control.Stopped || s["later"].State != control.Sleeping {
		t.Fatalf("running %v, %+v", m.runs, s)
	}
	for _, c := range []struct {
		verb   control.Verb
		server string
		want   error
	}{{control.Start, "none", control.ErrNoServer}, {control.Stop, "", control.ErrNoServer}, {control.Start, "off", control.ErrDisabled}, {"format", "a", control.ErrInvalid}} {
		err := d.answer(t.Context(), control.Peer{}, control.Request{Verb: c.verb, Server: c.server}, func(control.Response) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("%s %q: %v, want %v", c.verb, c.server, err, c.want)
		}
	}
	ask(t, d, control.Request{Verb: control.Stop, Server: "a"})
	if s := d.state(t)["a"]; s.State != control.Stopped || len(m.runs) != 0 {
		t.Errorf("stopped: %+v, running %v", s, m.runs)
	}
	changed <- struct{}{} // an unrelated event must not bring it back
	if d.state(t); len(m.runs) != 0 {
		t.Error("what the operator stopped came back by itself")
	}
	ask(t, d, control.Request{Verb: control.Start, Server: "a"})
	ask(t, d, control.Request{Verb: control.Start, Server: "later"})
	if d.state(t); len(m.runs) != 2 {
		t.Errorf("running %v, want a and later", m.runs)
	}
	starts := m.starts["a"]
	d.fleet.changed(units.Update{Server: "a", State: "running", Tools: 3})
	ask(t, d, control.Request{Verb: control.Start, Server: "a"})
	if s := d.state(t)["a"]; m.starts["a"] != starts || s.Tools != 3 {
		t.Errorf("start of a running server restarted it (%d starts), tools %d", m.starts["a"], s.Tools)
	}
	ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
	if d.state(t); m.starts["a"] != starts+1 {
		t.Errorf("restart: %d starts, want %d", m.starts["a"], starts+1)
	}
	d.fleet.changed(units.Update{Server: "a", State: "failed", Detail: "disabled after 3 crashes in a row"})
	if s := d.state(t)["a"]; s.State != control.Failed {
		t.Errorf("state %s, want failed", s.State)
	}
	ask(t, d, control.Request{Verb: control.Start, Server: "a"})
	if d.state(t); m.starts["a"] != starts+2 {
		t.Errorf("start of a disabled server: %d starts, want %d", m.starts["a"], starts+2)
	}
}

// From any state, whatever comes, what runs becomes what the files and the operator say.
func TestRandomWalk(t *testing.T) {
	d, m, changed := fixture(t)
	m.slow = 2 * time.Millisecond
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	names := []string{"a", "b", "c", "d"}
	look := func() { // the loop has read the directory when it answers
		changed <- struct{}{}
		d.reportNow(t)
	}
	want, stopped := map[string]string{}, map[string]bool{} // description of the last good version, and the operator's stops
	off := map[string]bool{}                                // what the operator has disabled
	for step := range 300 {
		name := names[r.IntN(len(names))]
		file := filepath.Join(d.options.declarations, name+".hcl")
		switch r.IntN(7) {
		case 0, 1:
			text := fmt.Sprint("version ", step)
			d.put(t, name+".hcl", fmt.Sprintf(good, text))
			want[name], stopped[name] = text, false
			look()
		case 2:
			os.Remove(file)
			delete(want, name)
			look()
		case 3:
			if _, ok := want[name]; ok { // a broken edit of a good one; otherwise there is nothing to keep
				d.put(t, name+".hcl", "server {")
				look()
			}
		case 4, 5:
			if _, ok := want[name]; ok {
				verb := []control.Verb{control.Start, control.Stop, control.Restart, control.Enable, control.Disable}[r.IntN(5)]
				if off[name] && (verb == control.Start || verb == control.Restart) {
					if err := refusal(t, d, control.Request{Verb: verb, Server: name}); !errors.Is(err, control.ErrOff) {
						t.Fatalf("%s of a disabled server: %v", verb, err)
					}
					break
				}
				ask(t, d, control.Request{Verb: verb, Server: name})
				stopped[name] = verb == control.Stop || verb == control.Disable
				off[name] = verb == control.Disable || off[name] && verb != control.Enable
			}
		case 6:
			d.fleet.changed(units.Update{Server: name, State: []string{"running", "back-off", "failed"}[r.IntN(3)]})
		}
		if step%10 != 9 {
			continue
		}
		d.state(t)
		m.mu.Lock()
		for _, n := range names {
			p, runs := m.runs[n]
			text, ok := want[n]
			if runs != (ok && !stopped[n] && !off[n]) || runs && p.Gateway.Description != text {
				t.Fatalf("step %d: %s runs %v as %q, want %v as %q", step, n, runs, p.Gateway.Description, ok && !stopped[n] && !off[n], text)
			}
		}
		m.mu.Unlock()
	}
}

// TestHangUp: SIGHUP has the declarations read again, whatever the watcher has seen, here behind two links.
func TestHangUp(t *testing.T) {
	d, m, _ := fixture(t)
	far := t.TempDir()
	for _, link := range [][2]string{{far + "/a.hcl", far + "/link"}, {far + "/link", filepath.Join(d.options.declarations, "a.hcl")}} {
		if err := os.Symlink(link[0], link[1]); err != nil {
			t.Fatal(err)
		}
	}
	for n, command := range []string{"x", "y"} {
		if err := os.WriteFile(far+"/a.hcl", fmt.Appendf(nil, good, command), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(os.Getpid(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(2 * time.Minute); m.count("a") != n+1; time.Sleep(time.Millisecond) {
			if d.state(t); time.Now().After(deadline) {
				t.Fatalf("%d starts after %d signals", m.count("a"), n+1)
			}
		}
	}
}
