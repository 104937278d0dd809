package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/control"
)

// TestInstallToken wants the token of a program that speaks HTTP in its file and nowhere else, and undo to give back
// every byte and the mode, for each such program.
func TestInstallToken(t *testing.T) {
	for name, p := range programs {
		if p.stdio {
			continue
		}
		dir := t.TempDir()
		home := filepath.Join(dir, "home")
		path := filepath.Join(home, p.home[0])
		before := map[bool]string{true: "# mine\n", false: "{\n  // mine\n  \"theme\": \"a\"\n}\n"}[p.syntax != 0]
		if p.syntax != 0 {
			before += map[string]string{"codex": "model = \"x\"\n", "goose": "GOOSE_MODEL: x\n"}[name]
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		c := newPfar(strings.NewReader(""), &said, &said, func(v string) string {
			return map[string]string{"HOME": home, "PFAR_CONFIG_DIR": filepath.Join(dir, "mcp.d")}[v]
		}, os.Getuid())
		c.dirs.Run, c.machine = dir, control.Dirs{Run: dir} // the machine's, whose port is known without asking
		v := installVerb{clientVerb{c}}
		n := installation{program: name, yes: true}
		n.client.Servers, n.client.Profile = []string{access.Every}, "strict"
		if err := v.run(context.Background(), n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := os.ReadFile(path)
		token := tokens.Find(got)
		if err != nil || token == nil || !bytes.Contains(got, []byte("mine")) {
			t.Fatalf("%s: %v, %s", name, err, got)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		declared, err := os.ReadFile(filepath.Join(dir, "clients.d", name+".hcl"))
		if err != nil || !bytes.Contains(declared, []byte("token_sha256")) {
			t.Errorf("%s: declared is %s, %v", name, declared, err)
		}
		if bytes.Contains(declared, token) || bytes.Contains(said.Bytes(), token) ||
			!strings.Contains(said.String(), "not shown") {
			t.Errorf("%s: said %s", name, said.String())
		}
		n.undo = true
		if err := v.run(context.Background(), n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || string(back) != before || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v, %s", name, err, info.Mode(), back)
		}
		for _, of := range []string{filepath.Join(dir, "clients.d"), filepath.Dir(path)} {
			entries, _ := os.ReadDir(of)
			if want := map[bool]int{true: 1}[of == filepath.Dir(path)]; len(entries) != want {
				t.Errorf("%s: left in %s: %v", name, of, entries)
			}
		}
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
		f, err := openForeign(owner{os.Getuid(), home}, programs["cursor"].home, "")
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
