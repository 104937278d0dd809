package generator

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/sandbox"
)

// TestInspectorUnits: the units give what all processes of an inspector may have together, and room for what runs them.
func TestInspectorUnits(t *testing.T) {
	for _, path := range []string{"../units/pfar-inspect@.service", "../units/user/pfar-inspect@.service"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			pattern string
			least   int64
		}{
			{`\nMemoryMax=(\d+)M\n`, inspector.MaxMemory>>20 + 256},
			{`\nTasksMax=(\d+)\n`, inspector.MaxParallel * (inspectorTasks + 8)}, // bubblewrap's own, and the launcher's
		} {
			var given int64
			if m := regexp.MustCompile(want.pattern).FindSubmatch(text); m != nil {
				given, _ = strconv.ParseInt(string(m[1]), 10, 64)
			}
			if given < want.least {
				t.Errorf("%s: %s gives %d, want %d at least", path, want.pattern, given, want.least)
			}
		}
	}
}

// TestInspector has what an inspector sees of the host, and those that are refused.
func TestInspector(t *testing.T) {
	h := Host{FS: mapFS(t, commonHost+"/opt/scan/scan *\n/srv/data/rules.yar\n"), StateDir: "/var/lib/pfar/home", Private: []string{"/var/lib/pfar", "/run/pfar", "/etc/pfar"}}
	at := hcl.Range{Filename: "p.hcl", Start: hcl.Pos{Line: 3, Column: 5}, End: hcl.Pos{Line: 3, Column: 9}}
	p, diags := Inspector(inspector.External{Name: "scan", Exec: []string{"/opt/scan/scan", "-x"}, ReadOnly: []string{"/srv/data"}}, at, h)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	if p.Sandbox.Command != "/opt/scan/scan" || len(p.Sandbox.Args) != 1 || p.Sandbox.Limits != (sandbox.Limits{Memory: 512 << 20, Tasks: inspectorTasks}) || p.Inspector.Parallel == 0 {
		t.Errorf("%+v", p)
	}
	seen := map[string]bool{}
	for _, m := range p.Sandbox.Mounts {
		seen[m.Source] = true
		if m.Kind == sandbox.Bind {
			t.Errorf("it may write to %+v", m)
		}
	}
	for path, want := range map[string]bool{"/usr": true, "/opt/scan": true, "/srv/data": true, "/etc/shadow": false, "/run/pfar": false, "/home/alice": false} {
		if seen[path] != want {
			t.Errorf("%s: %v in %+v", path, seen[path], p.Sandbox.Mounts)
		}
	}
	for _, e := range p.Sandbox.Env {
		if e.Credential != "" {
			t.Errorf("it is given %+v", e)
		}
	}
	for want, e := range map[string]inspector.External{
		"neither exec":  {Name: "a"},
		"whole path":    {Name: "a", Exec: []string{"scan"}},
		"/nowhere/scan": {Name: "a", Exec: []string{"/nowhere/scan"}},
		"/run/pfar":     {Name: "a", Exec: []string{"/usr/bin/sh"}, ReadOnly: []string{"/run/pfar"}},
	} {
		p, diags := Inspector(e, at, h)
		if !diags.HasErrors() || p.Sandbox.Command != "" {
			t.Errorf("%+v: %+v, %v", e, p, diags)
			continue
		}
		if g := diags[0].Subject; g == nil || *g != at {
			t.Errorf("%+v: it stands at %v", e, g)
		}
		if text := diags[0].Summary + diags[0].Detail; !strings.Contains(text, want) {
			t.Errorf("%+v: %s, want %q", e, text, want)
		}
	}
	p, diags = Inspector(inspector.External{Name: "a", URL: "http://127.0.0.1/", Model: "m"}, at, h)
	if len(diags) > 0 || p.Inspector.Timeout == 0 || p.Sandbox.Command != "" {
		t.Errorf("a model: %+v, %v", p, diags)
	}
}
