package declaration

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

var update = flag.Bool("update", false, "write the golden files")

func testOptions() Options { return Options{Servers: "/opt/pfar/servers"} }

// golden is a txtar: declarations, and what is made of them.
type golden struct {
	path    string
	archive *txtar.Archive
}

func goldens(t testing.TB, pattern string) []golden {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files match %q: %v", pattern, err)
	}
	var all []golden
	for _, p := range paths {
		a, err := txtar.ParseFile(p)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, golden{p, a})
	}
	return all
}

func (g golden) name() string { return strings.TrimSuffix(filepath.Base(g.path), ".txtar") }

// sources returns the declarations. A name that ends in .quoted is of a Go string: for bytes that editors change.
func (g golden) sources(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, f := range g.archive.Files {
		name, quoted := strings.CutSuffix(f.Name, ".quoted")
		if _, ext := block.SplitName(name); ext == "" {
			continue
		}
		all[name] = f.Data
		if quoted {
			s, err := strconv.Unquote(strings.TrimSpace(string(f.Data)))
			if err != nil {
				t.Fatalf("%s: %v", g.path, err)
			}
			all[name] = []byte(s)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s holds no declaration", g.path)
	}
	return all
}

// check compares with the file of the archive, or writes it.
func (g golden) check(t *testing.T, name, got string) {
	t.Helper()
	want := ""
	at := -1
	for i, f := range g.archive.Files {
		if f.Name == name {
			want, at = string(f.Data), i
		}
	}
	if want == got {
		return
	}
	if !*update {
		t.Errorf("%s differs\n--- got\n%s\n--- want\n%s", name, got, want)
		return
	}
	switch {
	case got == "":
		g.archive.Files = append(g.archive.Files[:at], g.archive.Files[at+1:]...)
	case at < 0:
		g.archive.Files = append(g.archive.Files, txtar.File{Name: name, Data: []byte(got)})
	default:
		g.archive.Files[at].Data = []byte(got)
	}
	if err := os.WriteFile(g.path, txtar.Format(g.archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rendered(t *testing.T, file string, src []byte, diags hcl.Diagnostics) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, map[string]*hcl.File{file: {Bytes: src}}, diags, 0, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Both syntaxes give one server and the same warnings.
func TestGood(t *testing.T) {
	for _, g := range goldens(t, "testdata/good/*.txtar") {
		t.Run(g.name(), func(t *testing.T) {
			sources := g.sources(t)
			for _, file := range slices.Sorted(maps.Keys(sources)) {
				src := sources[file]
				s, diags := Parse(file, src, testOptions())
				_, ext := block.SplitName(file)
				g.check(t, "warnings-"+ext[1:], rendered(t, file, src, diags))
				if s == nil {
					t.Fatalf("%s: no server", file)
				}
				checkServer(t, s)
				if s.File != file {
					t.Errorf("File is %q", s.File)
				}
				s.File = ""
				text, err := json.MarshalIndent(s, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				g.check(t, "server.json", string(text)+"\n")
			}
		})
	}
}

// Every mistake is told with its place and a remedy, costs its own server only, and no secret is printed.
func TestBad(t *testing.T) {
	all := goldens(t, "testdata/bad/*.txtar")
	if len(all) < 200 {
		t.Errorf("%d bad declarations, 200 are promised", len(all))
	}
	for _, g := range all {
		t.Run(g.name(), func(t *testing.T) {
			for file, src := range g.sources(t) {
				s, diags := Parse(file, src, testOptions())
				if s != nil {
					t.Error("there is a server")
				}
				if !diags.HasErrors() {
					t.Error("there is no error")
				}
				checkDiagnostics(t, file, src, diags)
				text := rendered(t, file, src, diags)
				for _, secret := range []string{"correct-horse", "correct horse", "battery", "hunter2", "ntn_0123456789"} {
					if strings.Contains(text, secret) {
						t.Errorf("the diagnostics hold the secret %q", secret)
					}
				}
				g.check(t, "diagnostics", text)
				checkNeighbour(t, file, src)
			}
		})
	}
}

func checkDiagnostics(t *testing.T, file string, src []byte, diags hcl.Diagnostics) {
	t.Helper()
	lines := strings.Count(string(src), "\n") + 1
	for _, d := range diags {
		switch at := d.Subject; {
		case at == nil:
			t.Errorf("%q has no place", d.Summary)
		case at.Filename != file:
			t.Errorf("%q is placed in %q", d.Summary, at.Filename)
		case at.Start.Byte < 0 || at.End.Byte < at.Start.Byte || at.End.Byte > len(src):
			t.Errorf("%q is placed at bytes %d to %d of %d", d.Summary, at.Start.Byte, at.End.Byte, len(src))
		case at.Start.Line < 1 || at.Start.Line > lines || at.Start.Column < 1:
			t.Errorf("%q is placed at %d:%d of %d lines", d.Summary, at.Start.Line, at.Start.Column, lines)
		case at.Start.Line != block.NewSource(file, src).Pos(at.Start.Byte).Line:
			t.Errorf("%q: byte %d is not in line %d", d.Summary, at.Start.Byte, at.Start.Line)
		}
		if d.Summary == "" || !strings.HasSuffix(d.Detail, ".") && !strings.HasSuffix(d.Detail, "?") {
			t.Errorf("%q has the detail %q", d.Summary, d.Detail)
		}
		if strings.Contains(d.Detail, "%!") || strings.ContainsFunc(d.Detail, visible.Deceptive) {
			t.Errorf("the detail %q is badly formed", d.Detail)
		}
	}
}

func checkNeighbour(t *testing.T, file string, src []byte) {
	t.Helper()
	const good = "command = \"node\"\n"
	set := Load([]Folder{{mcpd, fstest.MapFS{
		file:              {Data: src},
		"aaa.toml":        {Data: []byte(good)},
		"zzz.hcl":         {Data: []byte(good)},
		"x.toml.dpkg-new": {Data: []byte("broken")},
	}}}, testOptions())
	if len(set.Servers) != 2 || set.Servers[0].Name != "aaa" || set.Servers[1].Name != "zzz" {
		t.Errorf("the neighbours are %+v", set.Servers)
	}
	if len(set.Broken) != 1 || set.Broken[0].File != "/etc/pfar/mcp.d/"+file {
		t.Errorf("broken is %+v", set.Broken)
	}
}
