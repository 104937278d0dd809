package generator

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/plan"
)

var update = flag.Bool("update", false, "write the golden files")

// The host of the goldens: a merged-usr system with what is common, and what a golden's own fs section adds. In that
// each line is a path: "/x" a file, "/x : y" one with a text, "/x/" a folder, "/x -> y" a link, "/x *" a program, "/x
// #!y" a script, "/x =" a socket, "/x |" a FIFO.
const commonHost = `
/bin -> usr/bin
/lib -> usr/lib
/lib64 -> usr/lib64
/sbin -> usr/sbin
/usr/bin/env *
/usr/bin/node *
/usr/bin/python3 -> python3.11
/usr/bin/python3.11 *
/usr/bin/sh *
/usr/local/bin/
/usr/lib64/
/usr/sbin/
/usr/share/zoneinfo/Etc/UTC
/etc/localtime -> /usr/share/zoneinfo/Etc/UTC
/etc/alternatives/
/etc/ld.so.cache
/etc/ssl/certs/
/etc/ssl/openssl.cnf
/etc/shadow
/etc/pfar/mcp.d/
/home/alice/.ssh/id_ed25519
/proc/locks
/proc/pressure/
/proc/sys/
/run/pfar/
/srv/data/
/tmp/
/var/lib/pfar/home/
/var/lib/pfar/vault/
/var/lib/pfar/servers/notion/node_modules/notion/cli.mjs
/var/lib/pfar/servers/notion/node_modules/notion/package.json : {"name": "notion"}
/var/lib/pfar/servers/notion/package.json
/var/tmp/
/var/lib/pfar/packages/npm/mcp-x/1.0.0/record.json : {"package": "npm:mcp-x@1.0.0"}
/var/lib/pfar/packages/npm/mcp-x/1.0.0/tree/node_modules/mcp-x/package.json : {"name": "mcp-x", "bin": "cli.js"}
/var/lib/pfar/packages/npm/mcp-x/1.0.0/tree/node_modules/mcp-x/cli.js #!/usr/bin/env node
/var/lib/pfar/packages/npm/mcp-x/2.0.0/record.json : {"package": "npm:mcp-x@2.0.0"}
/var/lib/pfar/packages/npm/mcp-x/2.0.0/tree/node_modules/mcp-x/package.json : {"name": "mcp-x", "bin": "cli.js"}
/var/lib/pfar/packages/npm/mcp-x/2.0.0/tree/node_modules/mcp-x/cli.js #!/usr/bin/env node
`

func mapFS(t *testing.T, listing string) fs.ReadLinkFS {
	t.Helper()
	m := fstest.MapFS{}
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		f := &fstest.MapFile{Mode: 0o644}
		if strings.HasSuffix(name, "/") {
			f.Mode = fs.ModeDir | 0o755
		}
		switch {
		case strings.HasPrefix(rest, "-> "):
			f.Mode, f.Data = fs.ModeSymlink|0o777, []byte(rest[3:])
		case strings.HasPrefix(rest, ": "):
			f.Data = []byte(strings.ReplaceAll(rest[2:], `\n`, "\n"))
		case rest == "*":
			f.Mode, f.Data = 0o755, []byte("\x7fELF")
		case strings.HasPrefix(rest, "#!"):
			f.Mode, f.Data = 0o755, []byte(rest+"\n")
		case rest == "=":
			f.Mode = fs.ModeSocket | 0o755
		case rest == "|":
			f.Mode = fs.ModeNamedPipe | 0o755
		case rest != "":
			t.Fatalf("fs: %q", line)
		}
		m[strings.Trim(name, "/")] = f
	}
	return m
}

func testHost(t *testing.T, more string) Host {
	files := mapFS(t, commonHost+more)
	return Host{
		FS: files, Ours: files, Path: []string{"relative", "/home/alice/bin", "/usr/local/bin", "/usr/bin", "/bin"},
		Home: "/home/alice", StateDir: "/var/lib/pfar/home", Packages: "/var/lib/pfar/packages",
		Adapter: "/usr/lib/pfar/pfar-adapter",
		Private: []string{"/run/pfar", "/etc/pfar/mcp.d", "/var/lib/pfar/vault", "/var/lib/pfar/home"},
	}
}

// section returns a file of a txtar archive.
func section(a *txtar.Archive, name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// compileArchive compiles the declaration in an archive.
func compileArchive(t *testing.T, a *txtar.Archive) (plan.Plan, hcl.Diagnostics) {
	t.Helper()
	for _, f := range a.Files {
		if ext := path.Ext(f.Name); ext != ".hcl" && ext != ".toml" {
			continue
		}
		s, diags := declaration.Parse("/etc/pfar/mcp.d/"+f.Name, f.Data, declaration.Options{Servers: "/var/lib/pfar/servers"})
		if s == nil {
			t.Fatalf("the declaration has mistakes: %v", diags)
		}
		h := testHost(t, section(a, "fs"))
		if dirs := section(a, "path"); dirs != "" {
			h.Path = append(strings.Fields(dirs), h.Path...)
		}
		return Compile(*s, h)
	}
	t.Fatal("no declaration in the archive")
	return plan.Plan{}, nil
}

func diagnostics(diags hcl.Diagnostics) string {
	var b strings.Builder
	for _, d := range diags {
		severity := "error"
		if d.Severity == hcl.DiagWarning {
			severity = "warning"
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s: %s\n  %s\n", path.Base(d.Subject.Filename), d.Subject.Start.Line, d.Subject.Start.Column, severity, d.Summary, d.Detail)
	}
	return b.String()
}

// render is everything that a compilation gives. "whole" of an archive's comment asks for the plan as JSON; the others
// show it in words.
func render(t *testing.T, a *txtar.Archive) map[string]string {
	t.Helper()
	p, diags := compileArchive(t, a)
	out := map[string]string{"diagnostics": diagnostics(diags)}
	if diags.HasErrors() {
		if plan.Digest(p) != plan.Digest(plan.Plan{}) {
			t.Error("with an error there is a plan all the same")
		}
		return out
	}
	out["words"], out["explain"] = Words(p), Explain(p, nil)
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	out["plan.json"] = string(b) + "\n"
	return out
}

func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(b)
			got := render(t, a)
			if *update {
				rewrite(t, file, a, got)
				return
			}
			for name, text := range got {
				if want := section(a, name); text != want {
					t.Errorf("%s: run with -update and look at the difference\n--- got\n%s--- want\n%s", name, text, want)
				}
			}
			for _, f := range a.Files {
				if _, ok := got[f.Name]; !ok && isOutput(f.Name) {
					t.Errorf("section %q is not produced any more", f.Name)
				}
			}
		})
	}
}

func isOutput(name string) bool {
	return name == "diagnostics" || name == "words" || name == "explain" || name == "plan.json"
}

func rewrite(t *testing.T, file string, a *txtar.Archive, got map[string]string) {
	t.Helper()
	out := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if !isOutput(f.Name) {
			out.Files = append(out.Files, f)
		}
	}
	for _, name := range []string{"diagnostics", "words", "explain", "plan.json"} {
		if text, ok := got[name]; ok {
			out.Files = append(out.Files, txtar.File{Name: name, Data: []byte(text)})
		}
	}
	if err := os.WriteFile(file, txtar.Format(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
