package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"
)

// inDesign finds a function that DESIGN.md names, with its file.
var inDesign = regexp.MustCompile("`([a-z/_-]+\\.go):([A-Za-z]+)`")

// TestDesignNamesFunctions wants each function that DESIGN.md names to be in the file that it names.
func TestDesignNamesFunctions(t *testing.T) {
	named := inDesign.FindAllStringSubmatch(read(t, "../DESIGN.md"), -1)
	for _, m := range named {
		path, name := m[1], m[2]
		code, err := os.ReadFile("../" + path)
		if err != nil {
			t.Errorf("DESIGN.md names %s:%s: %v", path, name, err)
			continue
		}
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + name + `[\[(]`).Match(code) {
			t.Errorf("DESIGN.md names %s:%s, and the file has no such function", path, name)
		}
	}
	if len(named) < 40 {
		t.Errorf("only %d functions found: this looks for the wrong thing", len(named))
	}
}

// TestContributingNamesDeclarations wants what CONTRIBUTING.md says to be in a Go file to be declared there.
func TestContributingNamesDeclarations(t *testing.T) {
	placed := regexp.MustCompile("((?:`[A-Za-z]+`(?:, | and ))*`[A-Za-z]+`) in `([a-z/_-]+\\.go)`")
	found := placed.FindAllStringSubmatch(read(t, "../CONTRIBUTING.md"), -1)
	for _, m := range found {
		code := read(t, "../"+m[2])
		for _, quoted := range regexp.MustCompile("[A-Za-z]+`").FindAllString(m[1], -1) {
			name := strings.TrimSuffix(quoted, "`")
			if !regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type )` + name + `\b`).MatchString(code) {
				t.Errorf("CONTRIBUTING.md says that %s is in %s, and it is not declared there", name, m[2])
			}
		}
	}
	if len(found) < 25 {
		t.Errorf("only %d declarations found: this looks for the wrong thing", len(found))
	}
}

// TestDesignWalksLead wants a reader of a walk to get from function to function: one that stands before mentions it.
func TestDesignWalksLead(t *testing.T) {
	design := read(t, "../DESIGN.md")
	for _, title := range []string{"The path of a call", "The path of a refusal"} {
		_, walk, _ := strings.Cut(design, "\n## "+title+"\n")
		walk, _, _ = strings.Cut(walk, "\n## ")
		hops := unled(walk, func(path, name string) map[string]bool { return mentions(t, path, name) })
		for _, hop := range hops {
			t.Errorf("%s: no function before %s mentions it: name one that does, or mark the hop", title, hop)
		}
		if n := len(inDesign.FindAllString(walk, -1)); n < 15 {
			t.Errorf("%s: only %d functions found: this looks for the wrong thing", title, n)
		}
	}
}

// unled returns the functions of a walk that no function before them mentions, without the first and the marked ones.
func unled(walk string, mentions func(path, name string) map[string]bool) (hops []string) {
	mark := regexp.MustCompile(`\((another process|another goroutine|a function field)\)`)
	known, end := map[string]bool{}, 0
	for i, at := range inDesign.FindAllStringSubmatchIndex(walk, -1) {
		path, name := walk[at[2]:at[3]], walk[at[4]:at[5]]
		if i > 0 && !known[name] && !mark.MatchString(walk[end:at[0]]) {
			hops = append(hops, path+":"+name)
		}
		maps.Copy(known, mentions(path, name))
		end = at[1]
	}
	return hops
}

// mentions returns the names in the bodies of the functions of a name in a file.
func mentions(t *testing.T, path, name string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../"+path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != name || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
	}
	return names
}

// TestUnled: the finding itself.
func TestUnled(t *testing.T) {
	bodies := map[string]string{"a": "b", "b": "c d", "c": "", "d": "", "e": "f", "f": ""}
	mentions := func(_, name string) map[string]bool {
		all := map[string]bool{}
		for word := range strings.FieldsSeq(bodies[name]) {
			all[word] = true
		}
		return all
	}
	for _, test := range []struct{ walk, want string }{
		{"", ""},
		{"`x.go:a`, `x.go:b`, `x.go:c` and `x.go:d`", ""},
		{"`x.go:a` and `x.go:c`", "x.go:c"},
		{"`x.go:b` and `x.go:a`", "x.go:a"},
		{"`x.go:a` (another process) `x.go:e`, `x.go:f`", ""},
		{"`x.go:a` (another process) `x.go:e`, `x.go:c`", "x.go:c"},
	} {
		if got := strings.Join(unled(test.walk, mentions), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.walk, got, test.want)
		}
	}
}
