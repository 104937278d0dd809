package declaration

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

const mcpd = "/etc/pfar/mcp.d"

func file(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func names(s Set) (good, broken []string) {
	for _, x := range s.Servers {
		good = append(good, x.Name)
	}
	for _, b := range s.Broken {
		broken = append(broken, b.Name+" "+b.File)
	}
	return good, broken
}

func TestLoad(t *testing.T) {
	const good = "command = \"node\"\n"
	for _, c := range []struct {
		name         string
		files        fstest.MapFS
		good, broken []string
		summaries    []string
	}{
		{"nothing", fstest.MapFS{}, nil, nil, nil},
		{"both syntaxes, sorted", fstest.MapFS{"b.toml": file(good), "a.hcl": file(good), "c.hcl": file(good)}, []string{"a", "b", "c"}, nil, nil},
		{"name in the file", fstest.MapFS{"a.hcl": file("name = \"z\"\n" + good), "b.hcl": file(good)}, []string{"b", "z"}, nil, nil},
		{"two of one name", fstest.MapFS{"a.hcl": file(good), "a.toml": file(good), "b.hcl": file("name = \"a\"\n" + good)},
			[]string{"a"}, nil, []string{"Duplicate server", "Duplicate server"}},
		{"the first of two is broken", fstest.MapFS{"a.hcl": file("x = 1\n"), "b.hcl": file("name = \"a\"\n" + good)},
			[]string{"a"}, nil, []string{"Unknown key", "Missing key"}},
		{"both are broken", fstest.MapFS{"a.hcl": file("x = 1\n"), "a.toml": file("x = 1\n")},
			nil, []string{"a " + mcpd + "/a.hcl"}, []string{"Unknown key", "Missing key", "Unknown key", "Missing key"}},
		{"the second of two is broken", fstest.MapFS{"a.hcl": file(good), "a.toml": file("x = 1\n")},
			[]string{"a"}, nil, []string{"Missing key", "Unknown key"}},
		{"broken keeps its name", fstest.MapFS{"a.hcl": file("name = \"z\"\nlabel = \"x\"\n" + good)}, nil, []string{"z " + mcpd + "/a.hcl"}, []string{"Unknown label"}},
		{"unreadable keeps its name", fstest.MapFS{"a.toml": file("name = 'z' # ours\nlabel = \n" + good)}, nil, []string{"z " + mcpd + "/a.toml"}, []string{"Invalid TOML"}},
		{"a section's name is not the file's", fstest.MapFS{"a.toml": file("[x]\nname = \"z\"\nlabel = \n")}, nil, []string{"a " + mcpd + "/a.toml"}, []string{"Invalid TOML"}},
		{"folder of that name", fstest.MapFS{"a.hcl/x": file(good), "b.hcl": file(good)}, []string{"b"}, []string{"a " + mcpd + "/a.hcl"}, []string{"File not readable"}},
		{"fifo", fstest.MapFS{"a.hcl": {Mode: fs.ModeNamedPipe}, "b.hcl": file(good)}, []string{"b"}, []string{"a " + mcpd + "/a.hcl"}, []string{"File not readable"}},
		{"upper case", fstest.MapFS{"a.HCL": file(good), "b.hcl": file(good)}, []string{"b"}, nil, []string{"File not read"}},
		{"too large", fstest.MapFS{"a.hcl": file(strings.Repeat("#", maxSize+10)), "b.hcl": file(good)}, []string{"b"}, []string{"a " + mcpd + "/a.hcl"}, []string{"File too large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Load([]Folder{{mcpd, c.files}}, testOptions())
			good, broken := names(s)
			if !slices.Equal(good, c.good) || !slices.Equal(broken, c.broken) {
				t.Errorf("good %q, broken %q", good, broken)
			}
			var got []string
			for _, d := range s.Diags {
				got = append(got, d.Summary)
				if d.Subject == nil || !strings.HasPrefix(d.Subject.Filename, mcpd+"/") {
					t.Errorf("%q is placed at %v", d.Summary, d.Subject)
				}
			}
			slices.Sort(got)
			slices.Sort(c.summaries)
			if !slices.Equal(got, c.summaries) {
				t.Errorf("diagnostics %q", got)
			}
			var out bytes.Buffer
			if err := Write(&out, s.Files, s.Diags, 80, true); err != nil {
				t.Error(err)
			}
			for _, x := range s.Servers {
				checkServer(t, &x)
			}
		})
	}
}

func TestLoadSources(t *testing.T) {
	const text = "command = \"node\"\n"
	s := Load([]Folder{{mcpd, fstest.MapFS{"a.hcl": file(text)}}}, testOptions())
	if got := s.Sources[mcpd+"/a.hcl"]; len(got) != 1 || string(got[0].Text) != text {
		t.Errorf("sources %+v", got)
	}
	if f := s.Files[mcpd+"/a.hcl"]; f == nil || string(f.Bytes) != text {
		t.Errorf("file %+v", f)
	}
}

func TestLoadMissingFolder(t *testing.T) {
	s := Load(Folders(func(string) fs.FS { return os.DirFS(filepath.Join(t.TempDir(), "gone")) }, mcpd), testOptions())
	if len(s.Diags) != 1 || !s.Diags.HasErrors() || s.Diags[0].Subject.Filename != mcpd || !s.Unread {
		t.Errorf("unread %v, diagnostics %v", s.Unread, s.Diags)
	}
	if s := Load([]Folder{{mcpd, fstest.MapFS{}}}, testOptions()); s.Unread {
		t.Error("an empty directory says that there are no servers")
	}
}

// TestLoadKnown: the file that has a name keeps it while it is broken; of a file that never had it, a mistake takes no
// name.
func TestLoadKnown(t *testing.T) {
	files := fstest.MapFS{"a.hcl": file("x = 1\n"), "a.toml": file("command = 'node'\n")}
	for known, want := range map[string]string{"": "good [a], broken []", "/a.toml": "good [a], broken []", "/a.hcl": "good [], broken [a " + mcpd + "/a.hcl]"} {
		o := testOptions()
		o.Known = []string{mcpd + known}
		good, broken := names(Load([]Folder{{mcpd, files}}, o))
		if got := fmt.Sprintf("good %v, broken %v", good, broken); got != want {
			t.Errorf("known %q: %s, want %s", known, got, want)
		}
	}
}

// On a real file system: links are followed, a dangling one and a FIFO are told of and nothing waits.
func TestLoadLinks(t *testing.T) {
	dir, store := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(store, "x"), []byte("command = \"node\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"good.hcl": "x", "dangling.hcl": "gone"} {
		if err := os.Symlink(filepath.Join(store, target), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := Load(Folders(os.DirFS, dir), testOptions())
	good, broken := names(s)
	if !slices.Equal(good, []string{"good"}) || len(broken) != 2 || len(s.Diags) != 2 {
		t.Errorf("good %q, broken %q, %v", good, broken, s.Diags)
	}
}

func TestIsDeclaration(t *testing.T) {
	for _, n := range []string{"a.hcl", "a.toml", "my.server.toml", "A.hcl"} {
		if !IsDeclaration(n) {
			t.Errorf("%q is not read", n)
		}
	}
	for _, n := range []string{
		"", ".hcl", ".a.hcl", ".#a.hcl", "#a.hcl", "#a.hcl#", "a.hcl~", "a~.hcl", "a.hcl.swp", ".a.hcl.swp", "a.hcl.bak", "a.bak.hcl", "a.orig.toml", "4913",
		"a.toml.dpkg-new", "a.dpkg-new.toml", "a.toml.ucf-dist", "a.hcl.rpmnew", "a.rpmsave.hcl", "a.tmp.toml", "a.json", "a.yaml", "a", "a.HCL", "README.md", "a.hcl.tmp.1234",
	} {
		if IsDeclaration(n) {
			t.Errorf("%q is read", n)
		}
	}
}

// TestClientFiles wants the configuration of an MCP client to be told from declarations, with what to write and no
// secret of it.
func TestClientFiles(t *testing.T) {
	moves := func(name string) string {
		return "Run pfar import " + mcpd + "/" + name + ", and remove the file here."
	}
	const servers = `{"notion": {"command": "npx", "args": ["-y", "notion@1.0.0", "postgres://me:hunter2@db/x"], "env": {"NOTION_TOKEN": "hunter2"}}, "web": {"url": "https://mcp.example/x"}}`
	for name, c := range map[string]struct{ text, want string }{
		"mcp.json":                   {`{"mcpServers": ` + servers + `}`, `notion.hcl with the lines command = "npx" and args = ["-y", "notion@1.0.0", "***"] and auth = { NOTION_TOKEN = "vault:notion_token" }, and the same for 1 more.`},
		"claude_desktop_config.json": {`{"mcpServers": {"web": {"url": "https://mcp.example/x"}}}`, `web.hcl with the lines transport = "stream-http" and url = "https://mcp.example/x".`},
		"vscode.json":                {`{"inputs": [], "servers": ` + servers + `}`, "notion.hcl with"},
		"settings.json":              {`{"context_servers": {"My Server": {"command": "x"}}}`, "NAME.hcl with"},
		"other.json":                 {`{"a": {"b": 1}}`, ""},
		"comments.json":              {"{ // mine\n\"mcpServers\": {\"a\": {\"T\": \"hunter2\"}}}", moves("comments.json")},
		"opencode.jsonc":             {`{"mcp": {"a": {"command": ["npx", "hunter2"]}}}`, moves("opencode.jsonc")},
		"goose.yaml":                 {"a: 1\nextensions:\n  x: {T: hunter2}\n", moves("goose.yaml")},
		"gemini.json":                {`{"mcp": {"allowed": ["a"]}}`, ""},
		"other.yaml":                 {"a: 1\n", ""},
		"none.json":                  {`{"mcpServers": {}}`, ""},
		"list.json":                  {`{"servers": ["a"]}`, ""},
	} {
		set := Load([]Folder{{mcpd, fstest.MapFS{name: {Data: []byte(c.text)}}}}, Options{})
		var got string
		for _, d := range set.Diags {
			got += d.Detail
		}
		if len(set.Servers)+len(set.Broken) > 0 || (got == "") != (c.want == "") || !strings.Contains(got, c.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
