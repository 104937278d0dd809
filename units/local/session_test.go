package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// groups is a Limiter that remembers what it was asked.
type groups struct {
	mu      sync.Mutex
	removed []string
}

func (*groups) Place(context.Context, string, int, sandbox.Limits) (string, error) { return "", nil }
func (g *groups) OOMKilled(string) bool                                            { return false }
func (g *groups) Remove(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removed = append(g.removed, name)
	return nil
}

// launcherScript stands in for pfar-sandbox: it tells what it was given, and ends as the plan's command says.
const launcherScript = `#!/bin/sh
plan="$CREDENTIALS_DIRECTORY/plan"
echo "launched uid $(id -u) token $(grep -o '"TOKEN":"[^"]*"' "$CREDENTIALS_DIRECTORY/secrets") runtime $(basename "$RUNTIME_DIRECTORY") session $(grep -o '"session":"[a-z2-7]*"' "$plan")"
if grep -q '"command":"crash"' "$plan"; then exit 3; fi
if grep -q '"command":"end"' "$plan"; then exit 0; fi
if grep -q '"command":"slow"' "$plan"; then trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done; fi
exec sleep 1000
`

type runnerFixture struct {
	*Runner
	t       *testing.T
	dir     string
	limits  *groups
	updates chan units.Update
}

// newRunner is a runner over programs that are scripts.
func newRunner(t *testing.T, prepare func(run string)) *runnerFixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	f := &runnerFixture{t: t, dir: dir, limits: &groups{}, updates: make(chan units.Update, 1000)}
	bin, run := filepath.Join(dir, "bin"), filepath.Join(dir, "run")
	for _, d := range []string{bin, run} {
		if err := os.Mkdir(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"pfar-sandbox": launcherScript, "pfar-egress": "#!/bin/sh\nexec sleep 1000\n", "pfar-gateway": "#!/bin/sh\necho \"gateway uid $(id -u) $*\"\nexec sleep 1000\n",
	} {
		if err := putProgram(filepath.Join(bin, name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if prepare != nil {
		prepare(run)
	}
	f.Runner, err = New(Config{
		Bridges: bridge.NewTalks(),
		Log:     quiet(), Bin: bin, Run: run, State: filepath.Join(dir, "state"),
		Gateway: testGateway(t, dir), Limits: f.limits,
		Events: func(e units.Event) {
			if u, ok := e.(units.Update); ok {
				f.updates <- u
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// someSecrets are those of a test.
type someSecrets struct {
	brokered func(plan.Plan) (*os.File, error)
	hides    func(plan.Plan) attach.Redaction
}

func (s someSecrets) Brokered(p plan.Plan) (*os.File, error) { return s.brokered(p) }

func (s someSecrets) Hides(p plan.Plan) attach.Redaction {
	if s.hides == nil {
		return nil
	}
	return s.hides(p)
}

func (s someSecrets) Serial() int64 { return 42 }

func (s someSecrets) Proof(plan.Plan) string { return "" }

func noMaterial(plan.Plan) (*os.File, error) { return units.Sealed("broker", []byte("{}")) }

func testGateway(t *testing.T, dir string) Gateway {
	t.Helper()
	g := Gateway{Token: []byte("token"), Control: filepath.Join(dir, "control.sock")}
	var err error
	if g.HTTP, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.HTTP.Close() })
	for name, l := range map[string]**net.UnixListener{
		"gateway.sock": &g.Unix, "servers.sock": &g.Servers, "operator.sock": &g.Operator, "passkey.sock": &g.Passkey,
	} {
		network := "unix"
		if l == &g.Servers {
			network = "unixpacket"
		}
		if *l, err = net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, name), Net: network}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { (*l).Close() })
	}
	return g
}

func testPlan(command, session string) plan.Plan {
	return plan.Plan{
		Name: "e", Gateway: handover.Server{Name: "e", Session: session, Sessions: handover.Sessions{Own: true, Max: 9}},
		Sandbox: sandbox.Sandbox{Command: command, Limits: sandbox.Limits{Memory: 1 << 20, Tasks: 9}},
	}
}

func (f *runnerFixture) start(command, session string) {
	f.t.Helper()
	if err := f.Start(testPlan(command, session), units.Secrets{Values: map[string][]byte{"TOKEN": []byte("hunter2")}}); err != nil {
		f.t.Fatal(err)
	}
}

// until returns the first update of a session that is as wanted, and passes over those of others.
func (f *runnerFixture) until(what, session string, ok func(units.Update) bool) units.Update {
	f.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case u := <-f.updates:
			if u.Session == session && ok(u) {
				return u
			}
		case <-late:
			f.t.Fatalf("nothing like this came of session %q: %s", session, what)
		}
	}
}

func (f *runnerFixture) launched(session string) units.Update {
	f.t.Helper()
	return f.until("launched", session, func(u units.Update) bool { return u.PID != 0 })
}

func (f *runnerFixture) logged() string {
	b, _ := os.ReadFile(f.Log("e"))
	return string(b)
}

// leftOf lists the paths in whose names text is.
func (f *runnerFixture) leftOf(text string) (left []string) {
	f.t.Helper()
	err := filepath.WalkDir(f.dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), text) {
			left = append(left, path)
		}
		return nil // what goes meanwhile is not left
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for unit := range f.users.held {
		if strings.Contains(unit, text) {
			left = append(left, "the user of "+unit)
		}
	}
	return left
}

const (
	one = "aaaaaaaa"
	two = "bbbbbbbb"
)

func TestWhatIsNoSession(t *testing.T) {
	f := newRunner(t, nil)
	for _, session := range []string{"x", "../../..", "a.aaaaaa", "AAAAAAAA"} {
		if err := f.Start(testPlan("run", session), units.Secrets{}); err == nil {
			t.Errorf("session %q was started", session)
		}
		if left := f.leftOf(units.Instance("e", session)); left != nil {
			t.Errorf("session %q left %q", session, left)
		}
	}
	p := testPlan("run", one)
	p.State = true // two processes would write to one home
	if err := f.Start(p, units.Secrets{}); err == nil || f.leftOf(one) != nil {
		t.Errorf("a session with state: %v, left %q", err, f.leftOf(one))
	}
	f.start("run", one)
	if err := f.Start(testPlan("run", one), units.Secrets{}); err == nil || !strings.Contains(err.Error(), "started already") {
		t.Errorf("a session twice: %v", err)
	}
}

func TestSessionsHaveEverythingOfTheirOwn(t *testing.T) {
	f := newRunner(t, nil)
	f.start("run", "")
	server := f.launched("")
	f.start("run", one)
	first := f.launched(one)
	f.start("run", two)
	second := f.launched(two)
	ids := []int{server.UID, first.UID, second.UID, f.GatewayUID()}
	slices.Sort(ids)
	if distinct := len(slices.Compact(ids)); os.Getuid() == 0 && distinct != 4 || os.Getuid() != 0 && distinct != 1 {
		t.Errorf("users %d", ids)
	}
	for _, want := range []string{
		fmt.Sprintf("launched uid %d token \"TOKEN\":\"aHVudGVyMg==\" runtime pfar-mcp@e session \n", server.UID),
		fmt.Sprintf("launched uid %d token \"TOKEN\":\"aHVudGVyMg==\" runtime pfar-mcp@e_%s session \"session\":\"%s\"\n", first.UID, one, one),
		fmt.Sprintf("launched uid %d token \"TOKEN\":\"aHVudGVyMg==\" runtime pfar-mcp@e_%s session \"session\":\"%s\"\n", second.UID, two, two),
	} {
		eventually(t, "in the server's log: "+want, func() bool { return strings.Contains(f.logged(), want) })
	}
	for _, path := range []string{f.dirs.monitor("e_" + one), f.dirs.runtime("pfar-egress@e_" + two)} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	f.Stop("e_" + one)
	if err := unix.Kill(first.PID, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the session's launcher after its stop: %v", err)
	}
	if left := f.leftOf(one); left != nil {
		t.Errorf("left of a session: %q", left)
	}
	for _, pid := range []int{server.PID, second.PID} {
		if err := unix.Kill(pid, 0); err != nil {
			t.Errorf("another's launcher: %v", err)
		}
	}
	if !slices.Equal(f.limits.removed, []string{"e_" + one}) {
		t.Errorf("groups removed: %q", f.limits.removed)
	}
	f.Close()
	if left := f.leftOf("@e"); left != nil {
		t.Errorf("left by a runner that was closed: %q", left)
	}
}

func TestASessionsProcessIsNotStartedAgain(t *testing.T) {
	for command, state := range map[string]string{"crash": units.StateFailed, "end": units.StateStopped} {
		t.Run(command, func(t *testing.T) {
			f := newRunner(t, nil)
			f.start(command, one)
			u := f.until("ended", one, func(u units.Update) bool { return u.Ended })
			if u.State != state || u.PID != 0 || u.Server != "e" {
				t.Errorf("got %+v, want %s", u, state)
			}
			f.Stop("e_" + one) // its service is done by then, and would have started it again
			if n := strings.Count(f.logged(), "launched"); n != 1 {
				t.Errorf("launched %d times", n)
			}
			if left := f.leftOf(one); left != nil {
				t.Errorf("left: %q", left)
			}
		})
	}
	f := newRunner(t, nil) // a server's own process is
	f.start("crash", "")
	for range 2 {
		f.launched("")
		if u := f.until("crashed", "", func(u units.Update) bool { return u.PID == 0 }); u.Ended {
			t.Errorf("a server that will be started again has ended: %+v", u)
		}
	}
}

// Whoever stops what is being stopped already, and the runner's end, wait for it.
func TestEveryStopWaits(t *testing.T) {
	f := newRunner(t, nil)
	f.start("slow", one)
	f.launched(one)
	eventually(t, "it handles signals", func() bool { return strings.Contains(f.logged(), "launched") })
	go f.Stop("e_" + one)
	pid := f.until("told to end", one, func(u units.Update) bool { return u.PID != 0 }).PID // the update of deactivating
	for _, stop := range []func(){func() { f.Stop("e_" + one) }, f.Close} {
		stop()
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("there is still a process: %v", err)
		}
	}
	if left := f.leftOf(one); left != nil {
		t.Errorf("left: %q", left)
	}
}

// A pfard that was killed leaves its sessions' files, whose names never come again, and may leave secrets among them.
func TestWhatAKilledPfardLeft(t *testing.T) {
	f := newRunner(t, func(run string) {
		for _, path := range []string{
			"credentials/pfar-mcp@e_" + one + "/TOKEN", "runtime/pfar-egress@e_" + one + "/leases", "binds/pfar-mcp@e_" + one + "/0/pfar-sandbox",
			"notify/pfar-mcp@e_" + one, "egress/e_" + one + ".sock", "runtime/pfar-mcp@e/crashes", "runtime/not.mine/x",
		} {
			path = filepath.Join(run, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("hunter2"), 0o400); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(run, "credentials/pfar-mcp@e_"+one), 0o500); err != nil {
			t.Fatal(err)
		}
	})
	if left := f.leftOf(one); left != nil {
		t.Errorf("left: %q", left)
	}
	if f.leftOf("crashes") == nil || f.leftOf("not.mine") == nil {
		t.Error("removed what is no session's")
	}
}

func TestSessionsDoNotFillTheLog(t *testing.T) {
	f := newRunner(t, nil)
	if err := os.WriteFile(f.Log("e"), []byte(strings.Repeat("x", units.LogSegment)), 0o600); err != nil {
		t.Fatal(err)
	}
	f.start("end", one)
	f.until("ended", one, func(u units.Update) bool { return u.Ended })
	if st, err := os.Stat(f.Log("e")); err != nil || st.Size() >= units.LogSegment {
		t.Errorf("the log was not rotated: %v, %v", st, err)
	}
	if st, err := os.Stat(f.Log("e") + ".1"); err != nil || st.Size() < units.LogSegment { // the gateway writes to it as well
		t.Errorf("the old log: %v, %v", st, err)
	}
}

// TestLogsDoNotGrowForever: the gateway and a chat run for long, and have a line for each call or message.
func TestLogsDoNotGrowForever(t *testing.T) {
	f := newRunner(t, nil)
	chat := (&examiner{r: f.Runner}).conversation()
	for log, notice := range map[string]func(notification){
		units.GatewayLog: f.gateway.notice, units.ChatLog: chat.notice,
	} {
		path := f.Log(log)
		for vars, rotated := range map[string]bool{"STATUS": false, units.NotifyLogFull: true} {
			if err := os.WriteFile(path, []byte(strings.Repeat("x", units.LogSegment)), 0o600); err != nil {
				t.Fatal(err)
			}
			notice(notification{vars: map[string]string{vars: "1"}})
			if st, err := os.Stat(path); err != nil || (st.Size() < units.LogSegment) != rotated {
				t.Errorf("%s, %s: %v, %v", log, vars, st.Size(), err)
			}
		}
		if st, err := os.Stat(path + ".1"); err != nil || st.Size() < units.LogSegment {
			t.Errorf("the old log of %s: %v, %v", log, st, err)
		}
	}
}

func TestTheGatewayKnowsWhereToAsk(t *testing.T) {
	f := newRunner(t, nil)
	want := fmt.Sprintf("gateway uid %d --pins %s --state %s --inspectors %s --control %s\n", f.GatewayUID(), f.dirs.pins(), f.dirs.gateway(), units.InspectDir(f.dirs.run), filepath.Join(f.dir, "control.sock"))
	eventually(t, want, func() bool {
		b, _ := os.ReadFile(f.Log(units.GatewayLog))
		return strings.HasPrefix(string(b), want[:len(want)-1])
	})
	if own := f.GatewayUID() == os.Getuid(); own != (os.Getuid() != 0) {
		t.Errorf("the gateway runs as %d, pfard as %d", f.GatewayUID(), os.Getuid())
	}
}

// What names the instances must name a group and fit into a socket's path.
func TestInstancesNames(t *testing.T) {
	name := units.Instance("e", units.NewSession())
	if err := checkGroupName(name); err != nil {
		t.Error(err)
	}
	longest := LongestSocket("/run", name)
	for _, other := range []string{
		dirs{run: "/run"}.monitor(name), dirs{run: "/run"}.notify(launcherName(name)), dirs{run: "/run"}.notify(gatewayName),
		units.ChatNotices(units.InspectDir("/run"), name),
	} {
		if len(other) > len(longest) {
			t.Errorf("%q is longer than %q", other, longest)
		}
	}
}

// TestLauncherIsIntroduced: the gateway hears from pfard what a launcher is to hand over, before the launcher has a
// say.
func TestLauncherIsIntroduced(t *testing.T) {
	f := newRunner(t, nil)
	f.start("sleep", "abcdefg2")
	c, err := f.cfg.Gateway.Servers.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := testPlan("sleep", "abcdefg2").Gateway
	m, files, err := handover.Accepted(c).Receive()
	if err != nil || len(files) != 0 || m.At == 0 || !reflect.DeepEqual(m, handover.Message{Expect: &want, At: m.At}) {
		t.Errorf("got %+v, %d files, %v", m, len(files), err)
	}
}

// TestNewsIsTakenByWhoTellsBridges has a runner's owner tell bridges of new secrets while it takes the news of a
// launcher.
func TestNewsIsTakenByWhoTellsBridges(t *testing.T) {
	f := newRunner(t, nil)
	f.cfg.Secrets = someSecrets{brokered: noMaterial}
	told := make(chan struct{}, 1000)
	f.cfg.Events = func(e units.Event) {
		if u, ok := e.(units.Update); ok {
			f.cfg.Bridges.Changed(u.Server)
			told <- struct{}{}
		}
	}
	f.start("run", "")
	f.mu.Lock()
	s := f.servers["e"]
	f.mu.Unlock()
	ds, err := s.converse(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ds[0].file.Close()
	go s.notice(notification{vars: map[string]string{"STATUS": "well"}})
	for range 2 { // the launcher's start, and this
		select {
		case <-told:
		case <-time.After(2 * time.Minute):
			t.Fatal("whoever takes the news waits for who brings it")
		}
	}
}

// TestWiredIsTheBridgesWord: what was sent is not on the wire before the bridge says so, nor what could not be sent to
// one that runs.
func TestWiredIsTheBridgesWord(t *testing.T) {
	f := newRunner(t, nil)
	sendable := true
	f.cfg.Secrets = someSecrets{brokered: func(plan.Plan) (*os.File, error) {
		material, err := units.Sealed("broker", []byte("{}"))
		if !sendable {
			material.Close()
		}
		return material, err
	}}
	s, err := f.newServer("e", testPlan("sleep", ""), units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.monitor.Close()
	f.servers["e"] = s // not started: we are its bridge
	defer delete(f.servers, "e")
	ds, err := s.converse(nil)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%d descriptors, %v", len(ds), err)
	}
	bridge, err := attach.FromFile(ds[0].file)
	if err != nil {
		t.Fatal(err)
	}
	defer bridge.Close()
	wired := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		return f.cfg.Bridges.Wired(ctx, "e", nil)
	}
	answers := func(answer attach.Message) {
		t.Helper()
		if m, files, err := bridge.Receive(); err != nil || !m.Broker {
			t.Fatalf("%+v, %v", m, err)
		} else {
			attach.CloseAll(files)
		}
		if err := bridge.Send(answer); err != nil {
			t.Fatal(err)
		}
	}
	answers(attach.Message{Wired: true})
	f.cfg.Bridges.Changed("e")
	if err := wired(200 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent bridge: %v", err)
	}
	answers(attach.Message{Unwired: true})
	if err := wired(time.Minute); !errors.Is(err, attach.ErrUnwired) {
		t.Errorf("one that could not take it: %v", err)
	}
	f.cfg.Bridges.Changed("e")
	answers(attach.Message{Wired: true})
	if err := wired(time.Minute); err != nil {
		t.Errorf("one that has it: %v", err)
	}
	sendable = false
	f.cfg.Bridges.Changed("e")
	if err := wired(200 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that could not be told: %v", err)
	}
	bridge.Close()
	if err := wired(time.Minute); err != nil {
		t.Errorf("one that has ended: %v", err)
	}
}

// TestWhatIsHidden: bridges are told what to hide, by plan and anew, and launchers ask what they may log.
func TestWhatIsHidden(t *testing.T) {
	f := newRunner(t, nil)
	var mu sync.Mutex
	version, changed := "1", make(chan struct{})
	hidden := func(p plan.Plan) attach.Redaction {
		return func() ([]byte, <-chan struct{}) {
			mu.Lock()
			defer mu.Unlock()
			return []byte("bridge of " + p.Name + " " + version), changed
		}
	}
	f.cfg.Search = func(text []byte, cut bool) ([]byte, attach.Found) {
		return fmt.Appendf(nil, "searched %s %v", text, cut), attach.Found{Secrets: []string{"k"}, Behind: 9}
	}
	f.cfg.Secrets = someSecrets{brokered: noMaterial, hides: hidden}
	s, err := f.newServer("e", testPlan("sleep", ""), units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.monitor.Close()
	f.servers["e"] = s // not started: we are its launcher and its bridge
	defer delete(f.servers, "e")
	process := func(file *os.File) *attach.Conn {
		t.Helper()
		c, err := attach.FromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	hides := func(c *attach.Conn, want string) {
		t.Helper()
		defer time.AfterFunc(2*time.Minute, func() { c.Close() }).Stop()
		for {
			m, files, err := c.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if !m.Redact {
				attach.CloseAll(files)
				continue
			}
			if b, err := units.ReadSealed(files[0], attach.MaxSet); err != nil || string(b) != want {
				t.Errorf("it hides %q, %v; want %q", b, err, want)
			}
			return
		}
	}
	ours, theirs, err := attach.Pair("pfard")
	if err != nil {
		t.Fatal(err)
	}
	go s.place(ours, nil)
	launcher := process(theirs)
	question, err := attach.Sealed([][]byte{[]byte("this")})
	if err != nil {
		t.Fatal(err)
	}
	defer question.Close()
	for range 2 {
		if err := launcher.Send(attach.Message{Search: &attach.Search{Cut: true}}, question); err != nil {
			t.Fatal(err)
		}
		m, files, err := launcher.Receive()
		if err != nil || m.Found == nil || m.Found.Behind != 9 || !slices.Equal(m.Found.Secrets, []string{"k"}) {
			t.Fatalf("%+v, %v", m, err)
		}
		if lines, err := m.Found.Lines(files, 1); err != nil || lines[0] != "searched this true" {
			t.Errorf("it may log %q, %v", lines, err)
		}
	}
	made, err := s.bridgeService(&activation{}).prepare()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(made.credentials[units.CredentialRedaction]); got != "bridge of e 1" {
		t.Errorf("the bridge begins with %q", got)
	}
	bridge := process(made.descriptors[len(made.descriptors)-1].file)
	mu.Lock()
	old := changed
	version, changed = "2", make(chan struct{})
	mu.Unlock()
	close(old)
	f.cfg.Bridges.Changed("e")
	hides(bridge, "bridge of e 2")
	launch, err := s.prepare()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range launch.descriptors {
		defer d.file.Close()
	}
	c, err := f.cfg.Gateway.Servers.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m, _, err := handover.Accepted(c).Receive(); err != nil || m.Secrets != 42 {
		t.Errorf("the gateway is to know %d, %v", m.Secrets, err)
	}
}

// TestABridgeKnowsTheRoots: of pfard's environment it gets what says by which certificates a host is known, and nothing
// else.
func TestABridgeKnowsTheRoots(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "/roots.pem")
	t.Setenv("SSL_CERT_DIR", "/roots")
	t.Setenv("SECRET_OF_PFARD", "x")
	f := newRunner(t, nil)
	s, err := f.newServer("e", testPlan("sleep", ""), units.Secrets{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.monitor.Close()
	sp, err := s.bridgeService(&activation{}).prepare()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range sp.descriptors {
		d.file.Close()
	}
	if slices.Sort(sp.env); !slices.Equal(sp.env, []string{"SSL_CERT_DIR=/roots", "SSL_CERT_FILE=/roots.pem"}) {
		t.Errorf("it gets %q", sp.env)
	}
}
