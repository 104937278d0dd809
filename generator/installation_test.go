package generator

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
)

// TestProgramOfAPackage: strangers wrote all that lies in a tree, so that no bin and no link leads out of its package.
func TestProgramOfAPackage(t *testing.T) {
	const npm, pypi = "npm:@a/b@1.0.0", "pypi:mcp-y==2.0"
	const base = "/var/lib/pfar/packages/"
	const n, y = base + "npm/@a/b/1.0.0", base + "pypi/mcp-y/2.0"
	const b, site = n + "/tree/node_modules/@a/b", y + "/tree/lib/python3.11/site-packages/"
	const script = "#!" + y + "/tree/bin/python"
	recorded := n + `/record.json : {"package": "npm:@a/b@1.0.0"}`
	manifest := func(bin string) string { return b + `/package.json : {"name": "@a/b", "bin": ` + bin + `}` }
	venv := func(entries, digest string) string {
		return strings.Join([]string{y + `/record.json : {"package": "pypi:mcp-y==2.0"}`, y + "/tree/pyvenv.cfg",
			site + `mcp_y-2.0.dist-info/entry_points.txt : [console_scripts]\n` + entries,
			site + "mcp_y-2.0.dist-info/RECORD : " + digest}, "\n")
	}
	for name, c := range map[string]struct {
		pkg, command string
		files        []string
		want         string // of the path below the tree, or of the error; "none": it is not installed
	}{
		"a path": {npm, "",
			[]string{recorded, manifest(`"./cli.js"`), b + "/cli.js *"}, "node_modules/@a/b/cli.js"},
		"one": {npm, "",
			[]string{recorded, manifest(`{"z": "z.js"}`), b + "/z.js *"}, "node_modules/@a/b/z.js"},
		"its own name": {npm, "",
			[]string{recorded, manifest(`{"z": "z.js", "b": "b.js"}`), b + "/b.js *"}, "node_modules/@a/b/b.js"},
		"the named one": {npm, "z",
			[]string{recorded, manifest(`{"z": "z.js", "b": "b.js"}`), b + "/z.js *"}, "node_modules/@a/b/z.js"},
		"a link inside": {npm, "",
			[]string{recorded, manifest(`"cli"`), b + "/cli -> dist/x.js", b + "/dist/x.js *"}, "node_modules/@a/b/dist/x.js"},
		"several": {npm, "",
			[]string{recorded, manifest(`{"y": "y.js", "z": "z.js"}`)}, "the programs y, z; name one"},
		"another name": {npm, "q",
			[]string{recorded, manifest(`{"y": "y.js"}`)}, `no program "q", only y`},
		"no bin": {npm, "",
			[]string{recorded, b + `/package.json : {"name": "@a/b"}`}, "no program"},
		"no path in it": {npm, "", []string{recorded, manifest(`{"b": ""}`)}, "no program"},
		"a bad name": {npm, "",
			[]string{recorded, manifest(`{"../b": "b.js"}`), b + "/b.js *"}, "no program"},
		"bin is a list": {npm, "", []string{recorded, manifest(`["x"]`)}, "neither a path nor an object"},
		"up and out": {npm, "",
			[]string{recorded, manifest(`"../../../../evil"`), n + "/evil *"}, "leads out"},
		"a dependency": {npm, "",
			[]string{recorded, manifest(`"../c/x.js"`), n + "/tree/node_modules/@a/c/x.js *"}, "leads out"},
		"a beginning": {npm, "",
			[]string{recorded, manifest(`"../b2/x.js"`), n + "/tree/node_modules/@a/b2/x.js *"}, "leads out"},
		"a link out": {npm, "",
			[]string{recorded, manifest(`"x"`), b + "/x -> /usr/bin/sh"}, "leads out"},
		"a directory out": {npm, "",
			[]string{recorded, manifest(`"d/sh"`), b + "/d -> /usr/bin"}, "leads out"},
		"dangling out": {npm, "",
			[]string{recorded, manifest(`"x"`), b + "/x -> /srv/later"}, "leads out"},
		"a loop":   {npm, "", []string{recorded, manifest(`"x"`), b + "/x -> x"}, "is missing"},
		"missing":  {npm, "", []string{recorded, manifest(`"x"`)}, "is missing"},
		"a folder": {npm, "", []string{recorded, manifest(`"d"`), b + "/d/"}, "is not a file"},
		"a socket": {npm, "", []string{recorded, manifest(`"s"`), b + "/s ="}, "is not a file"},
		"package a link": {npm, "",
			[]string{recorded, b + " -> /srv/evil", `/srv/evil/package.json : {"bin": "x"}`, "/srv/evil/x *"}, "is a link"},
		"manifest a link": {npm, "",
			[]string{recorded, b + "/package.json -> /etc/shadow"}, "cannot be read"},
		"no record": {npm, "", []string{manifest(`"x"`), b + "/x *"}, "none"},
		"another's record": {npm, "",
			[]string{n + `/record.json : {"package": "npm:evil@1.0.0"}`, manifest(`"x"`)},
			"not the record of this package"},
		"a script": {pypi, "", []string{venv("mcp-y = y:main", record("../../../bin/mcp-y", script)),
			y + "/tree/bin/mcp-y " + script}, "bin/mcp-y"},
		"a replaced script": {pypi, "", []string{venv("mcp-y = y:main", record("../../../bin/mcp-y", script)),
			y + "/tree/bin/mcp-y #!/bin/sh"}, "not the one that the installer wrote"},
		"a script out": {pypi, "", []string{venv("mcp-y = y:main", "x"), y + "/tree/bin/mcp-y -> /usr/bin/sh"}, "leads out"},
		"two scripts":  {pypi, "", []string{venv(`a = y:main\nz = y:main`, "x")}, "the programs a, z"},
		"no such package": {pypi, "", []string{y + `/record.json : {"package": "pypi:mcp-y==2.0"}`,
			site + "other-1.dist-info/RECORD"}, "0 times"},
	} {
		p, err := source.ParseExact(c.pkg)
		if err != nil {
			t.Fatal(err)
		}
		h := testHost(t, strings.Join(c.files, "\n"))
		i := h.installation(p)
		got, err := i.program(c.command)
		switch {
		case c.want == "none":
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %q, %v, want that it is not installed", name, got, err)
			}
		case err != nil:
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		case got != i.tree()+"/"+c.want:
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestOriginOfAnInstalledPackage: pfar's record counts, not npm's list, in which a mirror may stand; what makes other
// packages uncertain does so here too.
func TestOriginOfAnInstalledPackage(t *testing.T) {
	const folder = "/var/lib/pfar/packages/npm/mcp-x/1.0.0"
	h := testHost(t, folder+`/tree/node_modules/.package-lock.json : {"packages": {"node_modules/mcp-x": `+
		`{"version": "1.0.0", "resolved": "https://mirror.example/mcp-x.tgz"}}}`)
	s := declaration.Server{Program: declaration.Program{Package: "npm:mcp-x@1.0.0"}}
	f := &findings{place: s.Place}
	if f.install(&s, h); f.diags.HasErrors() {
		t.Fatal(f.diags)
	}
	if o := (facts{s, h}).origin(); !o.certain() || o.pkg != "mcp-x" || len(o.rests) == 0 || o.rests[0] != "/usr" &&
		!strings.Contains(strings.Join(o.rests, " "), folder) {
		t.Errorf("%+v, want mcp-x, certain by %s", o, folder)
	}
	loads := s
	loads.Env = []declaration.Variable{{Name: "NODE_OPTIONS", Value: "--import=/srv/evil.js"}}
	if o := (facts{loads, h}).origin(); o.certain() {
		t.Errorf("%+v is certain, though it loads other code", o)
	}
	writes := s
	writes.Sandbox.Writable = []string{"/var/lib/pfar/packages"}
	if o := (facts{writes, h}).origin(); o.certain() {
		t.Errorf("%+v is certain, though it may write to itself", o)
	}
	s.Package = ""
	if o := (facts{s, h}).origin(); o.certain() {
		t.Errorf("%+v is certain without pfar's record", o)
	}
}
