package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
)

// declaring is a request to write a text in place of the one with a digest.
func declaring(server, text, old string) control.Request {
	return control.Request{Verb: control.Declare, Server: server, Text: &control.Text{New: []byte(text), Old: old}}
}

// removing is one to remove that.
func removing(server, old string) control.Request {
	return control.Request{Verb: control.Undeclare, Server: server, Text: &control.Text{Old: old}}
}

// ask has a daemon carry out a request as the control socket does.
func (d *daemon) ask(t *testing.T, q control.Request) (r *control.Declared, err error) {
	t.Helper()
	err = d.answer(t.Context(), control.Peer{UID: 1000}, q, func(got control.Response) error {
		r = got.Declared
		return nil
	})
	return r, err
}

// folderText is what lies in the folder of declarations.
func (d *daemon) folderText(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	entries, err := os.ReadDir(d.options.declarations)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(d.options.declarations, e.Name())
		b, err := os.ReadFile(path)
		to, _ := os.Readlink(path)
		fmt.Fprintf(&all, "%s %v %s %q %v\n", e.Name(), e.Type(), to, b, err)
	}
	return all.String()
}

// TestDeclareRefuses: what is wrong, was not seen, would take another server's place, or cannot be recorded is not
// written.
func TestDeclareRefuses(t *testing.T) {
	d, m, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "one"))
	d.put(t, "other.hcl", "name = \"b\"\n"+fmt.Sprintf(good, "two"))
	elsewhere := filepath.Join(t.TempDir(), "x.hcl")
	if err := os.WriteFile(elsewhere, []byte(fmt.Sprintf(good, "three")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(d.options.declarations, "linked.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	d.state(t)
	before, starts := d.folderText(t), m.starts["a"]
	text := []byte(fmt.Sprintf(good, "new"))
	a := control.DigestOf([]byte(fmt.Sprintf(good, "one")))
	b := control.DigestOf([]byte("name = \"b\"\n" + fmt.Sprintf(good, "two")))
	for what, c := range map[string]struct {
		q    control.Request
		want error
	}{
		"no name":               {declaring("", string(text), ""), control.ErrInvalid},
		"a path":                {declaring("../a", string(text), ""), control.ErrInvalid},
		"no text":               {control.Request{Server: "c"}, control.ErrInvalid},
		"a text not seen":       {declaring("a", string(text), ""), control.ErrChanged},
		"another text":          {declaring("a", string(text), control.DigestOf(text)), control.ErrChanged},
		"a text that is gone":   {declaring("c", string(text), a), control.ErrChanged},
		"another file not seen": {declaring("b", string(text), ""), control.ErrChanged},
		"a link":                {declaring("linked", string(text), ""), control.ErrInvalid},
	} {
		c.q.Verb = control.Declare
		if r, err := d.ask(t, c.q); !errors.Is(err, c.want) || r != nil {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	for what, c := range map[string]struct{ server, text, old, want string }{
		"no HCL":              {"c", "server {", "", "c.hcl:1:8: error: Unclosed configuration block"},
		"an unknown key":      {"a", fmt.Sprintf(good, "x") + "tokn = 1\n", a, "a.hcl:5:1: error: Unknown key"},
		"no such program":     {"c", "server {\n  command = \"no-such-program\"\n}\n", "", "c.hcl:2:"},
		"another name":        {"c", "name = \"d\"\n" + fmt.Sprintf(good, "x"), "", "error: Other name"},
		"a name that is here": {"c", "name = \"a\"\n" + fmt.Sprintf(good, "x"), "", "error: "},
		"another's file":      {"other", fmt.Sprintf(good, "x"), b, "Another server's file"},
	} {
		r, err := d.ask(t, declaring(c.server, c.text, c.old))
		if err != nil || r.Done || r.Sound() {
			t.Errorf("%s: %+v, %v", what, r, err)
			continue
		}
		all := ""
		for _, g := range r.Diagnostics {
			all += g.Text
		}
		if !strings.Contains(all, c.want) {
			t.Errorf("%s: %q, want %q", what, all, c.want)
		}
	}
	dry := declaring("c", string(text), "")
	dry.Text.Dry = true
	if r, err := d.ask(t, dry); err != nil || r.Done || !r.Sound() {
		t.Errorf("only checked: %+v, %v", r, err)
	}
	for _, q := range []control.Request{
		removing("c", ""), removing("a", control.DigestOf(text)), removing("linked", ""), removing("..", a),
	} {
		if r, err := d.ask(t, q); err == nil {
			t.Errorf("undeclare %+v: %+v", q, r)
		}
	}
	dry = control.Request{Verb: control.Undeclare, Server: "a", Text: &control.Text{Dry: true}}
	if r, err := d.ask(t, dry); err != nil || r.Done || r.Digest != a {
		t.Errorf("only asked: %+v, %v", r, err)
	}
	if got := d.folderText(t); got != before || d.reportNow(t).Directory == "" || m.starts["a"] != starts {
		t.Errorf("the directory has changed:\n%s\nwas:\n%s", got, before)
	}
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Method == string(control.Declare) || r.Method == string(control.Undeclare) {
			t.Errorf("recorded: %+v", r)
		}
	}
}

// TestDeclare: what is sound is written, runs, is replaced by who has seen it, and goes again.
func TestDeclare(t *testing.T) {
	d, m, _ := fixture(t)
	file := filepath.Join(d.options.declarations, "a.hcl")
	one, two := []byte(fmt.Sprintf(good, "one")), []byte(fmt.Sprintf(good, "two"))
	r, err := d.ask(t, declaring("a", string(one), ""))
	if err != nil || !r.Done || r.File != file || r.Digest != control.DigestOf(one) || len(r.Diagnostics) != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if d.state(t); m.runs["a"].Gateway.Description != "one" {
		t.Errorf("runs %+v", m.runs["a"])
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if r, err := d.ask(t, declaring("a", string(two), r.Digest)); err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	info, err := os.Stat(file)
	if b, _ := os.ReadFile(file); err != nil || string(b) != string(two) || info.Mode() != 0o640 {
		t.Errorf("%v %v, %q", info, err, b)
	}
	if d.state(t); m.runs["a"].Gateway.Description != "two" {
		t.Errorf("runs %+v", m.runs["a"])
	}
	if r, err := d.ask(t, removing("a", control.DigestOf(two))); err != nil || !r.Done || r.Hides != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if s := d.state(t); len(s) != 0 || d.folderText(t) != "" {
		t.Errorf("left: %+v, %s", s, d.folderText(t))
	}
	var told []string
	for _, r := range d.audit.recorded(t, ownChain) {
		if r.Kind == audit.Declaration && r.User == "uid 1000" {
			was, is := r.Old == control.DigestOf(one), r.New == control.DigestOf(two)
			told = append(told, fmt.Sprint(r.Method, " ", r.Server, " ", was, is))
		}
	}
	if got := strings.Join(told, "; "); got != "declare a false false; declare a true true; undeclare a false false" {
		t.Errorf("recorded %q", got)
	}
}

// TestUndeclareMasks: what a package has installed comes back neither when the owner's file goes nor by itself, and is
// declared again over the mask.
func TestUndeclareMasks(t *testing.T) {
	d, m, changed := fixture(t)
	vendor := t.TempDir()
	err := d.do(func() error {
		for _, o := range []*options{&d.options, &d.reader.options} {
			o.dirs.Config, o.dirs.Below = o.declarations, []string{vendor}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	installed := filepath.Join(vendor, "a.hcl")
	if err := os.WriteFile(installed, []byte(fmt.Sprintf(good, "vendor")), 0o644); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	if d.state(t); m.runs["a"].Gateway.Description != "vendor" {
		t.Fatalf("runs %+v", m.runs["a"])
	}
	own := []byte(fmt.Sprintf(good, "own"))
	for _, what := range []string{"installed", "hidden"} {
		r, err := d.ask(t, removing("a", ""))
		if err != nil || !r.Done || r.Hides != installed {
			t.Fatalf("%s: %+v, %v", what, r, err)
		}
		to, err := os.Readlink(filepath.Join(d.options.declarations, "a.hcl"))
		if s := d.state(t); len(s) != 0 || to != os.DevNull {
			t.Errorf("%s: %+v, %q, %v", what, s, to, err)
		}
		if r, err := d.ask(t, declaring("a", string(own), "")); err != nil || !r.Done {
			t.Fatalf("%s: %+v, %v", what, r, err)
		}
		if d.state(t); m.runs["a"].Gateway.Description != "own" {
			t.Errorf("%s: runs %+v", what, m.runs["a"])
		}
	}
}

// TestUpgradesAreNoted: which version the package of a server had before is known after it was declared with another,
// also to the next pfard. Going back is no upgrade, and what is not written is none.
func TestUpgradesAreNoted(t *testing.T) {
	d, _, changed := fixture(t)
	host := d.reader.host()
	text := func(version string) string { return fmt.Sprintf("package = \"npm:mcp-x@%s\"\n", version) }
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		p := source.Package{Kind: source.NPM, Name: "mcp-x", Version: version}
		folder := host.Folder(p)
		for name, text := range map[string]string{
			"record.json":                          string(generator.Record(p)),
			"tree/node_modules/mcp-x/package.json": fmt.Sprintf(`{"name": "mcp-x", "version": %q, "bin": "x"}`, version),
			"tree/node_modules/mcp-x/x":            "#!/bin/sh\n",
		} {
			at := filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	d.put(t, "a.hcl", text("1.0.0"))
	changed <- struct{}{}
	d.state(t)
	now := "1.0.0"
	becomes := func(version, want string, edit func(*control.Text)) {
		t.Helper()
		q := declaring("a", text(version), control.DigestOf([]byte(text(now))))
		edit(q.Text)
		r, err := d.ask(t, q)
		if err != nil || r.Done == q.Text.Dry {
			t.Fatalf("%s: %+v, %v", version, r, err)
		}
		if r.Done {
			now = version
		}
		last := upgrades(d.options.dirs.Upgrades()).of("a")
		got := ""
		if last != nil {
			got = strings.ReplaceAll(fmt.Sprint(last), "npm:mcp-x@", "")
		}
		if got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
	plain := func(*control.Text) {}
	becomes("1.1.0", "", func(t *control.Text) { t.Dry = true })
	becomes("1.0.0", "", plain)
	becomes("1.1.0", "&{1.0.0 1.1.0}", plain)
	becomes("1.2.0", "&{1.1.0 1.2.0}", plain)
	becomes("1.1.0", "&{1.1.0 1.2.0}", func(t *control.Text) { t.Back = true })
	q := declaring("a", text(now), control.DigestOf([]byte(text(now))))
	q.Text.Dry = true
	if r, err := d.ask(t, q); err != nil || r.Upgraded == nil || r.Upgraded.From != "npm:mcp-x@1.1.0" {
		t.Errorf("it is told %+v, %v", r, err)
	}
	becomes("1.0.0", "&{1.1.0 1.0.0}", plain)
	dir := d.options.dirs.Upgrades()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 { // whom no mode stops
		_, err := d.ask(t, declaring("a", text("1.2.0"), control.DigestOf([]byte(text(now)))))
		if err == nil || !strings.Contains(d.folderText(t), "1.0.0") {
			t.Errorf("an upgrade that cannot be noted: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ask(t, removing("a", "")); err != nil {
		t.Fatal(err)
	}
	if last := upgrades(dir).of("a"); last != nil {
		t.Errorf("of a server that is gone: %+v", last)
	}
}
