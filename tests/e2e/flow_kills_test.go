package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/units/flows"
)

// desk is a pfar with one server, whose calls end as files say.
type desk struct {
	*pfar
	path string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	dir := directory(t, "")
	check(t, os.Chmod(dir, 0o777))
	d := &desk{path: filepath.Join(dir, "acts")}
	d.pfar = prepare(t, map[string]string{"desk.hcl": declare(program(t, "standin"), []string{"-acts", d.path},
		"pins = \"trust-first\"\ntool \"look\" { semantics = \"read\" }\ntool \"write\" { semantics = \"write\" }\n"+
			"sandbox { writable = ["+quote(dir)+"] }\n")})
	check(t, os.Mkdir(filepath.Join(d.home, "clients.d"), 0o755))
	put(t, filepath.Join(d.home, "clients.d", "default.hcl"),
		"servers = [\"*\"]\nprofile = \"operator\"\nrelax = \"a test\"\n")
	d.up()
	d.awaitRunning("desk")
	return d
}

// acts says how the next calls of look and of write end.
func (d *desk) acts(look, write string) {
	d.t.Helper()
	for name, text := range map[string]string{"": look, ".write": write} {
		put(d.t, d.path+name, text)
		check(d.t, os.Chmod(d.path+name, 0o666))
	}
	for _, name := range []string{".calls", ".written"} {
		put(d.t, d.path+name, "")
		check(d.t, os.Chmod(d.path+name, 0o666))
	}
}

func (d *desk) lines(name string) []string {
	d.t.Helper()
	b, err := os.ReadFile(d.path + name)
	check(d.t, err)
	return strings.Fields(string(b))
}

// begin runs a flow, which outlives the command that began it.
func (d *desk) begin(line string) (ended <-chan string) {
	out := make(chan string, 1)
	go func() {
		said, complaint, code := d.command("flow", "run", line)
		out <- fmt.Sprintf("exit %d: %s%s", code, said, complaint)
	}()
	return out
}

// run is the newest run.
func (d *desk) run() flows.Status {
	d.t.Helper()
	out, errs, code := d.command("flow", "list", "--json")
	var all []flows.Status
	if err := json.Unmarshal([]byte(out), &all); code != 0 || err != nil {
		return flows.Status{Reason: out + errs}
	}
	newest := flows.Status{}
	for _, r := range all {
		if r.Begun.After(newest.Begun) {
			newest = r
		}
	}
	return newest
}

func (d *desk) becomes(state flows.State) flows.Status {
	d.t.Helper()
	var last flows.Status
	until(d.t, "the run is "+string(state), func() bool {
		last = d.run()
		over := last.State == flows.Done || last.State == flows.Failed
		return last.State == state || over
	})
	if last.State != state {
		d.t.Fatalf("the run is %s, want %s: %s", last.State, state, last.Reason)
	}
	return last
}

// killGateway kills the gateway with SIGKILL, and returns when there is another one.
func (d *desk) killGateway() {
	d.t.Helper()
	g := d.gateway()
	check(d.t, syscall.Kill(g.pid, syscall.SIGKILL))
	awaitGone(d.t, soon, []process{g})
	d.gateway(g)
}

// TestFlowKilled kills the gateway with SIGKILL between each two of the writes of a flow of ten steps, and in the
// course of a write. Between them, each write is made once. In the course of one it is made at most once, and the run
// waits for its owner, with the words that its outcome is not known.
func TestFlowKilled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	t.Run("between writes", func(t *testing.T) {
		const writes = 5
		var line, looks, want []string
		for i := range writes {
			want = append(want, fmt.Sprintf("w%d", i))
			line = append(line, fmt.Sprintf("desk.write --text w%d >> desk.look", i))
			looks = append(looks, "hang", "well") // it only reads, and is called again after the kill
		}
		d.acts(strings.Join(looks, "\n")+"\n", "")
		ended := d.begin(strings.Join(line, " >> "))
		for i := range writes {
			until(t, "the next step between writes is called", func() bool { return len(d.lines(".calls")) == 2*i+1 })
			if got := d.lines(".written"); !slices.Equal(got, want[:i+1]) {
				t.Fatalf("written %q, want %q", got, want[:i+1])
			}
			d.killGateway()
			if i > 0 {
				continue
			}
			if said := <-ended; !strings.HasPrefix(said, "exit 1: ") || !strings.Contains(said, "pfar flow show ") {
				t.Errorf("the command ends with %s", said)
			}
		}
		r := d.becomes(flows.Done)
		if got := d.lines(".written"); !slices.Equal(got, want) {
			t.Errorf("written %q, want %q; the run: %+v", got, want, r)
		}
	})
	for past, want := range map[string][]string{"--done": {"w", "next"}, "--again": {"w", "w", "next"}} {
		t.Run("in the course of a write, then "+past, func(t *testing.T) {
			d.acts("", "hang\n")
			ended := d.begin("desk.write --text w >> desk.look >> desk.write --text next")
			until(t, "the write is called", func() bool { return len(d.lines(".written")) == 1 })
			d.killGateway()
			<-ended
			r := d.becomes(flows.Unknown)
			out, errs, code := d.command("flow", "show", r.ID)
			if code != 0 || !strings.Contains(out, "not known") || !strings.Contains(out+errs, "pfar flow resume "+r.ID) {
				t.Errorf("its owner is told: exit %d, %s%s", code, out, errs)
			}
			if got := d.lines(".written"); !slices.Equal(got, want[:1]) || len(d.lines(".calls")) > 0 {
				t.Errorf("written %q before its owner has decided", got)
			}
			d.succeeds("flow", "resume", r.ID, past)
			d.becomes(flows.Done)
			if got := d.lines(".written"); !slices.Equal(got, want) {
				t.Errorf("written %q, want %q", got, want)
			}
		})
	}
}

// killPfard kills pfard with SIGKILL, and returns when pfar up, which ends with it, runs again as its user starts it.
func (d *desk) killPfard() {
	d.t.Helper()
	check(d.t, syscall.Kill(d.only("pfard"), syscall.SIGKILL))
	<-d.ended
	d.again()
	d.awaitRunning("desk")
}

// TestFlowKilledWithPfard kills pfard with SIGKILL in the course of each step of a flow of ten, whose even steps write.
// Its servers and the gateway end with it. When it is started again, the run goes on by itself if the step only reads:
// the step is called again. If it writes, it is called at most once, and the run waits for its owner.
func TestFlowKilledWithPfard(t *testing.T) {
	t.Parallel()
	const steps = 10
	d := newDesk(t)
	var line, all []string
	for i := range steps / 2 {
		all = append(all, fmt.Sprintf("w%d", i))
		line = append(line, "desk.write --text "+all[i], "desk.look")
	}
	for n := range steps {
		if testing.Short() && !slices.Contains([]int{2, 5, 9}, n) {
			continue // make test-all has all of them
		}
		t.Run(fmt.Sprintf("step %d", n), func(t *testing.T) {
			hang := strings.Repeat("well\n", n/2) + "hang\n"
			acts, calls, writes := [2]string{hang, ""}, n/2+1, n/2+1
			if n%2 == 0 {
				acts, calls = [2]string{"", hang}, n/2
			}
			d.acts(acts[0], acts[1])
			ended := d.begin(strings.Join(line, " >> "))
			until(t, "the step is called", func() bool {
				return len(d.lines(".calls")) == calls && len(d.lines(".written")) == writes
			})
			d.killPfard()
			if said := <-ended; strings.HasPrefix(said, "exit 0") {
				t.Errorf("the command ends with %s", said)
			}
			if n%2 == 0 {
				r := d.becomes(flows.Unknown)
				out, errs, code := d.command("flow", "show", r.ID)
				if code != 0 || !strings.Contains(out, "not known") ||
					!strings.Contains(out+errs, "pfar flow resume "+r.ID) {
					t.Errorf("its owner is told: exit %d, %s%s", code, out, errs)
				}
				if got := d.lines(".written"); !slices.Equal(got, all[:writes]) || len(d.lines(".calls")) != calls {
					t.Errorf("written %q before its owner has decided", got)
				}
				d.succeeds("flow", "resume", r.ID, "--done")
			}
			r := d.becomes(flows.Done)
			if got := d.lines(".written"); !slices.Equal(got, all) {
				t.Errorf("written %q, want %q; the run: %+v", got, all, r)
			}
		})
	}
}

// TestFlowOutlivesGateway ends the gateway in the course of a call that only reads and that outlasts the time for calls
// in flight. The next gateway makes the call again and goes on with the run: it has not failed by the end of the first.
func TestFlowOutlivesGateway(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.acts("hang\nwell\n", "")
	ended := d.begin("desk.write --text w0 >> desk.look >> desk.write --text w1")
	until(t, "the read is called", func() bool { return len(d.lines(".calls")) == 1 })
	g := d.gateway()
	check(t, syscall.Kill(g.pid, syscall.SIGTERM))
	awaitGone(t, soon, []process{g})
	<-ended
	var r flows.Status
	until(t, "the run is over", func() bool { r = d.run(); return r.State != "" && r.State != flows.Running })
	if got := d.lines(".written"); r.State != flows.Done || !slices.Equal(got, []string{"w0", "w1"}) {
		t.Errorf("written %q; the run is %s: %s", got, r.State, r.Reason)
	}
}
