package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/plan"
)

// TestPolicyIsTold: the gateway hears of each good version of the folder, and of no other.
func TestPolicyIsTold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "policies.d")
	dirs := control.Dirs{Config: filepath.Join(filepath.Dir(dir), "mcp.d")}
	d := newDaemon(options{dirs: dirs}, slog.New(slog.DiscardHandler), nil, "")
	d.policy.confine(sandboxes(d.fleet.servers))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heard, ended := make(chan *gate.Policy, 8), make(chan error, 1)
	go func() {
		ended <- d.answer(ctx, control.Peer{}, control.Request{Verb: control.Policy}, func(r control.Response) error {
			p := new(gate.Policy)
			if err := json.Unmarshal(r.Policy, p); err != nil {
				t.Error(err)
			}
			heard <- p
			return nil
		})
	}()
	select {
	case <-heard:
		t.Fatal("something is told before the directory was read")
	case <-time.After(50 * time.Millisecond):
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// read reads the folder, wants so many mistakes and notes, and returns what was told of it, which is at once.
	read := func(mistakes int, note string, told bool) *gate.Policy {
		t.Helper()
		_, diags := d.policy.read(dirs, d.log, func(*gate.Policy) error { return nil })
		if len(diags) != mistakes || strings.Join(d.policy.notes(dir), "; ") != note {
			t.Errorf("%v, notes %q, want %d and %q", diags, d.policy.notes(dir), mistakes, note)
		}
		select {
		case p := <-heard:
			return p
		case <-time.After(map[bool]time.Duration{true: 2 * time.Minute, false: 200 * time.Millisecond}[told]):
			return nil
		}
	}
	write("local.hcl", `deny "mail" {}`)
	if p := read(1, "the policies in "+dir+" have mistakes, and there was no good version since pfar was started: no call is allowed", false); p != nil {
		t.Errorf("a broken directory is told: %+v", p)
	}
	d.policy.outlived = true
	read(1, "the policies in "+dir+" have mistakes, and there was no good version since pfar was started: calls are decided by what was in force before, and none is allowed if nothing was", false)
	write("local.hcl", "deny \"mail\" {\n  reason = \"We send none.\"\n}\n")
	if p := read(0, "", true); p == nil || len(p.Rules) != 1 || p.Decide(gate.Session{}, gate.Call{}).Verdict != gate.Deny {
		t.Errorf("told: %+v", p)
	}
	if p := read(0, "", false); p != nil {
		t.Error("the same is told again")
	}
	write("more.hcl", `profile "strict" { inspect = "inspect" }`)
	if p := read(1, "the policies in "+dir+" have mistakes: their last good version is in force", false); p != nil {
		t.Errorf("a broken directory is told: %+v", p)
	}
	write("more.hcl", "profile \"strict\" {\n  inspect = \"inspect\"\n  relax = \"We look.\"\n}\n")
	if p := read(0, "", true); p == nil || len(p.Relaxed) != 1 || len(p.Rules) != 1 {
		t.Errorf("told: %+v", p)
	}
	cancel()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPolicyInReports: what is wrong with the policies shows in the status, beside what is wrong with declarations.
func TestPolicyInReports(t *testing.T) {
	base := t.TempDir()
	for name, text := range map[string]string{"policies.d/local.hcl": `profil "a" {}`, "mcp.d/one.hcl": `comand = "x"`} {
		if err := os.MkdirAll(filepath.Join(base, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs := control.Dirs{State: t.TempDir(), Config: filepath.Join(base, "mcp.d")}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), vaultIn(t, dirs), "")
	m := &machine{
		t: t, tell: d.fleet.changed, runs: map[string]plan.Plan{}, secret: map[string]string{}, starts: map[string]int{},
	}
	d.fleet.runner = converge.New(m, d.fleet)
	d.audit.open(false)
	d.reload()
	r := d.report()
	if r.Policies != filepath.Join(base, "policies.d") || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "no call is allowed") {
		t.Errorf("%q, %q", r.Policies, r.Notes)
	}
	if len(r.Diagnostics) < 2 || r.Diagnostics[0].File != filepath.Join(base, "policies.d/local.hcl") || r.Diagnostics[0].Line != 1 || !strings.Contains(r.Diagnostics[0].Text, "\n     1 | profil") {
		t.Errorf("%+v", r.Diagnostics)
	}
}

// TestSandboxesAreTold: the gateway hears what each server may reach by each plan that counts, and of each change.
func TestSandboxesAreTold(t *testing.T) {
	d := newDaemon(options{}, slog.New(slog.DiscardHandler), nil, "")
	d.policy.stored = []byte(`{}`)
	heard := make(chan string, 8)
	go func() {
		_ = d.answer(t.Context(), control.Peer{}, control.Request{Verb: control.Policy}, func(r control.Response) error {
			heard <- string(r.Sandboxes)
			return nil
		})
	}()
	by := func(name, declared string) *plan.Plan {
		p := &plan.Plan{Name: name}
		if declared != "" {
			p.Gateway.Declared = json.RawMessage(declared)
		}
		return p
	}
	notes := newServer("notes", d.fleet.runner.Of("notes"))
	notes.want = by("notes", "")
	fault := newServer("fault", d.fleet.runner.Of("fault"))
	fault.want = &plan.Plan{Name: "fault", Fault: "its file has a mistake"}
	d.fleet.servers = map[string]*server{"notes": notes, "fault": fault}
	const old, now = `{"server":"notes","asks":["sampling"]}`, `{"server":"notes"}`
	const is = `[{"server":"notes","declared":` + now
	for _, step := range []struct {
		name   string
		change func()
		want   string
	}{
		{"declared, and does not run", func() {}, `[{"server":"notes"}]`},
		{
			"it runs by the one before", func() { notes.has.Found(by("notes", old)); notes.want = by("notes", now) },
			`[{"server":"notes","declared":` + now + `},{"server":"notes","declared":` + old + `}]`,
		},
		{"it runs by that", func() { notes.has.Found(notes.want) }, is + `}]`},
		{"it learns", func() { notes.learn = new(learner) }, is + `,"learns":true}]`},
		{"it shares files", func() { notes.learn, notes.status.Shared = nil, "files" }, is + `,"shared":true}]`},
		{"its file is gone, and it runs", func() { notes.want, notes.status.Shared = nil, "" }, is + `}]`},
		{"it is gone", func() { notes.has.Found(nil) }, `[]`},
	} {
		step.change()
		d.policy.confine(sandboxes(d.fleet.servers))
		if got := <-heard; got != step.want {
			t.Errorf("%s: told %s, want %s", step.name, got, step.want)
		}
		d.policy.confine(sandboxes(d.fleet.servers))
	}
	if len(heard) > 0 {
		t.Errorf("told again: %s", <-heard)
	}
}
