package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
)

// declared makes a directory of declarations with one server of the name, whose program is among the servers' programs.
func declared(t *testing.T, name string) sources {
	t.Helper()
	s := sources{dir: t.TempDir(), servers: t.TempDir()}
	text := "label = \"internal\"\nserver {\n  command = \"${servers}/" + name + "\"\n}\n"
	if err := os.WriteFile(filepath.Join(s.dir, name+".hcl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.servers, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSources: what check, plan and explain read are the running pfard's directories, unless told otherwise.
func TestSources(t *testing.T) {
	running, other, byDefault := declared(t, "running"), declared(t, "other"), declared(t, "default")
	tests := []struct {
		name string
		args []string
		up   bool
		code int
		out  string
		err  string
	}{
		{"check", []string{"check"}, true, 0, running.dir + ": 0 errors", ""},
		{"check a folder", []string{"check", other.dir, "--servers", other.servers}, true, 0, other.dir + ": 0 errors", ""},
		{"the running pfard's programs with another folder", []string{"check", other.dir}, true, 1, other.dir + ": 1 error", running.servers},
		{"plan", []string{"plan", "running", "--json"}, true, 0, running.servers + "/running", ""},
		{"plan of all", []string{"plan"}, true, 0, "running", ""},
		{"explain", []string{"explain", "running"}, true, 0, "running", ""},
		{"another folder", []string{"explain", "other", "--dir", other.dir, "--servers", other.servers}, true, 0, "other", ""},
		{"default, not running", []string{"check"}, false, 0, byDefault.dir + ": 0 errors", ""},
		{"not of the default while it runs", []string{"explain", "default"}, true, 4, "", "no declaration in " + running.dir + " has that name"},
		{"near", []string{"explain", "runing"}, true, 4, "", `did you mean "running"?`},
		{"a directory where a name belongs", []string{"plan", other.dir}, true, 4, "", "hint: pfar plan --dir " + other.dir + "\n"},
		{"and for one that needs a name too", []string{"explain", other.dir}, true, 4, "", "hint: pfar explain NAME --dir " + other.dir + "\n"},
		{"completion", []string{"__complete", "explain", ""}, true, 0, "running\n", ""},
		{"completion, not running", []string{"__complete", "explain", ""}, false, 0, "default\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "")
			if tt.up {
				b.pfard(t, control.Report{Directory: running.dir, Programs: running.servers}, nil)
			}
			b.dirs.Config, b.dirs.Servers = byDefault.dir, byDefault.servers
			code := b.run(t.Context(), tt.args)
			if code != tt.code || !strings.Contains(b.out.String(), tt.out) || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nwant: %s\nstderr: %s\nwant: %s", code, tt.code, b.out, tt.out, b.err, tt.err)
			}
		})
	}
}

// TestExplainOrigins: explain says which file gives which value, and check reads all folders.
func TestExplainOrigins(t *testing.T) {
	vendor, own := declared(t, "search"), t.TempDir()
	dropIn := filepath.Join(own, "search.hcl.d", "50-label.hcl")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dropIn, []byte("label = \"secret\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBench(t, "")
	b.dirs.Config, b.dirs.Below, b.dirs.Servers = own, []string{filepath.Join(own, "none"), vendor.dir}, vendor.servers
	run := func(want string, code int, args ...string) {
		t.Helper()
		b.out.Reset()
		b.err.Reset()
		if got := b.run(t.Context(), args); got != code || !strings.Contains(b.out.String()+b.err.String(), want) {
			t.Errorf("%q: exit %d\n%s%s", args, got, b.out, b.err)
		}
	}
	run("\nIt is declared in "+vendor.dir+"/search.hcl.\n  - "+dropIn+" gives label.\n", 0, "explain", "search")
	run("hint: write the whole list, allowed_domains = [...], in "+own+"/search.hcl.d/90-hosts.hcl", 1, "allow",
		"search", "x.example", "--yes")
	if err := os.WriteFile(dropIn, []byte("\nlabl = \"secret\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(dropIn+":2:1: error: Unknown key", 1, "check")
	if err := os.RemoveAll(filepath.Dir(dropIn)); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(own, "search.hcl")
	text, err := os.ReadFile(filepath.Join(vendor.dir, "search.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mine, text, 0o644); err != nil {
		t.Fatal(err)
	}
	run("\nIt is declared in "+mine+".\n  - "+vendor.dir+"/search.hcl does not count", 0, "explain", "search")
}

// TestRunningServices: check and import read services.d beside the directory of the running pfar, not their own.
func TestRunningServices(t *testing.T) {
	const wiki = "service \"wiki\" {\n  setup {\n    title = \"Wiki\"\n    summary = \"Pages\"\n    package = " +
		"\"npm:wiki@1.2.3\"\n  }\n}\n"
	const container = "label = \"internal\"\nserver {\n  command = \"docker\"\n  args = [\"run\", \"us/wiki-mcp\"]\n}\n"
	for _, c := range []struct{ line, service, want string }{
		{"check", strings.Replace(wiki, "package", "pakage", 1), `"pakage" is not known in setup. Did you mean package?`},
		{"check", wiki, `Write package = "npm:wiki@1.2.3" (pfar add wiki).`},
		{"import FILE --dry-run", wiki, "pfar add wiki runs npm:wiki@1.2.3 instead"},
	} {
		readsRunning(t, c.line, c.want, map[string]string{
			"mcp.d/x.hcl": container, "services.d/w.hcl": c.service,
			"client.json": `{"mcpServers": {"wiki": {"command": "docker", "args": ["run", "us/wiki-mcp"]}}}`,
		})
	}
}

// readsRunning wants a command line to fail with words that come from files of the running pfar. FILE is client.json.
func readsRunning(t *testing.T, line, want string, files map[string]string) {
	t.Helper()
	b := newBench(t, "")
	config := t.TempDir()
	for name, text := range files {
		file := filepath.Join(config, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := control.Report{Directory: filepath.Join(config, "mcp.d"), Policies: filepath.Join(config, "policies.d")}
	b.pfard(t, r, nil)
	code := b.run(t.Context(), strings.Fields(strings.Replace(line, "FILE", filepath.Join(config, "client.json"), 1)))
	all := strings.Join(strings.Fields(b.out.String()+b.err.String()), " ")
	if code != 1 || !strings.Contains(all, want) {
		t.Errorf("%s: exit %d, want 1\n%s", line, code, all)
	}
}

// TestServices searches the catalogue with an entry of the operator's.
func TestServices(t *testing.T) {
	own := filepath.Join(t.TempDir(), "services.d")
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	entry := `service "wiki" {
  setup {
    title   = "Wiki"
    summary = "Web pages of ours, for search"
    package = "npm:wiki@1.2.3"
  }
}
`
	if err := os.WriteFile(filepath.Join(own, "w.hcl"), []byte(entry), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		has  []string
		not  string
	}{
		{[]string{"services"}, 0, []string{"notion ", "github ", "wiki "}, ""},
		{[]string{"services", "search", "WEB"}, 0, []string{"exa ", "wiki ", "npm:wiki@1.2.3"}, "notion "},
		{[]string{"add", "--list"}, 0, []string{"notion ", "github ", "wiki "}, ""},
		{[]string{"add", "--list", "WEB"}, 0, []string{"exa ", "wiki ", "npm:wiki@1.2.3"}, "notion "},
		{[]string{"add", "--list", "pages", "ours"}, 0, []string{"wiki "}, "exa "},
		{[]string{"add", "--list", "--json", "pages", "ours"}, 0, []string{`"name": "wiki"`}, "exa"},
		{[]string{"add", "--list", "nothing-has-this"}, 4, []string{`no service has "nothing-has-this"`}, "wiki"},
		{[]string{"services", "wiki", "--json"}, 0, []string{`"name": "wiki"`, `"package": "npm:wiki@1.2.3"`}, "exa"},
		{[]string{"services", "wiki"}, 0, []string{"Wiki (wiki): Web pages", "reaches nothing\n", "no secret\n"}, "exa"},
		{[]string{"services", "notion"}, 0, []string{"a placeholder in NOTION_TOKEN", "test    API-get-self {}"}, "wiki"},
		{[]string{"services", "notion", "--json"}, 0, []string{`"deliver": "broker"`, `"reviewed": true`}, "wiki"},
		{[]string{"services", "git"}, 0, []string{"folder, which it may change", "Which repository?"}, "github"},
		{[]string{"services", "nothing-has-this"}, 4, []string{`no service has "nothing-has-this"`}, "wiki"},
	} {
		b := newBench(t, "")
		b.dirs.Config = filepath.Join(filepath.Dir(own), "mcp.d")
		code := b.run(t.Context(), tt.args)
		all := b.out.String() + b.err.String()
		for _, want := range tt.has {
			if code != tt.code || !strings.Contains(all, want) {
				t.Errorf("%q: exit %d, no %q\n%s", tt.args, code, want, all)
			}
		}
		for line := range strings.Lines(b.out.String()) {
			if strings.HasPrefix(line, "  ") && len(line) > 81 && tt.args[len(tt.args)-1] != "--json" {
				t.Errorf("%q: wider than 80 columns: %s", tt.args, line)
			}
		}
		if tt.not != "" && strings.Contains(all, tt.not) {
			t.Errorf("%q finds %q\n%s", tt.args, tt.not, all)
		}
	}
}
