package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// ranInspectors stands for the processes of inspectors.
type ranInspectors struct {
	runs, anew []string
	told       int
}

func (r *ranInspectors) Inspect(plans []plan.Inspection) {
	r.runs, r.told = nil, r.told+1
	for _, p := range plans {
		r.runs = append(r.runs, p.Inspector.Name+" "+p.Sandbox.Command)
	}
}

func (r *ranInspectors) Reinspect(name string) { r.anew = append(r.anew, name) }

// TestInspectors: those of the policy in force are to run, whatever mistakes there are in the folder; one that cannot
// is left out, with the reason at its place; those that use a key begin anew when it changes.
func TestInspectors(t *testing.T) {
	base := t.TempDir()
	v, err := vault.Open(filepath.Join(base, "state", "vault"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: t.TempDir()}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), v, "")
	d.audit.open(false)
	var r ranInspectors
	d.inspectors.runner = &r
	if err := os.MkdirAll(dirs.Policies(), 0o755); err != nil {
		t.Fatal(err)
	}
	policy := func(text string, want ...string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dirs.Policies(), "local.hcl"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		d.reload()
		if !slices.Equal(r.runs, want) {
			t.Errorf("%q run, want %q", r.runs, want)
		}
	}
	diagnostics := func() string {
		var all strings.Builder
		for _, g := range d.report().Diagnostics {
			fmt.Fprintf(&all, "%s:%d:%d %s\n", filepath.Base(g.File), g.Line, g.Column, g.Text)
		}
		return all.String()
	}
	policy("inspector {}")
	if r.told != 0 {
		t.Error("without a policy inspectors are told to end that the gateway may need")
	}
	const both = `inspector "scan" { exec = ["/bin/sh"] }
inspector "llm" {
  url   = "http://127.0.0.1:1/"
  model = "m"
  key   = "vault:llm"
}
profile "strict" { inspectors = ["scan", "llm"] }
`
	policy(both, "scan /bin/sh", "llm ")
	if notes := strings.Join(d.report().Notes, "\n"); !strings.Contains(notes, `"llm" has no key`) || !strings.Contains(notes, "pfar vault set llm") {
		t.Errorf("notes %q", notes)
	}
	policy(both+"deny {}", "scan /bin/sh", "llm ")
	policy(strings.Replace(both, "/bin/sh", "/nowhere/scan", 1), "llm ")
	if got := diagnostics(); !strings.Contains(got, "local.hcl:1:11") || !strings.Contains(got, "/nowhere/scan") {
		t.Errorf("diagnostics %s", got)
	}
	policy(strings.Replace(both, `"/bin/sh"`, `"/bin/sh"], read_only = ["`+dirs.State+`"`, 1), "llm ")
	if got := diagnostics(); !strings.Contains(got, "local.hcl:1:11") {
		t.Errorf("it reads the vault: %s", got)
	}
	private := filepath.Join(base, "rules")
	if err := os.Mkdir(private, 0o755); err != nil {
		t.Fatal(err)
	}
	reads := strings.Replace(both, `"/bin/sh"`, `"/bin/sh"], read_only = ["`+private+`"`, 1)
	policy(reads, "scan /bin/sh", "llm ")
	d.inspectors.reachable = func(path string) bool { return !strings.HasPrefix(path, base) }
	policy(reads+"\n", "llm ")
	if got := diagnostics(); !strings.Contains(got, "local.hcl:1:11") || !strings.Contains(got, private+" lies below") {
		t.Errorf("its unit does not get to it: %s", got)
	}
	policy(both, "scan /bin/sh", "llm ")

	if s, err := d.inspectors.modelOf("llm"); err != nil || len(s.Values) != 0 || len(s.Missing) != 1 {
		t.Errorf("without a key: %+v, %v", s, err)
	}
	if _, err := v.Put(vault.Secret{Key: "llm", Value: []byte("hunter2-hunter2")}); err != nil {
		t.Fatal(err)
	}
	d.uses.valueChanged("other", atOnce)
	d.uses.valueChanged("llm", atOnce)
	if !slices.Equal(r.anew, []string{"llm"}) || strings.Contains(strings.Join(d.report().Notes, ""), "has no key") {
		t.Errorf("%q begin anew, notes %q", r.anew, d.report().Notes)
	}
	if s, err := d.inspectors.modelOf("llm"); err != nil || string(s.Values["llm"]) != "hunter2-hunter2" || len(s.Missing) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, name := range []string{"scan", "nobody"} {
		if s, err := d.inspectors.modelOf(name); len(s.Values) > 0 || (err == nil) != (name == "scan") {
			t.Errorf("%s gets %+v, %v", name, s, err)
		}
	}
	if users := d.inspectors.askersWith("llm"); !slices.Equal(users, []string{"inspector llm"}) || d.inspectors.askersWith("other") != nil {
		t.Errorf("users of the key %q", users)
	}
	if keys := d.uses.keysInUse(); !slices.Equal(keys, []string{"llm"}) {
		t.Errorf("keys in use %q", keys)
	}
	const phone = `notice "phone" {
  url = "https://hooks.example.com/{key}"
  key = "vault:phone"
}
`
	policy(phone, "phone ")
	const keyless = `the notice "phone" has no key, and it is not sent: `
	notes := strings.Join(d.report().Notes, "\n")
	if !strings.Contains(notes, keyless) || !strings.Contains(notes, "pfar vault set phone") {
		t.Errorf("notes %q", notes)
	}
	if _, err := v.Put(vault.Secret{Key: "phone", Value: []byte("hunter2-hunter2")}); err != nil {
		t.Fatal(err)
	}
	d.uses.valueChanged("phone", atOnce)
	if s, err := d.inspectors.modelOf("phone"); err != nil || string(s.Values["phone"]) != "hunter2-hunter2" {
		t.Errorf("%+v, %v", s, err)
	}
	users := d.inspectors.askersWith("phone")
	if !slices.Equal(users, []string{"notice phone"}) || r.anew[len(r.anew)-1] != "phone" {
		t.Errorf("users of the key %q, begun anew %q", users, r.anew)
	}
	policy("")
	if keys := d.uses.keysInUse(); len(keys) > 0 {
		t.Errorf("keys in use %q", keys)
	}
}
