package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

func refusal(t *testing.T, d *daemon, q control.Request) error {
	return d.answer(t.Context(), control.Peer{}, q, func(control.Response) error { return nil })
}

// TestADisabledServerStaysOff, whatever asks for it.
func TestADisabledServerStaysOff(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "b.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	ask(t, d, control.Request{Verb: control.Disable, Server: "a"})
	isOff := func(when string) {
		t.Helper()
		if s := d.state(t)["a"]; s.State != control.Stopped || s.Detail != "disabled by you; pfar enable a" || len(m.instances()) != 1 {
			t.Fatalf("%s: %s %q, running %v", when, s.State, s.Detail, m.instances())
		}
	}
	isOff("disabled")
	for _, verb := range []control.Verb{control.Start, control.Restart, control.Learn, control.Open} {
		if err := refusal(t, d, control.Request{Verb: verb, Server: "a", Session: "abcdefg2"}); !errors.Is(err, control.ErrOff) {
			t.Errorf("%s: %v", verb, err)
		}
		isOff(string(verb))
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "changed"))
	changed <- struct{}{}
	isOff("its file changed")
	if err := os.Remove(filepath.Join(d.options.declarations, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if s := d.state(t); len(s) != 1 {
		t.Fatalf("its file is gone: %v", s)
	}
	if err := refusal(t, d, control.Request{Verb: control.Enable, Server: "a"}); !errors.Is(err, control.ErrNoServer) {
		t.Errorf("enable of what is not declared: %v", err)
	}
	d.put(t, "a.hcl", fmt.Sprintf(good, "back"))
	changed <- struct{}{}
	isOff("its file is back")
	ask(t, d, control.Request{Verb: control.Stop, Server: "a"})
	ask(t, d, control.Request{Verb: control.Disable, Server: "a"})
	isOff("disabled twice")

	next, n, again := fixture(t) // pfard, started anew
	if err := next.do(func() error { next.fleet.dirs = d.fleet.dirs; return nil }); err != nil {
		t.Fatal(err)
	}
	next.put(t, "a.hcl", fmt.Sprintf(good, "back"))
	again <- struct{}{}
	if s := next.state(t)["a"]; s.State != control.Stopped || s.Detail != "disabled by you; pfar enable a" || len(n.instances()) != 0 {
		t.Errorf("after a restart: %s %q, running %v", s.State, s.Detail, n.instances())
	}

	ask(t, d, control.Request{Verb: control.Enable, Server: "a"})
	if s := d.state(t)["a"]; s.State != control.Starting || m.runs["a"].Gateway.Description != "back" {
		t.Errorf("enabled: %s %q, running %v", s.State, s.Detail, m.instances())
	}
	if _, err := os.Lstat(d.options.dirs.Disabled("a")); !os.IsNotExist(err) {
		t.Errorf("the mark: %v", err)
	}
	starts := m.starts["a"]
	ask(t, d, control.Request{Verb: control.Enable, Server: "a"})
	if d.state(t); m.starts["a"] != starts {
		t.Errorf("enable of a running server started it again")
	}
}

func TestEnable(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "crashed.hcl", fmt.Sprintf(good, "x"))
	d.put(t, "later.hcl", fmt.Sprintf(good, "x")+"autostart = false\n")
	d.put(t, "off.hcl", fmt.Sprintf(good, "x")+"enabled = false\n")
	changed <- struct{}{}
	d.state(t)
	d.fleet.changed(units.Update{Server: "crashed", State: "failed", Detail: "disabled after 3 crashes in a row", Crashes: 3})
	ask(t, d, control.Request{Verb: control.Enable, Server: "crashed"})
	if s := d.state(t)["crashed"]; s.State != control.Starting || s.Crashes != 0 || m.starts["crashed"] != 2 {
		t.Errorf("a crashed server: %+v, %d starts", s, m.starts["crashed"])
	}
	ask(t, d, control.Request{Verb: control.Enable, Server: "later"})
	if d.state(t); m.starts["later"] != 1 {
		t.Errorf("one that does not start by itself: %d starts", m.starts["later"])
	}
	ask(t, d, control.Request{Verb: control.Disable, Server: "later"})
	d.put(t, "later.hcl", fmt.Sprintf(good, "changed")+"autostart = false\n")
	changed <- struct{}{}
	if s := d.state(t)["later"]; s.State != control.Stopped || s.Detail != "disabled by you; pfar enable later" {
		t.Errorf("one that would sleep until a call wants it: %s %q", s.State, s.Detail)
	}
	for _, verb := range []control.Verb{control.Wake, control.Sleep} {
		if err := refusal(t, d, control.Request{Verb: verb, Server: "later"}); !errors.Is(err, control.ErrOff) {
			t.Errorf("%s of a disabled server: %v", verb, err)
		}
	}
	ask(t, d, control.Request{Verb: control.Disable, Server: "off"})
	if s := d.state(t)["off"]; s.Detail != "disabled by you; pfar enable off" {
		t.Errorf("disabled by its file and by the operator: %q", s.Detail)
	}
	if err := refusal(t, d, control.Request{Verb: control.Enable, Server: "off"}); !errors.Is(err, control.ErrDisabled) {
		t.Errorf("enable of what its file disables: %v", err)
	}
	if s := d.state(t)["off"]; s.Off != control.OffByFile || m.starts["off"] != 0 {
		t.Errorf("disabled by its file alone: %q, %d starts", s.Detail, m.starts["off"])
	}
	for _, verb := range []control.Verb{control.Enable, control.Disable} {
		for _, name := range []string{"", "none", "../../off"} {
			if err := refusal(t, d, control.Request{Verb: verb, Server: name}); !errors.Is(err, control.ErrNoServer) {
				t.Errorf("%s %q: %v", verb, name, err)
			}
		}
	}
}

// TestDisableThatCannotBeRemembered is refused, and changes nothing.
func TestDisableThatCannotBeRemembered(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "x"))
	changed <- struct{}{}
	d.state(t)
	if err := os.WriteFile(filepath.Dir(d.options.dirs.Disabled("a")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := refusal(t, d, control.Request{Verb: control.Disable, Server: "a"}); err == nil || !strings.Contains(err.Error(), `remembering that "a" is disabled`) {
		t.Errorf("got %v", err)
	}
	if d.state(t); len(m.instances()) != 1 {
		t.Errorf("running %v", m.instances())
	}
	d.put(t, "b.hcl", fmt.Sprintf(good, "x")) // it cannot be known whether this one is disabled
	changed <- struct{}{}
	if s := d.state(t)["b"]; s.State != control.Stopped || len(m.instances()) != 1 {
		t.Errorf("b: %s, running %v", s.State, m.instances())
	}
}
