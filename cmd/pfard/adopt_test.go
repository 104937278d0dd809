package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// remembers has pfard write down what its owner says, in a directory for the next one.
func (d *daemon) remembers(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	n, err := newIntents(dir, d.log)
	if err != nil {
		t.Fatal(err)
	}
	d.within(t, func() { d.fleet.intents = n })
	return dir
}

// again is the next pfard over what d has left: what ran still does.
func again(t *testing.T, d *daemon, m *machine, dir string, running ...string) (*daemon, *machine, chan struct{}) {
	t.Helper()
	next, other, changed := fixture(t)
	n, err := newIntents(dir, d.log)
	if err != nil {
		t.Fatal(err)
	}
	var found []systemd.Found
	m.mu.Lock()
	for name, p := range m.runs {
		f := systemd.Found{Plan: p, Update: units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateRunning, PID: 7}}
		if f.Idle = !slices.Contains(running, name); !f.Idle {
			other.runs[name] = p
		}
		f.Applied = plan.Digest(p)
		found = append(found, f)
	}
	m.mu.Unlock()
	_ = d.do(func() error { // what it has stopped itself is offered to others
		for _, s := range d.fleet.servers {
			if s.want != nil && s.has.Started == nil {
				found = append(found, systemd.Found{Plan: s.plan(), Idle: true})
			}
		}
		return nil
	})
	err = next.do(func() error {
		next.options.declarations, next.fleet.intents, next.vault = d.options.declarations, n, d.vault
		next.delivery.vault, next.delivery.given = served{d.vault, next.tokens}, newGiven(d.options.dirs.Given(), next.log)
		next.adopt(found)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	return next, other, changed
}

// TestTheNextPfard finds what the last one left, and does as the owner last said.
func TestTheNextPfard(t *testing.T) {
	d, m, changed := fixture(t)
	dir := d.remembers(t)
	for _, name := range []string{"runs", "halts", "ends", "edited", "broken", "removed", "kept"} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x"))
	}
	d.put(t, "later.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	d.put(t, "many.hcl", fmt.Sprintf(own, "x"))
	changed <- struct{}{}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Stop, Server: "halts"})
	ask(t, d, control.Request{Verb: control.Start, Server: "later"})
	d.mustOpen(t, "many", first)
	d.state(t)

	// Meanwhile: "ends" was stopped by systemctl, and files were edited.
	d.put(t, "edited.hcl", fmt.Sprintf(good, "other"))
	d.put(t, "broken.hcl", "server {")
	if err := os.Remove(filepath.Join(d.options.declarations, "removed.hcl")); err != nil {
		t.Fatal(err)
	}
	next, other, _ := again(t, d, m, dir, "runs", "edited", "broken", "removed", "kept", "later", "many", "many_"+first)
	states := next.state(t)
	for name, want := range map[string]control.State{
		"runs": control.Running, "halts": control.Stopped, "ends": control.Stopped, "edited": control.Starting, "broken": control.Running,
		"kept": control.Running, "later": control.Running, "many": control.Running,
	} {
		if states[name].State != want {
			t.Errorf("%s is %s (%s), want %s", name, states[name].State, states[name].Detail, want)
		}
	}
	if _, ok := states["removed"]; ok || other.starts["edited"] != 1 || other.starts["runs"] != 0 || len(states["many"].Sessions) != 1 {
		t.Errorf("started %v; %+v", other.starts, states["many"])
	}
	if !states["broken"].Stale {
		t.Error("what runs by a file that is broken by now is not said to be stale")
	}
}

// TestAnotherPlanByTheSameFile: only the owner's word starts what was stopped, not what the host has become.
func TestAnotherPlanByTheSameFile(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "stopped.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "runs.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Stop, Server: "stopped"})
	d.state(t)
	_ = d.do(func() error { d.options.dirs.State = t.TempDir(); return nil }) // which plans name
	for _, name := range []string{"stopped.hcl", "runs.hcl"} {
		d.put(t, name, fmt.Sprintf(good, "x")) // touched
	}
	changed <- struct{}{}
	if s := d.state(t); s["stopped"].State != control.Stopped || m.starts["stopped"] != 1 {
		t.Errorf("%+v, started %v", s["stopped"], m.starts)
	}
	d.put(t, "stopped.hcl", fmt.Sprintf(good, "other"))
	changed <- struct{}{}
	if s := d.state(t); s["stopped"].State != control.Starting || m.starts["stopped"] != 2 {
		t.Errorf("%+v, started %v", s["stopped"], m.starts)
	}
}

// TestTurnedOutside: systemctl is as good a word as ours.
func TestTurnedOutside(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(own, "x"))
	changed <- struct{}{}
	d.state(t)
	d.mustOpen(t, "a", first)
	d.fleet.changed(units.Update{Server: "a", State: units.StateStopped, Detail: "stopped by systemctl", Ended: true, Outside: true})
	if s := d.state(t)["a"]; s.State != control.Stopped || len(s.Sessions) != 0 || m.starts["a"] != 1 {
		t.Errorf("stopped: %+v", s)
	}
	m.mu.Lock()
	delete(m.runs, "a") // the machine's part
	m.mu.Unlock()
	d.fleet.changed(units.Update{Server: "a", State: units.StateStarting, PID: 9, Outside: true})
	if s := d.state(t)["a"]; s.State != control.Starting || s.PID != 9 || m.starts["a"] != 1 {
		t.Errorf("started: %+v, %d starts of ours", s, m.starts["a"])
	}
	changed <- struct{}{}
	if s := d.state(t)["a"]; s.State != control.Starting {
		t.Errorf("after another look at the files: %+v", s)
	}
	d.put(t, "a.hcl", fmt.Sprintf(own, "x")+"enabled = false\n")
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateStarting, PID: 10, Outside: true})
	if s := d.state(t)["a"]; s.State != control.Stopped {
		t.Errorf("what nobody may start: %+v", s)
	}
}

// TestTheNextPfardRecognises what the last one gave to a server that runs on, also from the environment.
func TestTheNextPfardRecognises(t *testing.T) {
	const value = "tok-4mYq81RzLc0pXvWbT7uKd2"
	t.Setenv("FROM_OUTSIDE", value)
	d, m, changed := fixture(t)
	dir := d.remembers(t)
	d.put(t, "runs.hcl", fmt.Sprintf(good, "x")+"auth = { TOKEN = \"$FROM_OUTSIDE\" }\n")
	changed <- struct{}{}
	d.state(t)
	next, _, _ := again(t, d, m, dir, "runs")
	if got := next.redaction.clean("it is " + value); got != "it is [redacted: $FROM_OUTSIDE]" {
		t.Errorf("a server that runs on says %q", got)
	}
}

// TestSince: the next pfard knows since when each server is in its state, if that is the same stay.
func TestSince(t *testing.T) {
	d, m, changed := fixture(t)
	dir := d.remembers(t)
	for _, name := range []string{"runs", "other", "stopped"} {
		d.put(t, name+".hcl", fmt.Sprintf(good, "x"))
	}
	changed <- struct{}{}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Stop, Server: "stopped"})
	d.fleet.changed(units.Update{Server: "runs", State: units.StateRunning, PID: 7})
	d.fleet.changed(units.Update{Server: "other", State: units.StateRunning, PID: 6}) // and 7 by the time that there is a pfard again
	d.state(t)
	d.within(t, func() {
		for _, s := range d.fleet.servers {
			s.since = after(s.since.boot - time.Hour)
		}
		d.tell()
	})
	before := d.state(t)
	next, _, _ := again(t, d, m, dir, "runs", "other")
	states := next.state(t)
	for name, same := range map[string]bool{"runs": true, "other": false, "stopped": true} {
		if moved := states[name].Since.Sub(before[name].Since); (moved.Abs() < time.Minute) != same {
			t.Errorf("%s: %s since %s, and was since %s", name, states[name].State, states[name].Since, before[name].Since)
		}
	}
}

// TestUnreached: what a unit says in vain is shown as long as it does, and logged once.
func TestUnreached(t *testing.T) {
	d, _, changed := fixture(t)
	var log bytes.Buffer
	d.within(t, func() { d.fleet.log = slog.New(slog.NewTextHandler(&log, nil)) })
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	const words = "Environment= of pfar-mcp@a.service does not reach the server: write env in the declaration"
	in := units.Confinement{Unreached: words}
	for _, u := range []units.Update{{Tools: 1, Confinement: in}, {Tools: 2, Confinement: in}} {
		u.Server, u.State, u.Detail = "a", units.StateRunning, "tools"
		d.fleet.changed(u)
		if s := d.state(t)["a"]; s.Detail != "tools; "+words {
			t.Errorf("shown: %q", s.Detail)
		}
	}
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, Detail: "tools"})
	if s := d.state(t)["a"]; s.Detail != "tools" {
		t.Errorf("shown though it is gone: %q", s.Detail)
	}
	d.within(t, func() {
		if n := strings.Count(log.String(), words); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
	})
}
