package declaration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hashicorp/hcl/v2"
)

const (
	runtimed = "/run/pfar/mcp.d"
	vendord  = "/usr/lib/pfar/mcp.d"
)

func null() *fstest.MapFile { return &fstest.MapFile{Data: []byte("/dev/null"), Mode: fs.ModeSymlink} }

// layers are the folders of a machine, from one map of whole paths.
func layers(files fstest.MapFS) (list []Folder) {
	for _, dir := range []string{mcpd, runtimed, vendord} {
		below := fstest.MapFS{}
		for name, f := range files {
			if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
				below[rest] = f
			}
		}
		list = append(list, Folder{dir, below})
	}
	return list
}

func summaries(diags hcl.Diagnostics) (list []string) {
	for _, d := range diags {
		list = append(list, fmt.Sprintf("%s:%d %s", d.Subject.Filename, d.Subject.Start.Line, d.Summary))
	}
	slices.Sort(list)
	return list
}

// TestFoldersHide: what counts of several files of one name, and what is said of the others.
func TestFoldersHide(t *testing.T) {
	const good, bad = "command = \"node\"\n", "x = 1\n"
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  []string // files of servers, and broken ones with a mark
		diags []string
	}{
		"each folder": {fstest.MapFS{mcpd + "/a.hcl": file(good), runtimed + "/b.hcl": file(good),
			vendord + "/c.toml": file("command = 'x'\n")},
			[]string{mcpd + "/a.hcl", runtimed + "/b.hcl", vendord + "/c.toml"}, nil},
		"hides by file name": {fstest.MapFS{mcpd + "/a.hcl": file(good), runtimed + "/a.hcl": file(bad),
			vendord + "/a.toml": file(bad)}, []string{mcpd + "/a.hcl"}, nil},
		"runtime hides vendor's": {fstest.MapFS{runtimed + "/a.hcl": file(good),
			vendord + "/a.hcl": file(good)}, []string{runtimed + "/a.hcl"}, nil},
		"hides by the name it says": {fstest.MapFS{mcpd + "/mine.hcl": file("name = \"a\"\n" + good),
			vendord + "/a.hcl": file(good)}, []string{mcpd + "/mine.hcl"}, nil},
		"a broken one hides all alike": {fstest.MapFS{mcpd + "/a.hcl": file("command = \"node\"\nx = 1\n"),
			vendord + "/a.hcl": file(good)}, []string{"!" + mcpd + "/a.hcl"}, []string{mcpd + "/a.hcl:2 Unknown key"}},
		"two in one folder": {fstest.MapFS{vendord + "/a.hcl": file(good),
			vendord + "/b.hcl": file("name = \"a\"\n" + good)},
			[]string{vendord + "/a.hcl"}, []string{vendord + "/b.hcl:1 Duplicate server"}},
		"a link to /dev/null masks": {fstest.MapFS{mcpd + "/a.hcl": null(), runtimed + "/a.hcl": file(good),
			vendord + "/a.hcl": file(good)}, nil, nil},
		"an empty file masks": {fstest.MapFS{mcpd + "/a.hcl": file(""),
			vendord + "/a.toml": file("command = 'x'\n")}, nil, nil},
		"an empty file alone is a mistake": {fstest.MapFS{mcpd + "/a.hcl": file("")}, []string{"!" + mcpd + "/a.hcl"},
			[]string{mcpd + "/a.hcl:1 Empty declaration"}},
		"a link to /dev/null alone": {fstest.MapFS{mcpd + "/a.hcl": null()}, nil, nil},
		"a link to another device": {fstest.MapFS{mcpd + "/a.hcl": {Mode: fs.ModeDevice | fs.ModeCharDevice},
			vendord + "/a.hcl": file(good)}, []string{"!" + mcpd + "/a.hcl"}, []string{mcpd + "/a.hcl:1 File not readable"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Load(layers(c.files), testOptions())
			var got []string
			for _, x := range s.Servers {
				got = append(got, x.File)
			}
			for _, x := range s.Broken {
				got = append(got, "!"+x.File)
			}
			if !slices.Equal(got, c.want) || !slices.Equal(summaries(s.Diags), c.diags) {
				t.Errorf("got %q, %q", got, summaries(s.Diags))
			}
		})
	}
}

// TestFolderThatCannotBeRead: what it hides is not known, so nothing is.
func TestFolderThatCannotBeRead(t *testing.T) {
	list := layers(fstest.MapFS{mcpd + "/a.hcl": file("command = \"node\"\n"),
		vendord + "/b.hcl": file("command = \"node\"\n")})
	if s := Load(append(list[:1:1], Folder{runtimed, refusing{fs.ErrNotExist}}, list[2]),
		testOptions()); s.Unread || len(s.Servers) != 2 {
		t.Errorf("one that is not there: %+v", s)
	}
	if s := Load(append(list[:1:1], Folder{runtimed, refusing{fs.ErrPermission}}, list[2]),
		testOptions()); !s.Unread || len(s.Servers) != 0 || !s.Diags.HasErrors() {
		t.Errorf("one that cannot be read: %+v", s)
	}
	if s := Load(append([]Folder{{mcpd, refusing{fs.ErrNotExist}}}, list[1:]...), testOptions()); !s.Unread ||
		len(s.Servers) != 0 {
		t.Errorf("the first is gone: %+v", s)
	}
}

type refusing struct{ err error }

func (r refusing) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: r.err}
}

// TestDropIns: in the order of their names wherever they lie, a value and a list replaced, tables joined.
func TestDropIns(t *testing.T) {
	const main = `label = "internal"
allowed_domains = ["a.example", "b.example"]
server {
  command = "node"
  args = ["x"]
}
auth = { A = "vault:a", B = "vault:b" }
sandbox {
  memory_limit = "1g"
  tasks_max = 7
}
tool "search" {
  semantics = "read"
}
`
	s := Load(layers(fstest.MapFS{
		vendord + "/a.hcl":              file(main),
		vendord + "/a.hcl.d/50-one.hcl": file("label = \"public\"\nallowed_domains = [\"c.example\"]\n"),
		mcpd + "/a.hcl.d/10-early.hcl":  file("label = \"secret\"\ntimeout = \"7s\"\n"),
		runtimed + "/a.hcl.d/60-late.hcl": file("server {\n  args = [\"y\"]\n}\nauth = { B = null, C = \"vault:c\" " +
			"}\nsandbox {\n  tasks_max = 9\n}\ntool \"send\" {\n  semantics = \"write\"\n}\n"),
		vendord + "/a.hcl.d/60-late.hcl":   file("label = \"regulated\"\n"),
		vendord + "/a.hcl.d/70-masked.hcl": file("label = \"regulated\"\n"),
		mcpd + "/a.hcl.d/70-masked.hcl":    null(),
		vendord + "/a.hcl.d/80-empty.hcl":  file("label = \"regulated\"\n"),
		mcpd + "/a.hcl.d/80-empty.hcl":     file(""),
		mcpd + "/a.hcl.d/README":           file("not read"),
		mcpd + "/a.hcl.d/90.hcl~":          file("label = \"regulated\"\n"),
	}), testOptions())
	if len(s.Diags) > 0 || len(s.Servers) != 1 {
		t.Fatalf("%v, %+v", s.Diags, s.Servers)
	}
	x := s.Servers[0]
	var auth []string
	for _, c := range x.Credentials {
		auth = append(auth, c.Env)
	}
	got := fmt.Sprint(x.Label, x.Timeout, x.Allowed, x.Command, x.Args, auth, x.Sandbox.Memory>>30,
		x.Sandbox.Tasks, len(x.Tools))
	if want := "public7s[c.example]node[y] [A C] 1 9 2"; strings.ReplaceAll(got, " ",
		"") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("got %s, want %s", got, want)
	}
	checkServer(t, &x)
	var origins []string
	for _, o := range x.Origins() {
		origins = append(origins, o.File+" "+strings.Join(o.Keys, " "))
	}
	want := []string{
		vendord + "/a.hcl command auth.A sandbox.memory_limit tool.search.semantics",
		mcpd + "/a.hcl.d/10-early.hcl timeout",
		vendord + "/a.hcl.d/50-one.hcl label allowed_domains",
		runtimed + "/a.hcl.d/60-late.hcl args auth.C sandbox.tasks_max tool.send.semantics",
	}
	slices.Sort(origins)
	slices.Sort(want)
	for i := range origins {
		a, b := strings.Fields(origins[i]), strings.Fields(want[i])
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			t.Errorf("origin %q, want %q", origins[i], want[i])
		}
	}
	if at := x.Place("label"); at.Filename != vendord+"/a.hcl.d/50-one.hcl" || at.Start.Line != 1 {
		t.Errorf("label is at %v", at)
	}
}

// TestBrokenDropIns: each costs its server, and the diagnostic names the drop-in's line.
func TestBrokenDropIns(t *testing.T) {
	const main = "command = \"node\"\nallowed_domains = [\"a.example\"]\n"
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":        {"\nlabl = \"internal\"\n", "/a.hcl.d/x.hcl:2 Unknown key"},
		"bad value":          {"\n\nlabel = \"x\"\n", "/a.hcl.d/x.hcl:3 Unknown label"},
		"syntax":             {"label = \"internal\"\nserver {\n", "/a.hcl.d/x.hcl:2 Unclosed block"},
		"name":               {"name = \"b\"\n", "/a.hcl.d/x.hcl:1 Name in a drop-in"},
		"empty":              {"", "/a.hcl.d/x.hcl:1 Empty declaration"},
		"takes away nothing": {"version = null\n", "/a.hcl.d/x.hcl:1 Wrong type"},
		"takes the command":  {"command = null\n", "/a.hcl:1 Missing key"},
		"not UTF-8":          {"label = \"\xff\"\n", "/a.hcl.d/x.hcl:1 Not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			s := Load(layers(fstest.MapFS{mcpd + "/a.hcl": file(main), mcpd + "/a.hcl.d/x.hcl": file(c.text),
				mcpd + "/b.hcl": file(main)}), testOptions())
			good, broken := names(s)
			if !slices.Equal(good, []string{"b"}) || !slices.Equal(broken, []string{"a " + mcpd + "/a.hcl"}) {
				t.Errorf("good %q, broken %q", good, broken)
			}
			if got := summaries(s.Diags); len(got) != 1 || !strings.HasPrefix(got[0], mcpd+c.want[:strings.Index(c.want,
				" ")]) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if s.Of[mcpd+"/a.hcl.d/x.hcl"] != mcpd+"/a.hcl" {
				t.Errorf("drop-ins %v", s.Of)
			}
		})
	}
}

// TestDropInsTellNoSecrets: neither a line of the drop-in nor the same offsets of the declaration.
func TestDropInsTellNoSecrets(t *testing.T) {
	s := Load(layers(fstest.MapFS{
		mcpd + "/a.hcl":         file("command = \"node\"\nauth = { A = \"hunter2\" }\n"),
		mcpd + "/a.hcl.d/x.hcl": file("auth = { B = \"hunter3\" }\nlabel = \"x\"\n"),
	}), testOptions())
	var out strings.Builder
	if err := Write(&out, s.Files, s.Diags, 80, false); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Contains(got, "hunter") || !strings.Contains(got, "a.hcl.d/x.hcl:1:") ||
		!strings.Contains(got, "a.hcl:2:") {
		t.Error(got)
	}
}

func TestStrayDropIns(t *testing.T) {
	const main = "command = \"node\"\n"
	s := Load(layers(fstest.MapFS{
		mcpd + "/a.hcl":           file(main),
		mcpd + "/a.hcl.d/x.toml":  file("label = 'internal'\n"),
		mcpd + "/b.hcl.d/x.hcl":   file("label = \"internal\"\n"),
		mcpd + "/a.toml.d/x.toml": file("label = 'internal'\n"),
		mcpd + "/c.d/x.hcl":       file("label = \"internal\"\n"),
	}), testOptions())
	want := []string{mcpd + "/a.hcl.d/x.toml:1 File not read", mcpd + "/a.toml.d/x.toml:1 Drop-in without a " +
		"declaration", mcpd + "/b.hcl.d/x.hcl:1 Drop-in without a declaration"}
	if got := summaries(s.Diags); !slices.Equal(got, want) || s.Diags.HasErrors() || len(s.Servers) != 1 {
		t.Errorf("got %q", got)
	}
}

// TestKeptWithDropIns: the last good version is that of all files together, and stands for a broken drop-in.
func TestKeptWithDropIns(t *testing.T) {
	files := fstest.MapFS{vendord + "/a.hcl": file("command = \"node\"\n"),
		mcpd + "/a.hcl.d/x.hcl": file("label = \"secret\"\n")}
	s := Load(layers(files), testOptions())
	name, text := Pack(s.Sources[vendord+"/a.hcl"])
	if name != "a.hcl.json" || !json.Valid(text) {
		t.Fatalf("%s: %s", name, text)
	}
	o := testOptions()
	o.Kept = fstest.MapFS{name: {Data: text}}
	for what, broken := range map[string]fstest.MapFS{
		"drop-in": {vendord + "/a.hcl": files[vendord+"/a.hcl"], mcpd + "/a.hcl.d/x.hcl": file("label = ")},
		"declaration": {vendord + "/a.hcl": file("command = "),
			mcpd + "/a.hcl.d/x.hcl": files[mcpd+"/a.hcl.d/x.hcl"]},
		"one that hides it":       {vendord + "/a.hcl": files[vendord+"/a.hcl"], mcpd + "/a.hcl": file("command = ")},
		"one of the other syntax": {vendord + "/a.hcl": files[vendord+"/a.hcl"], mcpd + "/a.toml": file("command = ")},
	} {
		s := Load(layers(broken), o)
		if len(s.Servers) != 0 || len(s.Earlier) != 1 || s.Earlier[0].Label != Secret {
			t.Errorf("%s: %+v, earlier %+v", what, s.Servers, s.Earlier)
		}
	}
	o.Kept = fstest.MapFS{name: {Data: []byte("{")}}
	if s := o.Earlier(vendord + "/a.hcl"); s != nil {
		t.Errorf("of a broken one %+v", s)
	}
}
