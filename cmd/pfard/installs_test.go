package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// TestInstallRefuses: what is not a package, or no server's, is not installed.
func TestInstallRefuses(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", "server {\n  command = \"true\"\n}\n")
	changed <- struct{}{}
	d.state(t)
	for what, c := range map[string]struct {
		q    control.Request
		want error
	}{
		"nothing": {control.Request{}, control.ErrInvalid},
		"both": {control.Request{SettingUp: control.SettingUp{Package: "npm:x@1.0.0"}, Server: "a"},
			control.ErrInvalid},
		"a range":     {control.Request{SettingUp: control.SettingUp{Package: "npm:x@^1.0.0"}}, control.ErrInvalid},
		"a path":      {control.Request{SettingUp: control.SettingUp{Package: "npm:../../x@1.0.0"}}, control.ErrInvalid},
		"an option":   {control.Request{SettingUp: control.SettingUp{Package: "npm:--prefix@1.0.0"}}, control.ErrInvalid},
		"no name":     {control.Request{Server: "../a"}, control.ErrInvalid},
		"no server":   {control.Request{Server: "b"}, control.ErrNoServer},
		"no package":  {control.Request{Server: "a"}, control.ErrInvalid},
		"no registry": {control.Request{SettingUp: control.SettingUp{Package: "gem:x@1.0.0"}}, control.ErrInvalid},
	} {
		c.q.Verb = control.Install
		err := d.answer(t.Context(), control.Peer{UID: 1000}, c.q, func(control.Response) error { return nil })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// npm is a machine that runs installers: each ends with the words that fails has, or leaves a package.
type npm struct {
	t     *testing.T
	d     *daemon
	fails chan string
}

func (n npm) Stop(string) {}

func (n npm) Start(p plan.Plan, _ units.Secrets) error {
	go func() {
		why := <-n.fails
		u := units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateFailed, Detail: why, Ended: true}
		if why == "" {
			n.leave(p.PrivateHome())
			u.State = units.StateStopped
		}
		n.d.heard(context.Background(), u)
	}()
	return nil
}

// leave does what npm does.
func (n npm) leave(stage string) {
	for name, text := range map[string]string{
		"tree/node_modules/mcp-x/package.json": `{"name": "mcp-x", "version": "1.0.0", "bin": "x"}`,
		"tree/node_modules/mcp-x/x":            "#!/bin/sh\n",
		"lock.json": `{"packages": {"node_modules/mcp-x": {"version": "1.0.0", "integrity": "sha512-A",
			"resolved": "https://r.example/x.tgz"}}}`,
		"done": "",
	} {
		at := filepath.Join(stage, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			n.t.Error(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o755); err != nil {
			n.t.Error(err)
		}
	}
}

// TestMissingPackages: pfard installs a package that is declared and missing once. Meanwhile its server is being
// installed, and nobody is told of a mistake. A failure is said with its reason, tried again in time and no sooner, and
// not any more once nobody wants the package. What the operator has installed starts.
func TestMissingPackages(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"npm", "node"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	d, m, changed := fixture(t)
	n := npm{t, d, make(chan string)}
	var a alarms
	if err := d.do(func() error { d.fleet.after = a.after; d.orders.installs.jobs.Run(n); return nil }); err != nil {
		t.Fatal(err)
	}
	const text = "package = \"npm:mcp-x@1.0.0\"\n"
	becomes := func(what string, is func(control.Server) bool) {
		t.Helper()
		t.Log(what)
		d.awaitOnly(t, is)
	}
	installing := func(s control.Server) bool {
		return s.State == control.Fetching && s.Detail == "npm:mcp-x@1.0.0"
	}
	failed := func(why string) func(control.Server) bool {
		return func(s control.Server) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return s.Broken && s.State != control.Fetching && strings.Contains(m.runs["a"].Fault, why)
		}
	}
	mistakes := func() (all string) {
		t.Helper()
		if err := d.do(func() error {
			for _, g := range d.reader.diagnostics {
				all += g.Text
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(all), " ")
	}
	d.put(t, "a.hcl", text)
	changed <- struct{}{}
	becomes("installing", installing)
	if all := mistakes(); all != "" {
		t.Errorf("while it is being installed: %s", all)
	}
	changed <- struct{}{} // which does not begin anew
	n.fails <- "no network"
	becomes("failed", failed("no network; its log:"))
	if all := mistakes(); !strings.Contains(all, "no network") || !strings.Contains(all, "10 min after that") {
		t.Errorf("why it is not there: %s", all)
	}
	changed <- struct{}{}
	if d.state(t); d.orders.installs.jobs.Under(source.Package{Kind: source.NPM, Name: "mcp-x", Version: "1.0.0"}) {
		t.Fatal("it is tried again at once")
	}
	go a.ring()
	becomes("installing again", installing)
	n.fails <- "still none"
	becomes("failed again", failed("still none"))
	if len(a.pauses) != 2 || a.pauses[1] <= a.pauses[0] {
		t.Errorf("pauses: %v", a.pauses)
	}
	go func() { n.fails <- "" }()
	q := control.Request{Verb: control.Install, Server: "a"}
	if err := d.answer(t.Context(), control.Peer{}, q, func(control.Response) error { return nil }); err != nil {
		t.Fatal(err)
	}
	becomes("there", func(s control.Server) bool { return !s.Broken })
	if d.state(t); a.ring != nil {
		t.Error("it is to be tried again")
	}
	if all := mistakes(); all != "" {
		t.Errorf("once it is there: %s", all)
	}
}
