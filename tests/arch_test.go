// Package tests guards the architecture: who may import what, what every package and file must have, and that the
// documents name what exists.
package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const module = "github.com/pfar/pfar"

// source is one Go file of the repository.
type source struct {
	dir, name string // of the repository's root
	test      bool
	syntax    *ast.File
	lines     int
}

func (s source) path() string { return path.Join(s.dir, s.name) }

// imports returns the paths that the file imports.
func (s source) imports() []string {
	var list []string
	for _, i := range s.syntax.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		list = append(list, p)
	}
	return list
}

// sources parses every Go file, whatever its build constraints say.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	set := token.NewFileSet()
	var all []source
	err := filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (name == "build" || name == "testdata" || name == "node_modules" || len(name) > 2 && name[0] == '.') {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(set, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("..", filepath.Dir(p))
		all = append(all, source{filepath.ToSlash(dir), name, strings.HasSuffix(name, "_test.go"), syntax, set.File(syntax.Pos()).LineCount()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d Go files: this looks in the wrong place", len(all))
	}
	return set, all
}

// within reports whether a directory is one of the trees, or below one.
func within(dir string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool { return dir == tree || strings.HasPrefix(dir, tree+"/") })
}

// TestOwnersOfLibraries keeps each library with an effect in the one place that may have it.
func TestOwnersOfLibraries(t *testing.T) {
	owners := map[string][]string{
		"github.com/godbus/dbus":               {"units/systemd", "units/desktop"},
		"github.com/coreos/go-systemd/dbus":    {"units/systemd"},
		"github.com/coreos/go-systemd/journal": {"units/journal"},
		"github.com/google/nftables":           {"policies/firewall"},
		"github.com/mdlayher/netlink":          {"policies/firewall"},
		"github.com/jsimonetti/rtnetlink":      {"policies/firewall"},
		"github.com/vishvananda/netlink":       {"policies/firewall"},
		"github.com/fsnotify/fsnotify":         {"cmd/pfard"},
		"github.com/mark3labs/mcp-go":          {"cmd/pfar-gateway", "cmd/pfar-adapter", "cmd/pfar", "tests/e2e"}, // there as a client like others
		"filippo.io/age":                       {"cmd/pfard/vault", "units/bundle"},
		"github.com/go-webauthn/webauthn":      {"policies/passkey"},
		"golang.org/x/oauth2":                  {"cmd/pfar-egress"},
		"github.com/spf13/cobra":               {"cmd/pfar"},
		"modernc.org/sqlite": {
			"cmd/pfar-gateway/state", "cmd/pfar-gateway/registry/search", "tests/homeserver",
		},
		"maunium.net/go/mautrix": {"cmd/pfar-chat/matrix"},
	}
	version := regexp.MustCompile(`/v[0-9]+(/|$)`)
	_, all := sources(t)
	for _, s := range all {
		for _, imported := range s.imports() {
			plain := strings.TrimSuffix(version.ReplaceAllString(imported, "/"), "/")
			for library, trees := range owners {
				if within(plain, library) && !within(s.dir, trees...) {
					t.Errorf("%s imports %s, which belongs to %s", s.path(), imported, strings.Join(trees, " and "))
				}
			}
		}
	}
}

// TestPurePackages keeps the packages that decide away from the world that they decide about.
func TestPurePackages(t *testing.T) {
	effects := []string{"net", "net/http", "os/exec", "syscall", "golang.org/x/sys/unix"}
	pure := map[string][]string{
		"generator":               append([]string{"os"}, effects...),
		"policies/redact":         append([]string{"os"}, effects...),
		"policies/egress":         append([]string{"os"}, effects...),
		"policies/firewall/nflog": append([]string{"os"}, effects...),
		"policies/oauth":          append([]string{"os"}, effects...),
		"policies/passkey":        append([]string{"os"}, effects...),
		"policies/broker":         append([]string{"os"}, effects...),
		"policies/block":          append([]string{"os"}, effects...),
		"policies/gate":           append([]string{"os"}, effects...),
		"policies/access":         append([]string{"os"}, effects...),
		"policies/fence":          append([]string{"os"}, effects...),
		"policies/audit":          append([]string{"os"}, effects...),
		"policies/inspect":        append([]string{"os"}, effects...),
		"policies/jsontext":       append([]string{"os"}, effects...),
		"policies/visible":        append([]string{"os"}, effects...),
		"policies/argument":       append([]string{"os"}, effects...),
		"policies/flow":           append([]string{"os"}, effects...),
		"policies/schema":         append([]string{"os"}, effects...),
		"policies/toolname":       append([]string{"os"}, effects...),
		"policies/nearest":        append([]string{"os"}, effects...),
		"policies/plural":         append([]string{"os"}, effects...),
		"units/chat/meaning":      append([]string{"os"}, effects...),
		"units/backoff":           append([]string{"os"}, effects...),
		"units/hostfs":            append([]string{"os"}, effects...),
		"units/plan":              append([]string{"os"}, effects...),
		"units/sandbox":           append([]string{"os"}, effects...),
		"units/setup":             append([]string{"os"}, effects...),
	}
	_, all := sources(t)
	for _, s := range all {
		for tree, forbidden := range pure {
			if s.test || !within(s.dir, tree) || within(s.dir, "policies/audit/trail") { // which writes
				continue
			}
			for _, imported := range s.imports() {
				if slices.Contains(forbidden, imported) {
					t.Errorf("%s is in a pure package and imports %s", s.path(), imported)
				}
			}
		}
	}
}

// TestDirectionOfImports lets imports run one way: what knows least is at the bottom.
func TestDirectionOfImports(t *testing.T) {
	allowed := []struct {
		tree string
		may  []string // of ours, beside what is below tree
	}{
		{"policies", nil},
		{"units", []string{"policies"}},
		{"generator/source", nil},
		{"generator/declaration", []string{"policies", "generator/source"}},
		{"generator", []string{"policies", "units/fingerprint", "units/handover", "units/hostfs", "units/plan", "units/sandbox"}},
		{"cmd", []string{"generator", "policies", "units", "examples", "packaging"}},
		{"tests", []string{"generator", "policies", "units", "examples", "packaging"}},
	}
	_, all := sources(t)
	for _, s := range all {
		i := slices.IndexFunc(allowed, func(a struct {
			tree string
			may  []string
		}) bool {
			return within(s.dir, a.tree)
		})
		for _, imported := range s.imports() {
			dir, ours := strings.CutPrefix(imported, module+"/")
			if !ours || i < 0 && s.test {
				continue
			}
			if i < 0 {
				t.Errorf("%s: no rule for this folder", s.path())
				break
			}
			process := strings.Join(strings.SplitN(s.dir, "/", 3)[:min(2, strings.Count(s.dir, "/")+1)], "/")
			switch tree := allowed[i].tree; {
			case within(dir, allowed[i].may...), tree != "cmd" && within(dir, tree):
			case tree == "cmd" && within(dir, process):
			case s.test && strings.HasPrefix(dir, "cmd/") && within(s.dir, "cmd"):
			case s.test && within(dir, "tests"): // what only tests use is there
			default:
				t.Errorf("%s imports %s: %s may import only %q of ours", s.path(), dir, tree, allowed[i].may)
			}
		}
	}
}

// TestPackageComments wants one sentence for every package, in exactly one file.
func TestPackageComments(t *testing.T) {
	_, all := sources(t)
	comments := map[string][]source{}
	code := map[string]bool{} // packages with more than tests
	for _, s := range all {
		key := s.dir
		if !s.test {
			code[key] = true
		}
		if s.syntax.Doc != nil {
			comments[key] = append(comments[key], s)
		} else if comments[key] == nil {
			comments[key] = nil
		}
	}
	for dir, files := range comments {
		if code[dir] {
			files = slices.DeleteFunc(files, func(s source) bool { return s.test })
		}
		if len(files) != 1 {
			t.Errorf("%s: %d files have a package comment, want one", dir, len(files))
			continue
		}
		text := files[0].syntax.Doc.Text()
		first, _, _ := strings.Cut(text, "\n\n")
		prefix := "Package " + files[0].syntax.Name.Name + " "
		if files[0].syntax.Name.Name == "main" {
			prefix = "Command " + path.Base(dir) + " "
		}
		if !strings.HasPrefix(first, prefix) || !strings.HasSuffix(strings.TrimSpace(first), ".") {
			t.Errorf("%s: package comment %q, want a sentence that begins %q", files[0].path(), first, prefix)
		}
	}
}

// TestSizes keeps files and functions short enough to be read at once.
func TestSizes(t *testing.T) {
	const file, function = 500, 100
	set, all := sources(t)
	for _, s := range all {
		if s.test {
			continue
		}
		if s.lines > file {
			t.Errorf("%s has %d lines, more than %d", s.path(), s.lines, file)
		}
		for _, d := range s.syntax.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > function {
					t.Errorf("%s: %s has %d lines, more than %d", s.path(), f.Name.Name, n, function)
				}
			}
		}
	}
}

// TestHabits finds what the style forbids and a parser can see.
func TestHabits(t *testing.T) {
	names := regexp.MustCompile(`(Manager|Helper|Util|Utils|Common|Impl)$`)
	_, all := sources(t)
	for _, s := range all {
		for _, d := range s.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == "init" && d.Recv == nil {
					t.Errorf("%s has an init function", s.path())
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if ts, ok := spec.(*ast.TypeSpec); ok && names.MatchString(ts.Name.Name) {
						t.Errorf("%s: type %s says its shape, not what it is", s.path(), ts.Name.Name)
					}
				}
			}
		}
		for _, c := range s.syntax.Comments {
			if marked := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`).FindString(c.Text()); marked != "" {
				t.Errorf("%s: a comment says %s", s.path(), marked)
			}
		}
	}
}

// TestLauncherStaysSmall: each start of a server starts the launcher's program twice, and waits for all that it links
// to set itself up.
func TestLauncherStaysSmall(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"/cmd/pfar-sandbox").Output()
	if err != nil {
		t.Fatal(err)
	}
	has := strings.Fields(string(out))
	for _, heavy := range []string{"net/http", "crypto/tls", "crypto/x509", "text/template", "github.com/hashicorp/hcl/v2"} {
		if slices.Contains(has, heavy) {
			t.Errorf("the launcher has %s", heavy)
		}
	}
	if !slices.Contains(has, module+"/policies/egress") {
		t.Errorf("this looks at the wrong program: it has only %q", has)
	}
}

// TestModule wants every library that is imported to be justified, and none to be replaced.
func TestModule(t *testing.T) {
	f := readModule(t)
	for _, r := range f.Replace {
		t.Errorf("go.mod replaces %s", r.Old.Path)
	}
	documented := read(t, "../CONTRIBUTING.md")
	missing := map[string]bool{}
	_, all := sources(t)
	for _, s := range all {
		for _, imported := range s.imports() {
			for _, r := range f.Require {
				if within(imported, r.Mod.Path) && !strings.Contains(documented, "- `"+r.Mod.Path+"`: ") {
					missing[r.Mod.Path] = true
				}
			}
		}
	}
	for library := range missing {
		t.Errorf("CONTRIBUTING.md does not say why %s is needed", library)
	}
}

func readModule(t *testing.T) *modfile.File {
	t.Helper()
	f, err := modfile.Parse("go.mod", []byte(read(t, "../go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDocumentsNameWhatExists opens every path, and every target of make, that a document names.
func TestDocumentsNameWhatExists(t *testing.T) {
	quoted := regexp.MustCompile("`([^`\n]+)`")
	link := regexp.MustCompile(`\]\(([^)#:]+)\)`)
	target := regexp.MustCompile(`\bmake ([a-z][a-z-]*)`)
	makefile := read(t, "../Makefile")
	top := topLevel(t)
	checked := 0
	for _, document := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		text := read(t, "../"+document)
		var paths []string
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			for _, word := range strings.Fields(m[1]) {
				first, _, below := strings.Cut(word, "/")
				if first = strings.TrimPrefix(first, "./"); below && slices.Contains(top, first) && first != "build" {
					paths = append(paths, word)
				}
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			paths = append(paths, m[1])
		}
		for _, p := range paths {
			checked++
			if found, _ := filepath.Glob(filepath.Join("..", strings.TrimSuffix(p, "..."))); len(found) == 0 {
				t.Errorf("%s names %s, which is not there", document, p)
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			checked++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s names make %s, which is no target", document, m[1])
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d paths and targets found: this looks for the wrong thing", checked)
	}
}

// TestContributingNamesEveryPackage: who looks for a room finds it on the map. Packages for tests are known by their
// name, and what is below tests by the text there.
func TestContributingNamesEveryPackage(t *testing.T) {
	text := read(t, "../CONTRIBUTING.md")
	_, all := sources(t)
	seen := map[string]bool{}
	for _, s := range all {
		ours := within(s.dir, "cmd", "generator", "policies", "units") && !strings.HasSuffix(s.dir, "test")
		if s.test || seen[s.dir] || !ours {
			continue
		}
		seen[s.dir] = true
		if !strings.Contains(text, "`"+s.dir+"`") {
			t.Errorf("CONTRIBUTING.md does not say what %s is for", s.dir)
		}
	}
	if len(seen) < 80 {
		t.Errorf("only %d packages found: this looks in the wrong place", len(seen))
	}
}

// topLevel lists the folders that begin a path of the repository.
func topLevel(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
