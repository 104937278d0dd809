package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/control"
)

// TestWays writes a declaration in every way that editors and tools have, and expects the new one to run.
func TestWays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		write func(t *testing.T, path, text string) // path exists already, with another text
	}{
		{"in place", func(t *testing.T, path, text string) { put(t, path, text) }},
		{"in two steps", func(t *testing.T, path, text string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			check(t, err)
			defer f.Close()
			half := len(text) / 2
			_, err = f.WriteString(text[:half])
			check(t, err)
			time.Sleep(100 * time.Millisecond) // a slow writer is what is tested
			_, err = f.WriteString(text[half:])
			check(t, err)
		}},
		{"rename over", func(t *testing.T, path, text string) {
			put(t, path+".tmp", text)
			check(t, os.Rename(path+".tmp", path))
		}},
		{"rename into, from elsewhere", func(t *testing.T, path, text string) {
			other := filepath.Join(filepath.Dir(filepath.Dir(path)), "elsewhere.hcl")
			put(t, other, text)
			check(t, os.Rename(other, path))
		}},
		{"cp", func(t *testing.T, path, text string) {
			other := filepath.Join(filepath.Dir(filepath.Dir(path)), "original.hcl")
			put(t, other, text)
			out, err := exec.Command("cp", other, path).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}},
		{"editor with a swap file and a backup", func(t *testing.T, path, text string) {
			dir, base := filepath.Split(path)
			swap := filepath.Join(dir, "."+base+".swp")
			put(t, swap, "b0VIM 9.0\x00binary")
			put(t, filepath.Join(dir, "4913"), "")
			check(t, os.Remove(filepath.Join(dir, "4913")))
			check(t, os.Rename(path, path+"~"))
			put(t, path, text)
			check(t, os.Chmod(path, 0o644))
			check(t, os.Remove(swap))
		}},
		{"symbolic link swapped", func(t *testing.T, path, text string) {
			target := filepath.Join(filepath.Dir(filepath.Dir(path)), "target.hcl")
			put(t, target, text)
			check(t, os.Symlink(target, path+".new"))
			check(t, os.Rename(path+".new", path))
		}},
		{"dpkg", func(t *testing.T, path, text string) {
			put(t, path+".dpkg-new", text)
			time.Sleep(10 * time.Millisecond) // as dpkg was seen to do
			check(t, os.Rename(path+".dpkg-new", path))
		}},
		{"sed -i", func(t *testing.T, path, text string) {
			temporary := filepath.Join(filepath.Dir(path), "sedAbCdEf")
			put(t, temporary, text)
			check(t, os.Rename(temporary, path))
		}},
		{"removed and made again", func(t *testing.T, path, text string) {
			check(t, os.Remove(path))
			put(t, path, text)
		}},
	}
	p := start(t, map[string]string{"edited.hcl": echo(t, "-label", "at first"), "other.hcl": echo(t)})
	other := server(p.awaitRunning("edited", "other"), "other")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := echo(t, "-label", tt.name)
			mark := p.mark()
			tt.write(t, p.path("edited.hcl"), text)
			last := time.Now()
			p.awaitFrom(mark, "the old one stopping", soon, func(r control.Report) bool { return server(r, "edited").State != control.Running })
			r := p.awaitFrom(mark, "the new one", soon, func(r control.Report) bool {
				s := server(r, "edited")
				return s.State == control.Running && s.Since.After(last)
			})
			if got := p.client("/mcp/edited").must("label", map[string]any{}); got != tt.name {
				t.Errorf("the server that runs is %q", got)
			}
			if now := server(r, "other"); now.PID != other.PID || !now.Since.Equal(other.Since) {
				t.Errorf("the neighbour was touched: %+v, before %+v", now, other)
			}
			if len(r.Servers) != 2 || len(r.Diagnostics) != 0 {
				t.Errorf("%d servers and %d diagnostics: %+v", len(r.Servers), len(r.Diagnostics), r.Diagnostics)
			}
		})
	}
}

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"other.hcl": echo(t)})
	p.awaitRunning("other")
	p.write("new.hcl", echo(t))
	p.awaitRunning("new")

	// What says nothing new does nothing.
	p.write("new.hcl", echo(t))
	p.write("README.txt", "not a declaration")
	p.write(".hidden.hcl", "not = one either")

	check(t, os.Remove(p.path("other.hcl")))
	r := p.await("the other one gone", soon, func(r control.Report) bool { return server(r, "other").Name == "" })
	if s := server(r, "new"); s.State != control.Running || s.Crashes != 0 {
		t.Errorf("the one that was written again with the same text: %+v", s)
	}
	if len(r.Diagnostics) != 0 {
		t.Errorf("diagnostics for files that are no declarations: %+v", r.Diagnostics)
	}
}

func TestBrokenEditKeepsTheLastGoodVersion(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"edited.hcl": echo(t, "-label", "good")})
	before := server(p.awaitRunning("edited"), "edited")
	p.write("edited.hcl", "server {\n  command = \n")
	r := p.await("a diagnostic", soon, func(r control.Report) bool { return len(r.Diagnostics) > 0 })
	s := server(r, "edited")
	if s.State != control.Running || s.PID != before.PID || !s.Stale {
		t.Errorf("after a broken edit: %+v, before %+v", s, before)
	}
	if d := r.Diagnostics[0]; filepath.Base(d.File) != "edited.hcl" || d.Line == 0 || d.Summary == "" || !strings.Contains(d.Text, "command") {
		t.Errorf("diagnostic: %+v", d)
	}
	if got := p.client("/mcp/edited").must("label", map[string]any{}); got != "good" {
		t.Errorf("the server that runs is %q", got)
	}
	if stdout, _, _ := p.command("status"); !strings.Contains(stdout+p.stderr.String(), "edited.hcl") {
		t.Errorf("pfar status does not name the file: %s", stdout)
	}
	p.write("edited.hcl", echo(t, "-label", "better"))
	p.await("the mended one", soon, func(r control.Report) bool {
		s := server(r, "edited")
		return len(r.Diagnostics) == 0 && !s.Stale && s.State == control.Running && s.PID != before.PID
	})
	if got := p.client("/mcp/edited").must("label", map[string]any{}); got != "better" {
		t.Errorf("the server that runs is %q", got)
	}
}

// TestDirectoryReplaced takes the watched directory away and puts another in its place.
func TestDirectoryReplaced(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"a.hcl": echo(t)})
	p.awaitRunning("a")
	check(t, os.Rename(p.declarations, p.declarations+".old"))
	check(t, os.Mkdir(p.declarations, 0o755))
	p.write("b.hcl", echo(t))
	p.awaitRunning("b")
	p.write("c.hcl", echo(t))
	p.awaitRunning("c")
}

func put(t testing.TB, path, text string) {
	t.Helper()
	check(t, os.WriteFile(path, []byte(text), 0o644))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
