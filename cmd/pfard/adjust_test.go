package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// TestEditThatCannotBeTaken: a server that may go by what its file said before is started again, by what it says now.
func TestEditThatCannotBeTaken(t *testing.T) {
	for name, tt := range map[string]struct {
		edit  string
		asked bool
	}{
		"the gateway is deaf": {"label = \"secret\"\n", true},
		"another environment": {"label = \"secret\"\nenv = { A = \"b\" }\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			d, m, changed := fixture(t)
			asked := false
			m.adjust = func(plan.Plan) error { asked = true; return errors.New("deaf") }
			d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
			changed <- struct{}{}
			d.state(t)
			d.put(t, "a.hcl", tt.edit+fmt.Sprintf(good, "x"))
			changed <- struct{}{}
			d.state(t)
			if m.starts["a"] != 2 || m.runs["a"].Gateway.Label != "secret" || asked != tt.asked {
				t.Errorf("starts %v, runs by the label %q, asked %v", m.starts, m.runs["a"].Gateway.Label, asked)
			}
		})
	}
}

// TestEditThatIsTaken: it shows once it is in force, and neither the process nor its sessions know of it. What comes
// meanwhile waits, or goes by it.
func TestEditThatIsTaken(t *testing.T) {
	const text = "sessions = \"own\"\nlabel = %q\nserver {\n  command = \"sh\"\n}\n"
	d, m, changed := fixture(t)
	adjusting, taken := make(chan plan.Plan), make(chan error)
	m.adjust = func(p plan.Plan) error { adjusting <- p; return <-taken }
	d.put(t, "a.hcl", fmt.Sprintf(text, "public"))
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "a", State: units.StateRunning, PID: 7, Tools: 1})
	const early, late = "aaaaaaaa", "bbbbbbbb"
	if err := d.orders.open(t.Context(), "a", early); err != nil {
		t.Fatal(err)
	}
	before := d.state(t)["a"]

	d.put(t, "a.hcl", fmt.Sprintf(text, "secret"))
	changed <- struct{}{}
	if p := <-adjusting; p.Gateway.Label != "secret" || p.Gateway.Session != "" {
		t.Errorf("first comes %+v", p.Gateway)
	}
	if r := d.reportNow(t); r.Servers[0].Label != "public" {
		t.Errorf("the label %q shows before it is in force", r.Servers[0].Label)
	}
	if err := d.orders.open(t.Context(), "a", late); err != nil {
		t.Fatal(err)
	}
	d.put(t, "a.hcl", fmt.Sprintf(text, "regulated")) // and one more
	changed <- struct{}{}
	taken <- nil
	if p := <-adjusting; p.Gateway.Session != early {
		t.Errorf("then comes %+v", p.Gateway)
	}
	taken <- nil
	for range 3 { // the server and two sessions
		if p := <-adjusting; p.Gateway.Label != "regulated" {
			t.Errorf("of the next edit comes %+v", p.Gateway)
		}
		taken <- nil
	}
	after := d.state(t)["a"]
	same := after.Since == before.Since && after.PID == before.PID && after.State == control.Running
	if !same || after.Label != "regulated" || len(after.Sessions) != 2 {
		t.Errorf("%+v, it was %+v", after, before)
	}
	for _, name := range []string{"a", units.Instance("a", early), units.Instance("a", late)} {
		if m.count(name) != 1 || m.runs[name].Gateway.Label != "regulated" {
			t.Errorf("%s was started %d times and runs by the label %q", name, m.count(name), m.runs[name].Gateway.Label)
		}
	}
}

// TestHalfAnEdit: a pfard that finds that the one before it was killed in the middle of an edit starts the server
// again.
func TestHalfAnEdit(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	p := m.runs["a"]
	d.within(t, func() {
		d.fleet.servers = map[string]*server{}
		runs := units.Update{Server: "a", State: units.StateRunning, PID: 7}
		d.adopt([]systemd.Found{{Plan: p, Half: true, Applied: "another", Update: runs}})
	})
	changed <- struct{}{}
	if d.state(t); m.starts["a"] != 2 {
		t.Errorf("starts %v", m.starts)
	}
}
