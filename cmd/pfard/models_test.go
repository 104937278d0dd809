package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
)

// TestModels: the models of models.d run and are told to the gateway; a file with mistakes costs its own model only,
// whose last good version stays; mistakes in policies do not keep changes of models from taking effect.
func TestModels(t *testing.T) {
	base := t.TempDir()
	v, err := vault.Open(filepath.Join(base, "state", "vault"))
	if err != nil {
		t.Fatal(err)
	}
	dirs := control.Dirs{Config: filepath.Join(base, "mcp.d"), State: filepath.Join(base, "state"), Run: t.TempDir()}
	d := newDaemon(options{dirs: dirs, declarations: dirs.Config}, slog.New(slog.DiscardHandler), v, "")
	d.audit.open(false)
	opened, open := map[string]bool{}, d.policy.open // what others may write is not read: control.OurDir
	d.policy.open = func(dir string) fs.FS {
		opened[dir] = true
		return open(dir)
	}
	var r ranInspectors
	d.inspectors.runner = &r
	write := func(file, text string) {
		t.Helper()
		path := filepath.Join(base, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	told := func() *gate.Policy {
		t.Helper()
		b, _, _ := d.policy.now()
		p := new(gate.Policy)
		if err := json.Unmarshal(b, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	reads := func(want string, mistakes ...string) {
		t.Helper()
		d.reload()
		var is []string
		for _, m := range told().Models {
			is = append(is, fmt.Sprintf("%s %s %s", m.Name, m.External.Model, m.Audience))
		}
		if got := strings.Join(is, "; "); got != want {
			t.Errorf("the gateway hears of %q, want %q", got, want)
		}
		var all strings.Builder
		for _, g := range d.report().Diagnostics {
			fmt.Fprintf(&all, "%s:%d:%d %s\n", filepath.Base(g.File), g.Line, g.Column, g.Text)
		}
		for _, m := range mistakes {
			if !strings.Contains(all.String(), m) {
				t.Errorf("diagnostics lack %q:\n%s", m, &all)
			}
		}
		if len(mistakes) == 0 && all.Len() > 0 {
			t.Errorf("diagnostics:\n%s", &all)
		}
	}
	const one = "url = \"https://a.example.com/v1\"\nmodel = \"m\"\nkey = \"vault:k\"\nphases = [\"plan\"]\n"
	if err := os.Mkdir(dirs.Config, 0o755); err != nil {
		t.Fatal(err)
	}
	reads("")
	if !opened[dirs.Models()] || !opened[dirs.Policies()] {
		t.Errorf("opened as pfard's own: %v", opened)
	}
	before := told().Digest
	write("models.d/main.hcl", one)
	const two = "url = \"http://127.0.0.1:1/\"\nmodel = \"n\"\nnodes = true\naudience = \"sensitive\"\n"
	write("models.d/node.toml", two)
	reads("main m public; node n sensitive")
	if told().Digest == before {
		t.Error("the policy has the digest that it had without models")
	}
	if !slices.Equal(r.runs, []string{"main ", "node "}) {
		t.Errorf("%q run", r.runs)
	}
	const lacks = `the model "main" has no key, and it cannot be asked`
	notes := strings.Join(d.report().Notes, "\n")
	if !strings.Contains(notes, lacks) || !strings.Contains(notes, "pfar vault set k") {
		t.Errorf("notes %q", notes)
	}
	if list := d.report().Models; len(list) != 2 || list[0].Missing == "" || list[0].Key != "k" || list[1].Key != "" {
		t.Errorf("the report has %+v", list)
	}
	if _, err := v.Put(vault.Secret{Key: "k", Value: []byte("hunter2-hunter2")}); err != nil {
		t.Fatal(err)
	}
	d.uses.valueChanged("k", atOnce)
	s, err := d.inspectors.modelOf("main")
	if err != nil || string(s.Values["k"]) != "hunter2-hunter2" || !slices.Equal(r.anew, []string{"main"}) {
		t.Errorf("%+v, %v, %q begin anew", s, err, r.anew)
	}
	if users := d.inspectors.askersWith("k"); !slices.Equal(users, []string{"model main"}) {
		t.Errorf("the key is used by %q", users)
	}

	write("models.d/main.hcl", strings.Replace(one, `"m"`, `"m2"`, 1)+"nonsense = 1\n")
	reads("main m public; node n sensitive", "main.hcl:5:1", "nonsense")
	write("policies.d/local.hcl", "nonsense {}\n")
	write("models.d/main.hcl", strings.Replace(one, `"m"`, `"m2"`, 1))
	reads("main m2 public; node n sensitive", "local.hcl:1:1")
	write("policies.d/local.hcl", `inspector "node" { exec = ["/bin/sh"] }
profile "strict" { inspectors = ["node"] }
`)
	reads("main m2 public", "node.toml:1:1", "local.hcl:1")
	if !slices.Equal(r.runs, []string{"node /bin/sh", "main "}) {
		t.Errorf("%q run", r.runs)
	}
	for _, file := range []string{"models.d/main.hcl", "policies.d/local.hcl"} {
		if err := os.Remove(filepath.Join(base, file)); err != nil {
			t.Fatal(err)
		}
	}
	reads("node n sensitive")
	if err := os.RemoveAll(filepath.Join(base, "models.d")); err != nil {
		t.Fatal(err)
	}
	reads("")
	if told().Digest != before {
		t.Error("without models the policy is not what it was")
	}
}
