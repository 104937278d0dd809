package runs

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

func TestMain(m *testing.M) {
	if at := os.Getenv("PFAR_RUNS_TEST"); at != "" {
		runUntil(os.Args[1], at)
	}
	os.Exit(m.Run())
}

// The flow of the kill tests has ten steps, every other of which writes.
const tenSteps = "wa b wc d we f wg h wi j"

// world is what the calls of a run have changed: a file with a line for each call that has reached its node. What was
// written to a file stays there when the process is killed.
type world struct{ path string }

func (w world) reached(id string) {
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, id)
		f.Close()
	}
	if err != nil {
		panic(err)
	}
}

// calls counts how often each step has reached its node.
func (w world) calls(t *testing.T) map[string]int {
	t.Helper()
	b, err := os.ReadFile(w.path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	n := make(map[string]int)
	for _, id := range strings.Fields(string(b)) {
		n[id]++
	}
	return n
}

// gateway is a Runner of the kill tests over a directory. heard hears of each moment at which it can be killed. late
// says that what calls that only read make of a run is written with the next one that writes, and not at once.
func gateway(dir string, late bool, heard func(moment string)) (*bed, error) {
	w := world{filepath.Join(dir, "world")}
	s := said(func(_ context.Context, c Call) (Result, error) {
		id := c.Plan.Steps[c.Step].ID
		heard("before call")
		w.reached(id)
		heard("after call")
		return good(strconv.Quote(id)), nil
	})
	limits := Limits{Late: -1}
	if late {
		limits.Late = time.Hour
	}
	b, err := s.open(filepath.Join(dir, "state"), limits)
	if err == nil {
		b.disk.commit = heard
	}
	return b, err
}

// runUntil is the process that is killed: it begins a run, says when it is at a moment, and stays there.
func runUntil(dir, at string) {
	time.AfterFunc(time.Hour, func() {}) // else the runtime may end a process in which all wait
	at, late := strings.CutPrefix(at, "late ")
	moment, nth, _ := strings.Cut(at, "#")
	left, _ := strconv.Atoi(nth)
	b, err := gateway(dir, late, func(m string) {
		if m != moment {
			return
		}
		if left--; left == 0 {
			fmt.Println("here")
			select {}
		}
	})
	if err == nil {
		b.Start()
		_, err = b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned(tenSteps), Label: gate.Start})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// killed runs the flow in a process of its own, and kills that at a moment.
func killed(t *testing.T, dir, at string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), "PFAR_RUNS_TEST="+at)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "here\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("it ended by itself")
	}
}

// TestKilled kills the gateway at each moment of a run of ten steps, and starts it again. Between two steps, each write
// has been made exactly once in the end. Inside a step that writes, at most once: the run waits for its owner then.
func TestKilled(t *testing.T) {
	for _, c := range []struct {
		moment string
		times  int  // that there are of it in a run
		inside bool // whether it is inside a step
	}{
		{"before create", 1, false},
		{"after create", 1, false},
		{"before commence", 5, false},
		{"after commence", 5, true},
		{"before call", 10, true},
		{"after call", 10, true},
		{"before settle", 10, true},
		{"after settle", 10, false},
	} {
		for nth := 1; nth <= c.times; nth++ {
			if testing.Short() && nth > 2 {
				break
			}
			t.Run(fmt.Sprintf("%s#%d", c.moment, nth), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				killed(t, dir, fmt.Sprintf("%s#%d", c.moment, nth))
				writes := nth%2 == 1 || c.moment == "after commence" // of the ten steps the first, third and so on
				afterwards(t, dir, c.inside && writes, c.moment != "before create")
			})
		}
	}
}

// afterwards starts the gateway that was killed again, and looks at what it makes of the run.
func afterwards(t *testing.T, dir string, doubt, begun bool) {
	b, err := gateway(dir, false, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.end)
	list, err := b.List(me)
	if err != nil {
		t.Fatal(err)
	}
	if !begun {
		if len(list) != 0 || len((world{filepath.Join(dir, "world")}).calls(t)) != 0 {
			t.Errorf("a run that was not written down: %+v", list)
		}
		return
	}
	if len(list) != 1 {
		t.Fatalf("there are %d runs", len(list))
	}
	id := list[0].ID
	w := world{filepath.Join(dir, "world")}
	before := w.calls(t)
	b.Start()
	s := b.rest(t, id)
	if doubt {
		if s.State != flows.Unknown || !strings.Contains(s.Reason, "not known") || s.At == "" {
			t.Fatalf("it is %s at %q: %q", s.State, s.At, s.Reason)
		}
		if n := w.calls(t)[s.At]; n > 1 || n != before[s.At] {
			t.Errorf("%s was called %d times", s.At, n)
		}
		past := PastDone // as its owner finds out
		if before[s.At] == 0 {
			past = PastAgain
		}
		if err := b.Resume(me, id, past); err != nil {
			t.Fatal(err)
		}
		s = b.until(t, id, func(s flows.Status) bool { return s.State != flows.Running })
	}
	if s.State != flows.Done {
		t.Fatalf("it is %s: %q", s.State, s.Reason)
	}
	after := w.calls(t)
	for _, step := range strings.Fields(tenSteps) {
		n := after[step]
		if strings.HasPrefix(step, "w") && n != 1 {
			t.Errorf("%s was called %d times", step, n)
		}
		if n < 1 || n > 2 {
			t.Errorf("%s was called %d times", step, n)
		}
	}
}

// TestKilledLate is TestKilled of a gateway that writes what calls that only read make of a run with the next change.
// These calls are made again after it was killed, and those that write are not.
func TestKilledLate(t *testing.T) {
	for _, c := range []struct {
		moment string
		times  int
		doubt  func(nth int) bool
	}{
		{"before commence", 5, func(int) bool { return false }},
		{"after commence", 5, func(int) bool { return true }},
		{"before call", 10, func(nth int) bool { return nth%2 == 1 }},
		{"after call", 10, func(nth int) bool { return nth%2 == 1 }},
		{"before settle", 6, func(nth int) bool { return nth < 6 }}, // of the five that write, and of the last one
		{"after settle", 6, func(int) bool { return false }},
	} {
		for nth := 1; nth <= c.times; nth++ {
			if testing.Short() && nth > 2 {
				break
			}
			t.Run(fmt.Sprintf("%s#%d", c.moment, nth), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				killed(t, dir, fmt.Sprintf("late %s#%d", c.moment, nth))
				afterwards(t, dir, c.doubt(nth), true)
			})
		}
	}
	t.Run("a read that is repeated", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		killed(t, dir, "late before commence#3") // of we: d is in no transaction yet
		w := world{filepath.Join(dir, "world")}
		if n := w.calls(t); n["d"] != 1 || n["we"] != 0 {
			t.Fatalf("before, it has called %v", n)
		}
		afterwards(t, dir, false, true)
		if n := w.calls(t); n["b"] != 1 || n["wc"] != 1 || n["d"] != 2 || n["we"] != 1 {
			t.Errorf("it has called %v", n)
		}
	})
}

// TestPlanOnDisk: a plan is the same when it is read from the disk.
func TestPlanOnDisk(t *testing.T) {
	p := planned("a=x wb<x c", "wb timeout> c")
	p.Steps[1].Params = map[string]json.RawMessage{"text": json.RawMessage(`"<&>  "`)}
	p.Steps[1].Reads = map[string]string{"x": "y"}
	p.Steps[1].Node.Pin = "pin"
	p.Flow.Edges = []flow.Edge{{From: "a", To: "wb"}}
	raw, err := encode(p)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	again, err := encode(back)
	if err != nil || string(again) != string(raw) {
		t.Errorf("%v: it is\n%s\nand then\n%s", err, raw, again)
	}
	if got := string(back.Steps[1].Params["text"]); got != `"<&>  "` {
		t.Errorf("its text is %s", got)
	}
	if back.Steps[1].ID != "wb" || back.Steps[1].Step.Node != "wb" || back.Steps[1].Node.Pin != "pin" ||
		back.Steps[1].Next["timeout"] != 2 || back.Digest != "digest" {
		t.Errorf("it is %+v", back.Steps[1])
	}
	for _, damaged := range []string{`{"Steps":[{"id":"a"}]}`, `{"Steps":[{"id":"a","Node":{},"Next":{"default":1}}]}`,
		`{"Steps":[{"id":"a","Node":{},"Next":{"default":-1}}]}`, `{`} {
		if _, err := decode([]byte(damaged)); err == nil {
			t.Errorf("%s is a plan", damaged)
		}
	}
}
