package tests

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// meaningExceptions lists where code reads words, as "file what": what the search is for, or the text that is compared.
// Why each may is in the comment above it. Entries may only leave.
const meaningExceptions = "testdata/meaning.txt"

var updateMeaning = flag.Bool("update-meaning", false, "take out of "+meaningExceptions+" what is gone")

// searches are the functions of strings that find something in their first argument.
var searches = map[string]bool{
	"Contains": true, "ContainsAny": true, "ContainsFunc": true, "Count": true, "Cut": true, "CutPrefix": true,
	"CutSuffix": true, "EqualFold": true, "Fields": true, "HasPrefix": true, "HasSuffix": true, "Index": true,
	"LastIndex": true, "Split": true, "SplitN": true, "TrimPrefix": true, "TrimSuffix": true,
}

// worded are the members and variables that hold words for a person: what they mean is in a typed value beside them.
var worded = map[string]bool{
	"Detail": true, "LastRefusal": true, "Reason": true, "Refusal": true, "Remedy": true, "Why": true,
	"Words": true, "detail": true, "more": true, "reason": true, "refusal": true, "remedy": true, "why": true,
	"words": true,
}

// TestMeaning: no code finds out what an error, a reason or a state is by searching the words that say it. A typed
// value stands beside the words instead.
func TestMeaning(t *testing.T) {
	set, all := sources(t)
	got := map[string]bool{}
	for _, s := range all {
		if s.test || within(s.dir, "tests") {
			continue
		}
		for _, found := range readings(set, s.syntax) {
			got[s.path()+" "+found] = true
		}
	}
	var kept []string
	known := map[string]bool{}
	for line := range strings.Lines(read(t, meaningExceptions)) {
		what := strings.TrimSpace(line)
		if what == "" || strings.HasPrefix(what, "#") {
			kept = append(kept, what)
			continue
		}
		known[what] = true
		if got[what] {
			kept = append(kept, what)
		} else if !*updateMeaning {
			t.Errorf("%s: %s lists it, and it is gone: run go test ./tests -run Meaning -update-meaning", what,
				meaningExceptions)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(got)) {
		if !known[what] {
			t.Errorf("%s: finds meaning in words; have a typed value tell it", what)
		}
	}
	if *updateMeaning && !t.Failed() {
		if err := os.WriteFile(meaningExceptions, []byte(strings.Join(kept, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// readings returns what a file looks for in words.
func readings(set *token.FileSet, file *ast.File) (list []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || len(n.Args) == 0 {
				break
			}
			of, ok := f.X.(*ast.Ident)
			if ok && of.Name == "strings" && searches[f.Sel.Name] && isWords(n.Args[0]) && !joins(n) {
				list = append(list, printed(set, n))
			}
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (isWords(n.X) && isText(n.Y) || isText(n.X) && isWords(n.Y)) {
				list = append(list, printed(set, n))
			}
		}
		return true
	})
	return list
}

// joins reports whether a call takes nothing but punctuation from the ends of words, as it is left between two texts of
// which one is empty.
func joins(n *ast.CallExpr) bool {
	if f := n.Fun.(*ast.SelectorExpr).Sel.Name; f != "TrimPrefix" && f != "TrimSuffix" {
		return false
	}
	l, ok := n.Args[1].(*ast.BasicLit)
	return ok && strings.Trim(l.Value, "`\" ;:.") == ""
}

// isWords reports whether an expression holds words for a person, or the text of an error.
func isWords(e ast.Expr) (is bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr: // a word of a command line
			return false
		case *ast.SelectorExpr:
			is = is || worded[n.Sel.Name] || n.Sel.Name == "Error"
			return n.Sel.Name != "Text" // of a file that is read
		case *ast.Ident:
			is = is || worded[n.Name]
		}
		return true
	})
	return is
}

// isText reports whether an expression is a literal that is not empty.
func isText(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING && len(l.Value) > len(`""`)
}

func printed(set *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	_ = printer.Fprint(&b, set, n) // into memory
	return strings.Join(strings.Fields(b.String()), " ")
}

// TestReadings: what TestMeaning looks for is found, and a typed value is not.
func TestReadings(t *testing.T) {
	for body, want := range map[string]string{
		`strings.Contains(err.Error(), "read-only")`:   `strings.Contains(err.Error(), "read-only")`,
		`strings.HasPrefix(s.Remedy, "pfar login")`:    `strings.HasPrefix(s.Remedy, "pfar login")`,
		`strings.Cut(why, ": ")`:                       `strings.Cut(why, ": ")`,
		`s.Detail == "starting"`:                       `s.Detail == "starting"`,
		`"starting" != s.Detail`:                       `"starting" != s.Detail`,
		`strings.ToUpper(s.Detail)`:                    "",
		`strings.TrimSuffix(s.Detail, ": ")`:           "",
		`strings.HasPrefix(words[0], "-")`:             "",
		`s.Detail == ""`:                               "",
		`s.Remedy.Act == units.SignIn`:                 "",
		`strings.HasPrefix(name, "a")`:                 "",
		`strings.HasPrefix(strings.TrimSpace(why), x)`: `strings.HasPrefix(strings.TrimSpace(why), x)`,
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "x.go", "package x\nvar _ = f("+body+")", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(readings(set, file), "; "); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
