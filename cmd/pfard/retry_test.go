package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// alarms is a clock that the test moves.
type alarms struct {
	pauses []time.Duration
	ring   func()
}

type alarmStop struct{ a *alarms }

func (s *alarmStop) Stop() bool { s.a.ring = nil; return true }

func (a *alarms) after(pause time.Duration, f func()) interface{ Stop() bool } {
	a.pauses, a.ring = append(a.pauses, pause), f
	return &alarmStop{a}
}

// crashed tells the daemon that a server's third crash in a row has disabled it.
func crashed(d *daemon, name string) {
	d.fleet.changed(units.Update{Server: name, State: units.StateFailed, Detail: "disabled after 3 crashes in a row: no registry", Crashes: 3, Ended: true})
}

// TestCrashedServerIsTriedAgain: what it lacked may be there in a while, and nobody may be there to say so.
func TestCrashedServerIsTriedAgain(t *testing.T) {
	d, m, changed := fixture(t)
	var a alarms
	d.fleet.after = a.after
	d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\n")
	changed <- struct{}{}
	starts := 1
	for try, pause := range []string{"10 min", "1 h", "6 h", "6 h"} {
		crashed(d, "a")
		s := d.state(t)["a"]
		if s.State != control.Failed || !strings.HasSuffix(s.Detail, "no registry; pfar starts it again "+pause+" after that") {
			t.Fatalf("try %d: %s, %q", try, s.State, s.Detail)
		}
		ring := a.ring
		if m.count("a") != starts || ring == nil {
			t.Fatalf("try %d: %d starts before the pause is over", try, m.count("a"))
		}
		go ring()
		for starts++; m.count("a") < starts; {
			time.Sleep(time.Millisecond)
		}
		d.state(t)
	}
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning})
	crashed(d, "a")
	d.state(t)
	if want := []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour, 6 * time.Hour, 10 * time.Minute}; !slices.Equal(a.pauses, want) {
		t.Errorf("pauses %v, want %v", a.pauses, want)
	}
}

// TestWhatIsNotTriedAgain: what cannot run on this host, and what the owner has stopped meanwhile.
func TestWhatIsNotTriedAgain(t *testing.T) {
	for name, change := range map[string]func(*daemon){
		"cannot start": func(d *daemon) {
			d.fleet.changed(units.Update{Server: "a", State: units.StateFailed, Detail: "bubblewrap is not installed", Ended: true})
		},
		"stopped": func(d *daemon) {
			crashed(d, "a")
			_ = d.do(func() error { return d.orders.turn(control.Stop, "a") })
		},
		"disabled": func(d *daemon) {
			crashed(d, "a")
			_ = d.do(func() error { return d.disable("a") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, m, changed := fixture(t)
			var a alarms
			d.fleet.after = a.after
			d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\n")
			changed <- struct{}{}
			d.state(t)
			change(d)
			d.state(t)
			if a.ring != nil {
				a.ring()
			}
			d.state(t)
			if m.count("a") != 1 {
				t.Errorf("%d starts", m.count("a"))
			}
		})
	}
}

// TestTriesBeginAnew: who has a server started has it started as if it had never crashed.
func TestTriesBeginAnew(t *testing.T) {
	for name, start := range map[string]func(t *testing.T, d *daemon, changed chan struct{}){
		"pfar start": func(t *testing.T, d *daemon, _ chan struct{}) {
			ask(t, d, control.Request{Verb: control.Start, Server: "a"})
		},
		"pfar restart": func(t *testing.T, d *daemon, _ chan struct{}) {
			ask(t, d, control.Request{Verb: control.Restart, Server: "a"})
		},
		"pfar enable": func(t *testing.T, d *daemon, _ chan struct{}) {
			ask(t, d, control.Request{Verb: control.Enable, Server: "a"})
		},
		"systemctl start": func(_ *testing.T, d *daemon, _ chan struct{}) {
			_ = d.do(func() error { d.fleet.servers["a"].has.Found(nil); return nil }) // as the runner of systemd has it
			d.fleet.changed(units.Update{Server: "a", State: units.StateStarting, PID: 9, Outside: true})
		},
		"another file": func(t *testing.T, d *daemon, changed chan struct{}) {
			d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\ndescription = \"other\"\n")
			changed <- struct{}{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, _, changed := fixture(t)
			var a alarms
			d.fleet.after = a.after
			d.put(t, "a.hcl", "server {\n  command = \"sh\"\n}\n")
			changed <- struct{}{}
			d.state(t)
			crashed(d, "a")
			d.state(t)
			start(t, d, changed)
			d.state(t)
			d.fleet.changed(units.Update{Server: "a", State: units.StateStarting})
			crashed(d, "a")
			if s := d.state(t)["a"]; !strings.HasSuffix(s.Detail, "; pfar starts it again 10 min after that") {
				t.Errorf("it is %s: %s", s.State, s.Detail)
			}
		})
	}
}
