package boot

import (
	"errors"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/pfar/pfar/generator/declaration"
)

func server(name string, change ...func(*declaration.Server)) declaration.Server {
	s := declaration.Server{Name: name, File: "/etc/pfar/mcp.d/" + name + ".hcl", Enabled: true, Autostart: true, Transport: declaration.Stdio}
	for _, f := range change {
		f(&s)
	}
	return s
}

func TestOnlyWhatStartsByItself(t *testing.T) {
	files := Files(0, []declaration.Server{
		server("off-by-file", func(s *declaration.Server) { s.Enabled = false }),
		server("on-demand", func(s *declaration.Server) { s.Autostart = false }),
		server("off-by-owner"),
		server("a"),
	}, func(name string) bool { return name == "off-by-owner" })
	if len(files) != 2 || files[0] != (File{Path: "pfar.target.wants/pfar-mcp@a.service", Link: "/usr/lib/systemd/system/pfar-mcp@.service"}) ||
		files[1].Path != "pfar-mcp@a.service.d/50-declaration.conf" {
		t.Errorf("got %+v", files)
	}
}

// TestUser has units of the user's, where the user's systemd looks for them.
func TestUser(t *testing.T) {
	files := Files(1000, []declaration.Server{server("a")}, func(string) bool { return false })
	if len(files) != 2 || files[0].Link != "/usr/lib/systemd/user/pfar-mcp@.service" {
		t.Errorf("got %+v", files)
	}
	for uid, want := range map[int]string{0: "/run/systemd/generator", 1000: "/run/user/1000/systemd/generator"} {
		if got := Directory(uid, "/run/user/1000"); got != want {
			t.Errorf("uid %d: %q, want %q", uid, got, want)
		}
	}
}

// write puts files where a generator would.
func write(t *testing.T, dir string, files []File) {
	t.Helper()
	for _, f := range files {
		p := filepath.Join(dir, f.Path)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil && f.Link != "" {
			err = os.Symlink(f.Link, p)
		} else if err == nil {
			err = os.WriteFile(p, []byte(f.Text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestCurrent(t *testing.T) {
	never := func(string) bool { return false }
	a, b := server("a"), server("b")
	both := Files(0, []declaration.Server{a, b}, never)
	described := server("a", func(s *declaration.Server) { s.Description = "new" })
	for name, c := range map[string]struct {
		have, want []File
		change     func(dir string) error
		is         bool
	}{
		"nothing, and nothing wanted": {nil, nil, nil, true},
		"nothing yet":                 {nil, both, nil, false},
		"as it is":                    {both, both, nil, true},
		"one more":                    {both[:2], both, nil, false},
		"one less":                    {both, both[:2], nil, false},
		"none any more":               {both, nil, nil, false},
		"another description":         {both[:2], Files(0, []declaration.Server{described}, never), nil, false},
		"a drop-in that was left":     {append(both[3:], both[:2]...), both[:2], nil, false},
		"a link that was left":        {both[:3], both[:2], nil, false},
		"the link leads elsewhere": {both, both, func(dir string) error {
			p := filepath.Join(dir, both[0].Path)
			return errors.Join(os.Remove(p), os.Symlink("/dev/null", p))
		}, false},
		"a file in the link's place": {both, both, func(dir string) error {
			p := filepath.Join(dir, both[0].Path)
			return errors.Join(os.Remove(p), os.WriteFile(p, nil, 0o600))
		}, false},
		"what others write is not ours": {both, both, func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "pfar.target.wants/x.service"), nil, 0o600)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.have)
			if c.change != nil {
				if err := c.change(dir); err != nil {
					t.Fatal(err)
				}
			}
			if got := Current(os.DirFS(dir), c.want); got != c.is {
				t.Errorf("current: %v, want %v", got, c.is)
			}
		})
	}
	if Current(os.DirFS(filepath.Join(t.TempDir(), "absent")), both) || !Current(os.DirFS(filepath.Join(t.TempDir(), "absent")), nil) {
		t.Error("a directory that is not there holds nothing")
	}
}

// TestUnitIsDescribedByOneLine: what a description says below its first line is for models.
func TestUnitIsDescribedByOneLine(t *testing.T) {
	for description, want := range map[string]string{
		"": "", " \n": "", "Browser: pages.\nTake a snapshot.\n": "Description=MCP server a: Browser: pages.\n", "\n Notes \nMore.": "Description=MCP server a: Notes\n",
	} {
		text := describe(server("a", func(s *declaration.Server) { s.Description = description }))
		if _, got, _ := strings.Cut(text, "Description="); got != strings.TrimPrefix(want, "Description=") {
			t.Errorf("%q: %q, want %q", description, got, want)
		}
	}
}

// FuzzDropIn: whatever a declaration says, the drop-in has the two settings, and no more.
func FuzzDropIn(f *testing.F) {
	for _, s := range []string{"Notion", "100% of %i", "a\nExecStart=/bin/sh", "ends in \\", `\`, "\\\n[Service]\nUser=root", " \t ", "#not\r\n;a comment", "\xff\x00", "\u2028[Service]", "%", "a  b"} {
		f.Add(s, "/etc/pfar/mcp.d/"+s+".hcl")
	}
	f.Add("0", "0")
	f.Fuzz(func(t *testing.T, description, file string) {
		file = path.Join("/", file)                    // as all that generators are told is
		if len(description) > 900 || len(file) > 400 { // the parser below reads shorter lines than systemd
			return
		}
		text := describe(server("a", func(s *declaration.Server) { s.Description, s.File = description, file }))
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) || strings.Contains(text, "\\\n") {
			t.Fatalf("%q", text)
		}
		options, err := unit.DeserializeOptions(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, o := range options {
			plain := strings.ReplaceAll(o.Value, "%%", "")
			if o.Section != "Unit" || o.Name != "Documentation" && o.Name != "Description" || seen[o.Name] || strings.Contains(plain, "%") {
				t.Fatalf("%+v in %q", o, text)
			}
			seen[o.Name] = true
			if o.Name != "Documentation" {
				continue
			}
			if u, err := url.Parse(strings.ReplaceAll(o.Value, "%%", "%")); err != nil || u.Path != file || strings.ContainsAny(o.Value, " \t\n") {
				t.Fatalf("it names %q, not %q", o.Value, file)
			}
		}
	})
}
