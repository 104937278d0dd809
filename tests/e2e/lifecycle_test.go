package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// marker is a word that no other process of the host has among its arguments.
func marker(t *testing.T) string {
	return fmt.Sprintf("pfar-e2e-%d-%d", os.Getpid(), time.Now().UnixNano())
}

func inState(name string, state control.State) func(control.Report) bool {
	return func(r control.Report) bool { return server(r, name).State == state }
}

func TestCrash(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"fragile.hcl": echo(t), "steady.hcl": echo(t, "-label", "steady")})
	first := server(p.awaitRunning("fragile", "steady"), "fragile")
	steady := server(p.last(), "steady")
	c := p.client("/mcp")
	before, crashed := p.mark(), time.Now()
	if r, err := c.call("fragile__crash", map[string]any{}); err == nil && !r.isError {
		t.Errorf("a call that ends the server succeeded: %+v", r)
	}
	down := p.awaitFrom(before, "fragile crashed", soon, inState("fragile", control.BackOff))
	backingOff := p.mark() // a late report of the first run still says running
	if got := server(down, "fragile"); got.Tools != 0 || got.Crashes != 1 || !strings.Contains(got.Detail, "back-off 1s ") {
		t.Errorf("after the first crash: %+v", got)
	}
	// pfard and the gateway learn of the end each for itself, so the first lists may still have its tools. Lists that
	// were begun later than a second after the crash may have those of the next run.
	listed := func() bool {
		return slices.ContainsFunc(c.names(), func(n string) bool { return strings.HasPrefix(n, "fragile__") })
	}
	for n := 1; listed() && time.Since(crashed) < time.Second; n++ {
		if n == 100 {
			t.Errorf("%d lists have the tools of a server that is gone", n)
			break
		}
	}
	if got := c.must("steady__label", map[string]any{}); got != "steady" {
		t.Errorf("the neighbour answers %q", got)
	}
	up := p.awaitFrom(backingOff, "fragile back", soon, inState("fragile", control.Running))
	if took := server(up, "fragile").Since.Sub(crashed); took < time.Second {
		t.Errorf("back after %v, want 1 s", took)
	}
	if got := c.must("fragile__echo", map[string]any{"message": "again"}); got != "again" {
		t.Errorf("after the restart echo returns %q", got)
	}
	now := server(p.last(), "steady")
	if now.PID != steady.PID || !now.Since.Equal(steady.Since) {
		t.Errorf("the neighbour was touched: %+v, before %+v", now, steady)
	}
	if got := server(p.last(), "fragile"); got.PID == first.PID {
		t.Errorf("the launcher of the second start is that of the first: %d", got.PID)
	}
}

func TestThirdCrashDisables(t *testing.T) {
	t.Parallel()
	p := prepare(t, map[string]string{"broken.hcl": echo(t, "-crash"), "good.hcl": echo(t)})
	told := filepath.Join(p.home, "told")
	hook := "#!/bin/sh\necho \"$PFAR_SERVER: $PFAR_REASON\" >>" + told + "\n"
	if err := os.WriteFile(filepath.Join(p.home, "on-failure"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	p.up()
	p.awaitFrom(0, "the second crash", soon, func(r control.Report) bool {
		return server(r, "broken").State == control.BackOff && strings.Contains(server(r, "broken").Detail, "back-off 5s after crash 2 ")
	})
	r := p.await("broken disabled", soon, inState("broken", control.Failed))
	// The restart delays: 1 s after the first crash and 5 s after the second.
	if took := time.Since(begin); took < 6*time.Second {
		t.Errorf("disabled after %v, want no less than 6 s", took)
	}
	s := server(r, "broken")
	if s.Crashes != 3 || s.Detail == "" {
		t.Errorf("status of the disabled server: %+v", s)
	}
	stdout, _, _ := p.command("status", "broken")
	if !strings.Contains(stdout, "3") {
		t.Errorf("pfar status says nothing of three crashes: %s", stdout)
	}
	logs, stderr, code := p.command("logs", "broken")
	if code != 0 || strings.Count(logs, "crashing as told") < 3 {
		t.Errorf("pfar logs: %d, %s, %s", code, logs, stderr)
	}
	if server(p.last(), "good").State != control.Running {
		t.Errorf("the neighbour: %s", p.describe())
	}
	// The owner enables it without having mended it: it has three more crashes, and the owner is told once more.
	mark := p.mark()
	p.command("enable", "broken")
	p.awaitFrom(mark, "broken crashed again", soon, func(r control.Report) bool {
		return inState("broken", control.BackOff)(r) && server(r, "broken").Crashes == 1
	})
	p.awaitFrom(p.mark(), "broken disabled again", soon, inState("broken", control.Failed))
	const words = "broken: disabled after 3 crashes in a row: exit status 3: echo: crashing as told\n"
	var b []byte
	for deadline := time.Now().Add(soon); string(b) != words+words && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		b, _ = os.ReadFile(told) // the owner's program makes it
	}
	if string(b) != words+words {
		t.Errorf("the owner was told %q, want twice %q", b, words)
	}
	// The owner mends it: the change of the file is a start without a past.
	p.write("broken.hcl", echo(t))
	p.awaitRunning("broken")
}

// TestDisabledByTheOperator: it stays off until it is enabled, whatever happens.
func TestDisabledByTheOperator(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"off.hcl": echo(t), "on.hcl": echo(t)})
	p.awaitRunning("off", "on")
	if stdout, stderr, code := p.command("disable", "off"); code != 0 || stdout != "off: stopped: disabled by you; pfar enable off\n" {
		t.Errorf("pfar disable: %d, %s, %s", code, stdout, stderr)
	}
	if _, stderr, code := p.command("start", "off"); code != 1 || !strings.Contains(stderr, "hint: pfar enable off\n") {
		t.Errorf("pfar start: %d, %s", code, stderr)
	}
	p.again()
	p.write("off.hcl", echo(t, "-label", "changed"))
	p.awaitRunning("on")
	if stdout, _, _ := p.command("status", "off"); !strings.Contains(stdout, "disabled by you; pfar enable off") {
		t.Errorf("pfar status after a restart: %s", stdout)
	}
	if stdout, stderr, code := p.command("enable", "off"); code != 0 || !strings.HasPrefix(stdout, "off: running") {
		t.Errorf("pfar enable: %d, %s, %s", code, stdout, stderr)
	}
	p.again()
	p.awaitRunning("off", "on")
}

// TestSecondPfard: another one with the same directories ends at once, says why, and whoever is served notices nothing.
func TestSecondPfard(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"one.hcl": echo(t)})
	pid := server(p.awaitRunning("one"), "one").PID
	c := p.client("/mcp")
	second := exec.Command(program(t, "pfard"), "--local", "--declarations", p.declarations, "--listen", "127.0.0.1:0")
	second.Env = p.env
	out, err := second.CombinedOutput()
	if want := fmt.Sprintf("another pfar runs with the run directory %q: stop it, or set PFAR_RUN_DIR and PFAR_STATE_DIR", p.run); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
	if got := c.must("one__echo", map[string]any{"message": "still here"}); got != "still here" {
		t.Errorf("the first one's server answers %q", got)
	}
	if got := p.client("/mcp").names(); len(got) == 0 {
		t.Error("a new client of the first one finds no tools")
	}
	if stdout, stderr, code := p.command("status", "one"); code != 0 || !strings.Contains(stdout, "running") {
		t.Errorf("pfar status: %d: %s%s", code, stdout, stderr)
	}
	if now := server(p.last(), "one").PID; now != pid {
		t.Errorf("the server was started again: %d, before %d", now, pid)
	}
}

// TestStopSequence walks through a stop: end of stdin, 5 s, SIGTERM, 3 s, SIGKILL.
func TestStopSequence(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		args  []string
		least time.Duration
	}{
		{"obedient", nil, 0},
		{"slow", []string{"-slow-exit", "2s"}, 2 * time.Second},
		{"deaf-to-eof", []string{"-ignore-eof"}, 5 * time.Second},
		{"stubborn", []string{"-ignore-eof", "-ignore-term"}, 8 * time.Second},
	}
	declarations := map[string]string{}
	for _, tt := range tests {
		declarations[tt.name+".hcl"] = echo(t, tt.args...)
	}
	p := start(t, declarations)
	for _, tt := range tests {
		p.awaitRunning(tt.name)
	}
	t.Run("all at once", func(t *testing.T) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				launcher := server(p.last(), tt.name).PID
				processes := descendants(launcher)
				if len(processes) < 3 {
					t.Fatalf("launcher %d has only %v below it", launcher, processes)
				}
				mark, begin := p.mark(), time.Now()
				if err := os.Remove(p.path(tt.name + ".hcl")); err != nil {
					t.Fatal(err)
				}
				p.awaitFrom(mark, tt.name+" gone", soon, func(r control.Report) bool { return server(r, tt.name).Name == "" })
				if took := time.Since(begin); took < tt.least {
					t.Errorf("gone after %v, want no less than %v", took, tt.least)
				}
				awaitGone(t, soon, processes)
			})
		}
	})
	p.stop()
	for _, tt := range tests {
		log, err := os.ReadFile(filepath.Join(p.state(), "log", tt.name+".log"))
		check(t, err)
		if terminated := strings.Contains(string(log), "ends on SIGTERM"); terminated != (tt.name == "deaf-to-eof") {
			t.Errorf("%s was ended by SIGTERM: %t", tt.name, terminated)
		}
	}
}

// TestOrphan leaves a grandchild behind that nothing but the pid namespace can find.
func TestOrphan(t *testing.T) {
	t.Parallel()
	word := marker(t)
	p := start(t, map[string]string{"parent.hcl": echo(t, "-orphan", word)})
	p.awaitRunning("parent")
	orphans := awaitProcess(t, "-sleep\x00"+word)
	if err := os.Remove(p.path("parent.hcl")); err != nil {
		t.Fatal(err)
	}
	p.await("parent gone", soon, func(r control.Report) bool { return len(r.Servers) == 0 })
	awaitGone(t, soon, orphans)
}

func awaitProcess(t *testing.T, text string) []process {
	t.Helper()
	for deadline := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		if found := find(text); len(found) > 0 {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("no process with %q", text)
		}
	}
}

// TestNothingOutlivesPfard kills pfard, and pfar itself, so that they can clean up nothing.
func TestNothingOutlivesPfard(t *testing.T) {
	t.Parallel()
	for _, victim := range []string{"pfard", "pfar"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			word := marker(t)
			p := start(t, map[string]string{
				"a.hcl": echo(t, "-orphan", word), "b.hcl": echo(t, "-ignore-eof", "-ignore-term"),
			})
			p.awaitRunning("a", "b")
			awaitProcess(t, "-sleep\x00"+word)
			processes := descendants(p.cmd.Process.Pid)
			pid := p.cmd.Process.Pid
			if victim == "pfard" {
				i := slices.IndexFunc(processes, func(q process) bool { return q.name == "pfard" })
				if i < 0 {
					t.Fatalf("no pfard below pfar up: %v", processes)
				}
				pid = processes[i].pid
			}
			if len(processes) < 9 {
				t.Fatalf("too few processes to be two servers: %v", processes)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			awaitGone(t, soon, processes)
			select {
			case <-p.ended:
			case <-time.After(soon):
				t.Error("pfar up goes on without pfard")
			}
			p.write("b.hcl", echo(t)) // the stubborn one would need 8 s to end in order
			p.again()                 // what was left behind does not stand in the way
			p.awaitRunning("a", "b")
		})
	}
}

// TestUpWithoutPfard: when something kills pfard, who sits at the terminal of pfar up reads what that means for the
// servers, and the command that they read starts these again.
func TestUpWithoutPfard(t *testing.T) {
	t.Parallel()
	p := prepare(t, map[string]string{"a.hcl": echo(t)})
	args := []string{"up", "--listen=127.0.0.1:0", "--page-port=0", p.declarations}
	for _, kills := range []bool{true, false} {
		s := p.atTerminal(args...)
		s.await(1, "For a desktop client's configuration")
		s.await(1, string(control.Running))
		processes := descendants(s.cmd.Process.Pid)
		i := slices.IndexFunc(processes, func(q process) bool { return q.name == "pfard" })
		if i < 0 {
			t.Fatalf("no pfard below pfar up: %v", processes)
		}
		if !kills { // a stop that was asked for needs no words
			check(t, s.cmd.Process.Signal(os.Interrupt))
			s.cmd.Wait()
			if text := s.text(); s.cmd.ProcessState.ExitCode() != 0 || strings.Contains(text, "pfard was killed") {
				t.Errorf("after Ctrl-C it ends with %d:\n%s", s.cmd.ProcessState.ExitCode(), text)
			}
			awaitGone(t, soon, processes)
			return
		}
		check(t, syscall.Kill(processes[i].pid, syscall.SIGKILL))
		s.await(1, "pfar: pfard was killed by SIGKILL, and its servers end with it;")
		s.await(1, "journalctl -k")
		s.cmd.Wait()
		if code := s.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGKILL) {
			t.Errorf("it ends with %d", code)
		}
		awaitGone(t, soon, processes) // what it says is true
		again := regexp.MustCompile(`start them again: pfar ([^;]+);`).FindStringSubmatch(s.text())
		if again == nil {
			t.Fatalf("it names no command:\n%s", s.text())
		}
		args = strings.Fields(again[1])
	}
}

func TestEndLeavesNothing(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t), "b.hcl": echo(t)})
	p.awaitRunning("a", "b")
	processes := descendants(p.cmd.Process.Pid)
	p.stop()
	awaitGone(t, soon, processes)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d after an orderly end", code)
	}
	logs, _ := filepath.Glob(filepath.Join(p.state(), "log", "*.log"))
	for _, path := range logs {
		if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "crashed") {
			t.Errorf("%s: %v\n%s", path, err, text)
		}
	}
	if len(logs) < 3 {
		t.Errorf("only %d logs: %q", len(logs), logs)
	}
	if _, stderr, code := p.command("status"); code != 5 {
		t.Errorf("pfar status without pfar: exit code %d, %s", code, stderr)
	}
}

// TestListChanged: a tool that appears is held back until its owner accepts it, and from then on comes and goes freely.
func TestListChanged(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"shifty.hcl": echo(t)})
	tools := server(p.awaitRunning("shifty"), "shifty").Tools
	c := p.client("/mcp")
	listed := func() bool { return slices.Contains(c.names(), "shifty__added") }
	if listed() {
		t.Fatal("the tool is there before it is added")
	}
	change := func(what string, met func(control.Server) bool) {
		t.Helper()
		before := p.mark()
		c.must("shifty__change", map[string]any{})
		p.awaitFrom(before, what, soon, func(r control.Report) bool { return met(server(r, "shifty")) })
	}
	change("the new tool is held", func(s control.Server) bool {
		return s.Tools == tools && strings.Contains(s.Detail, "1 held back")
	})
	if _, err := c.call("shifty__added", map[string]any{}); err == nil || !strings.Contains(err.Error(), "held back") || listed() {
		t.Errorf("a tool that nobody accepted: %v, listed: %v", err, listed())
	}
	if stdout, stderr, code := p.command("pins"); code != 0 || !strings.Contains(stdout, "shifty") || !strings.Contains(stdout, "added") {
		t.Errorf("pfar pins: %d, %s, %s", code, stdout, stderr)
	}
	before := p.mark()
	if stdout, stderr, code := p.command("pins", "accept", "shifty", "added", "--yes"); code != 0 {
		t.Fatalf("pfar pins accept: %d, %s, %s", code, stdout, stderr)
	}
	p.awaitFrom(before, "the tool is served", soon, func(r control.Report) bool { return server(r, "shifty").Tools == tools+1 })
	if !listed() {
		t.Error("the accepted tool is not listed")
	}
	change("the tool is gone", func(s control.Server) bool { return s.Tools == tools })
	change("the tool is back as it was", func(s control.Server) bool { return s.Tools == tools+1 })
}

// underWay waits until a call of a tool is recorded, which it is before the server gets it.
func (p *pfar) underWay(tool string) {
	p.t.Helper()
	until(p.t, "a call of "+tool, func() bool {
		stdout, _, _ := p.command("audit", "--json")
		return strings.Contains(stdout, fmt.Sprintf(`"tool":%q`, tool))
	})
}

// TestCallsInFlightEnd: who ends pfar lets the calls that are under way end first.
func TestCallsInFlightEnd(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"slow.hcl": echo(t)})
	p.awaitRunning("slow")
	c := p.client("/mcp")
	answered := make(chan string, 1)
	go func() {
		r, err := c.call("slow__sleep", map[string]any{"milliseconds": 1500})
		answered <- fmt.Sprintf("%v %v", r, err)
	}()
	p.underWay("sleep")
	p.stop()
	if got := <-answered; !strings.Contains(got, "<nil>") {
		t.Errorf("the call ended with %s", got)
	}
}
