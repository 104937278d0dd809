package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/generator/importer"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/clientfile"
	"github.com/pfar/pfar/units/control"
)

// installHome is a home with one program's file, and a machine whose port is known without asking.
type installHome struct {
	dir, path string
	said      bytes.Buffer
	verb      installVerb
	wish      installation
}

func newInstallHome(t *testing.T, name, text string) *installHome {
	t.Helper()
	h := &installHome{dir: t.TempDir()}
	home := filepath.Join(h.dir, "home")
	h.path = filepath.Join(home, chores.Programs[name][0])
	if err := firstOf(os.MkdirAll(filepath.Dir(h.path), 0o755), os.WriteFile(h.path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	c := newPfar(strings.NewReader(""), &h.said, &h.said, func(v string) string {
		return map[string]string{"HOME": home, "PFAR_CONFIG_DIR": filepath.Join(h.dir, "mcp.d")}[v]
	}, os.Getuid())
	c.dirs.Run, c.machine = h.dir, control.Dirs{Run: h.dir}
	h.verb = installVerb{clientVerb{c}}
	h.wish = installation{program: name, yes: true}
	h.wish.client.Servers, h.wish.client.Profile = []string{access.Every}, "strict"
	return h
}

// run installs, or undoes.
func (h *installHome) run(undo bool) error {
	n := h.wish
	n.undo = undo
	return h.verb.run(context.Background(), n)
}

// files are the modes and texts of the files and the declared clients.
func (h *installHome) files(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, _ := e.Info()
		text, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%v %s", info.Mode(), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInstallPrograms writes pfar into a file of each program. Comments, order and every server stay, the token is in
// that file alone, and a copy is beside it. A second installation, and one into a broken file, change nothing. Undo
// gives back every byte and the mode.
func TestInstallPrograms(t *testing.T) {
	archive, err := txtar.ParseFile("../../tests/e2e/testdata/programs.txtar")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range archive.Files {
		texts[f.Name] = string(f.Data)
	}
	for _, name := range clientfile.Names() {
		t.Run(name, func(t *testing.T) {
			before := texts[chores.Programs[name][0]]
			h := newInstallHome(t, name, before)
			were := h.files(t)
			if err := h.run(false); err != nil {
				t.Fatal(err)
			}
			h.installed(t, name, before)
			are := h.files(t)
			if err := h.run(false); err == nil || !strings.Contains(err.Error(), "already has an entry pfar") {
				t.Errorf("a second installation: %v", err)
			}
			if got := h.files(t); !maps.Equal(got, are) {
				t.Errorf("a second installation leaves %q", got)
			}
			if err := h.run(true); err != nil || !maps.Equal(h.files(t), were) {
				t.Errorf("undo: %v, left is %q", err, h.files(t))
			}
			h = newInstallHome(t, name, before+"\n[unfinished: {")
			were = h.files(t)
			if err := h.run(false); err == nil || !strings.Contains(err.Error(), h.path+": reading ") ||
				!strings.Contains(err.Error(), "in line ") || !maps.Equal(h.files(t), were) {
				t.Errorf("a broken file: %v, left is %q", err, h.files(t))
			}
		})
	}
}

// installed wants the program's file to have all that it had, and pfar among its servers.
func (h *installHome) installed(t *testing.T, name, before string) {
	t.Helper()
	got, err := os.ReadFile(h.path)
	info, missing := os.Stat(h.path)
	if err != nil || missing != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, %v", err, missing, info)
	}
	rest := slices.Collect(strings.Lines(strings.ReplaceAll(string(got), ",", ""))) // the last member may get a comma
	for line := range strings.Lines(strings.ReplaceAll(before, ",", "")) {
		at := slices.Index(rest, line)
		if at < 0 {
			t.Fatalf("%q is not in its place in\n%s", line, got)
		}
		rest = rest[at+1:]
	}
	names := func(text string) (list []string) {
		entries, err := importer.Read(importer.Source{Name: h.path, Text: []byte(text)})
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			list = append(list, e.Name)
		}
		slices.Sort(list)
		return list
	}
	want := append(names(before), "pfar")
	if slices.Sort(want); !slices.Equal(names(string(got)), want) {
		t.Errorf("its servers are %q, want %q", names(string(got)), want)
	}
	copies, _ := filepath.Glob(h.path + ".pfar-*.bak")
	if len(copies) != 1 {
		t.Fatalf("copies %q", copies)
	}
	if kept, err := os.ReadFile(copies[0]); err != nil || string(kept) != before {
		t.Errorf("the copy is %s, %v", kept, err)
	}
	h.tokenIn(t, name, got)
}

// tokenIn wants the token in the program's file and nowhere else, and none for a program that starts pfar.
func (h *installHome) tokenIn(t *testing.T, name string, text []byte) {
	t.Helper()
	declared, err := os.ReadFile(filepath.Join(h.dir, "clients.d", name+".hcl"))
	if err != nil {
		t.Error(err)
	}
	token := tokens.Find(text)
	if p, _ := clientfile.Find(name); p.Stdio {
		if token != nil || bytes.Contains(declared, []byte("token_sha256")) {
			t.Errorf("a program that starts pfar has a token, or its client: %s", declared)
		}
		return
	}
	if token == nil || !bytes.Contains(declared, []byte("token_sha256")) || bytes.Contains(declared, token) ||
		bytes.Contains(h.said.Bytes(), token) || !strings.Contains(h.said.String(), "not shown") {
		t.Errorf("declared is %s, said is %s", declared, h.said.String())
	}
}

// TestInstallRefuses refuses files that root could be led to: hard links, FIFOs, folders that others may write.
func TestInstallRefuses(t *testing.T) {
	for name, lay := range map[string]func(home, path string) error{
		"a hard link": func(home, path string) error {
			other := filepath.Join(home, "other")
			return firstOf(os.WriteFile(other, []byte("{}"), 0o600), os.Link(other, path))
		},
		"a folder": func(_, path string) error { return os.Mkdir(path, 0o700) },
		"a directory that others may write": func(_, path string) error {
			return os.Chmod(filepath.Dir(path), 0o777)
		},
		"a directory that is a link": func(home, path string) error {
			elsewhere := filepath.Join(filepath.Dir(home), "elsewhere")
			return firstOf(os.Remove(filepath.Dir(path)), os.Mkdir(elsewhere, 0o700),
				os.Symlink(elsewhere, filepath.Dir(path)))
		},
	} {
		home := filepath.Join(t.TempDir(), "home")
		path := filepath.Join(home, ".cursor", "mcp.json")
		if err := firstOf(os.MkdirAll(filepath.Dir(path), 0o700), lay(home, path)); err != nil {
			t.Fatal(err)
		}
		f, err := openForeign(owner{os.Getuid(), home}, chores.Programs["cursor"], "")
		if err == nil && name == "a directory that is a link" {
			_, err = f.replace([]byte("{}")) // nothing is there yet
		}
		if err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func firstOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}
