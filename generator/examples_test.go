package generator_test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
)

const installed, adapter = "/opt/servers", "/usr/lib/pfar/pfar-adapter"

// host has the programs that the examples' arguments name, a node and a shell, and the servers of the user notes that
// run without pfar.
func host(t *testing.T, files []string) generator.Host {
	t.Helper()
	m := fstest.MapFS{
		"etc/passwd":         {Data: []byte("notes:x:998:998::/:/sbin/nologin\n"), Mode: 0o644},
		"run/graph/mcp.in":   {Mode: fs.ModeNamedPipe | 0o666},
		"run/graph/mcp.out":  {Mode: fs.ModeNamedPipe | 0o666},
		"run/notes/mcp.sock": {Mode: fs.ModeSocket | 0o666},
	}
	for _, program := range []string{"usr/bin/node", "usr/bin/sh", adapter[1:]} {
		m[program] = &fstest.MapFile{Data: []byte("\x7fELF"), Mode: 0o755}
	}
	for _, dir := range []string{"etc", "home", "var/tmp", "tmp", "run", "proc/sys", "dev"} {
		m[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	program := regexp.MustCompile(`\$\{servers\}/([^" ]+\.m?js)`)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range program.FindAllSubmatch(b, -1) {
			m[installed[1:]+"/"+string(p[1])] = &fstest.MapFile{Data: []byte("#!/usr/bin/env node\n"), Mode: 0o644}
		}
	}
	return generator.Host{
		FS: m, Path: []string{"/usr/bin"}, Home: "/root", StateDir: "/var/lib/pfar/home", Adapter: adapter,
	}
}

// TestExamples: the examples are what users copy: each loads and compiles without a word.
func TestExamples(t *testing.T) {
	checkFolder(t, "../examples", 10)
	checkFolder(t, "../examples/attached", 2)
}

func checkFolder(t *testing.T, dir string, least int) {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.*")
	if err != nil || len(files) < least {
		t.Fatalf("examples %q, %v", files, err)
	}
	set := declaration.Load([]declaration.Folder{{Path: "examples", FS: os.DirFS(dir)}},
		declaration.Options{Servers: installed})
	diags := set.Diags
	h := host(t, files)
	for _, s := range set.Servers {
		_, more := generator.Compile(s, h)
		diags = append(diags, more...)
	}
	if len(diags) > 0 {
		var out bytes.Buffer
		if err := declaration.Write(&out, set.Files, diags, 0, false); err != nil {
			t.Fatal(err)
		}
		t.Errorf("diagnostics\n%s", out.String())
	}
	if len(set.Servers) != len(files) {
		t.Errorf("%d servers of %d files", len(set.Servers), len(files))
	}
	if got := slices.Sorted(maps.Keys(set.Sources)); len(got) != len(files) {
		t.Errorf("sources of %q", got)
	}
}

// What the examples show in comments compiles as well, in place of the lines with the same key.
func TestExamplesInComments(t *testing.T) {
	const dir = "../examples"
	files, err := filepath.Glob(dir + "/*.hcl")
	if err != nil {
		t.Fatal(err)
	}
	h, shown := host(t, files), regexp.MustCompile(`(?m)^#   ((\w+).*)$`)
	h.FS.(fstest.MapFS)["srv/documents"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shown.FindAllSubmatch(text, -1) {
			found++
			other := regexp.MustCompile(`(?m)^` + string(m[2]) + `\b.*$(\n .*$)*(\n}$)?`)
			changed := append(other.ReplaceAll(text, nil), append([]byte("\n"), m[1]...)...)
			s, diags := declaration.Parse(filepath.Base(file), append(changed, '\n'), declaration.Options{Servers: installed})
			if s != nil {
				_, more := generator.Compile(*s, h)
				diags = append(diags, more...)
			}
			if len(diags) > 0 {
				t.Errorf("%s with %s: %v", file, m[1], diags)
			}
		}
	}
	if found < 4 {
		t.Errorf("%d lines in comments", found)
	}
}

// The examples of clients name servers of the examples, and load without a word.
func TestExamplesOfClients(t *testing.T) {
	servers := declaration.Load([]declaration.Folder{{Path: "examples", FS: os.DirFS("../examples")}},
		declaration.Options{Servers: installed})
	var o declaration.ClientOptions
	for _, s := range servers.Servers {
		o.Servers = append(o.Servers, s.Name)
	}
	files, err := filepath.Glob("../examples/clients/*.*")
	if err != nil {
		t.Fatal(err)
	}
	set := declaration.LoadClients(os.DirFS("../examples/clients"), "examples/clients", o)
	if len(set.Diags) > 0 {
		var out bytes.Buffer
		if err := declaration.Write(&out, set.Files, set.Diags, 0, false); err != nil {
			t.Fatal(err)
		}
		t.Errorf("diagnostics\n%s", out.String())
	}
	if len(set.Clients) != len(files) || len(files) < 3 {
		t.Errorf("%d clients of %d files", len(set.Clients), len(files))
	}
}
