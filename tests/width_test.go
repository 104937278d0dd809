package tests

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Sizes bound a function and a file. These bounds hold what grows instead where only sizes are bounded.
const (
	maxMethods   = 30  // of a type
	maxFields    = 15  // of a struct
	maxFuncs     = 2   // function fields of a struct: an interface that has no name
	maxCircle    = 5   // files of a package that need each other
	maxLineWidth = 120 // characters, of a line of code or comment
)

// widthExceptions lists what is wider, as "width what where". An entry may only shrink.
const widthExceptions = "testdata/width.txt"

var updateWidth = flag.Bool("update-width", false, "write "+widthExceptions+", unless something has become wider")

// TestWidth keeps types narrow, packages free of circles of files, and lines short.
func TestWidth(t *testing.T) {
	set, all := sources(t)
	got := widths(t, set, all)
	known := readWidths(t)
	var list []string
	for _, what := range slices.Sorted(maps.Keys(got)) {
		list = append(list, fmt.Sprintf("%d %s", got[what], what))
		switch was, ok := known[what]; {
		case !ok:
			t.Errorf("%s: %d is too wide", what, got[what])
		case got[what] > was:
			t.Errorf("%s: %d is wider than before, %d", what, got[what], was)
		case got[what] < was && !*updateWidth:
			t.Errorf("%s: %s says %d, and now it is %d: run go test ./tests -run Width -update-width", what, widthExceptions, was, got[what])
		}
	}
	for what := range known {
		if _, ok := got[what]; !ok && !*updateWidth {
			t.Errorf("%s: %s lists it, and it is narrow now: run go test ./tests -run Width -update-width", what, widthExceptions)
		}
	}
	if *updateWidth && !t.Failed() {
		if err := os.WriteFile(widthExceptions, []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readWidths(t *testing.T) map[string]int {
	t.Helper()
	known := map[string]int{}
	for line := range strings.Lines(read(t, widthExceptions)) {
		width, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(width)
		if err != nil {
			t.Fatalf("%s: %q does not begin with a number", widthExceptions, line)
		}
		known[what] = n
	}
	return known
}

// widths returns what is over its limit, and by how much it is wide.
func widths(t *testing.T, set *token.FileSet, all []source) map[string]int {
	t.Helper()
	wide := map[string]int{}
	packages := map[string][]source{}
	for _, s := range all {
		if n := longLines(t, s); n > 0 {
			wide["long lines in "+treeOf(s)] += n
		}
		if !s.test {
			packages[s.dir] = append(packages[s.dir], s)
		}
	}
	note := func(n, limit int, format string, args ...any) {
		if n > limit {
			wide[fmt.Sprintf(format, args...)] = n
		}
	}
	for dir, files := range packages {
		p := inspectPackage(set, dir, files)
		for name, n := range p.methods {
			note(n, maxMethods, "methods of %s.%s", dir, name)
		}
		for name, n := range p.fields {
			note(n, maxFields, "fields of %s.%s", dir, name)
		}
		for name, n := range p.funcs {
			note(n, maxFuncs, "function fields of %s.%s", dir, name)
		}
		note(largestCircle(p.needs), maxCircle, "files in a circle of %s", dir)
	}
	return wide
}

// treeOf is the folder whose long lines are counted together.
func treeOf(s source) string {
	parts := strings.Split(s.dir, "/")
	tree := path.Join(parts[:min(2, len(parts))]...)
	if s.test {
		return "tests of " + tree
	}
	return tree
}

func longLines(t *testing.T, s source) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(read(t, path.Join("..", s.path()))) {
		if len([]rune(strings.TrimRight(line, "\n"))) > maxLineWidth {
			n++
		}
	}
	return n
}

// packageWidth is what a package's types and files are like.
type packageWidth struct {
	methods, fields, funcs map[string]int             // by name of the type
	needs                  map[string]map[string]bool // file -> files whose declarations it uses
}

// noImports gives each import an empty package: names of this package resolve without it.
type noImports map[string]*types.Package

func (n noImports) Import(p string) (*types.Package, error) {
	if n[p] == nil {
		n[p] = types.NewPackage(p, path.Base(p))
		n[p].MarkComplete()
	}
	return n[p], nil
}

func inspectPackage(set *token.FileSet, dir string, files []source) packageWidth {
	p := packageWidth{map[string]int{}, map[string]int{}, map[string]int{}, map[string]map[string]bool{}}
	var syntax []*ast.File
	for _, s := range files {
		syntax = append(syntax, s.syntax)
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					p.methods[receiver(n.Recv.List[0].Type)]++
				}
			case *ast.TypeSpec:
				if st, ok := n.Type.(*ast.StructType); ok {
					p.countFields(n.Name.Name, st)
				}
			}
			return true
		})
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}, FakeImportC: true}
	_, _ = config.Check(dir, set, syntax, &info) // what imports bring is missing, and is not asked for
	for use, object := range info.Uses {
		if object.Pkg() == nil || object.Pkg().Path() != dir || !object.Pos().IsValid() {
			continue
		}
		from, to := set.Position(use.Pos()).Filename, set.Position(object.Pos()).Filename
		if from == to || !ownedByPackage(object) {
			continue
		}
		if p.needs[from] == nil {
			p.needs[from] = map[string]bool{}
		}
		p.needs[from][to] = true
	}
	return p
}

// ownedByPackage leaves out variables and parameters of functions.
func ownedByPackage(o types.Object) bool {
	if v, ok := o.(*types.Var); ok && v.IsField() {
		return true
	}
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return true
	}
	return o.Parent() == o.Pkg().Scope()
}

func (p packageWidth) countFields(name string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		n := max(len(f.Names), 1)
		p.fields[name] += n
		if _, ok := f.Type.(*ast.FuncType); ok {
			p.funcs[name] += n
		}
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// largestCircle counts the files of the largest set in which each needs every other, directly or through others
// (Tarjan, strongly connected components).
func largestCircle(needs map[string]map[string]bool) int {
	index, low := map[string]int{}, map[string]int{}
	on := map[string]bool{}
	var stack []string
	largest := 0
	var visit func(string)
	visit = func(v string) {
		index[v] = len(index) + 1
		low[v] = index[v]
		stack, on[v] = append(stack, v), true
		for w := range needs[v] {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if on[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		for n := 1; ; n++ {
			w := stack[len(stack)-1]
			stack, on[w] = stack[:len(stack)-1], false
			if w == v {
				if n > 1 {
					largest = max(largest, n)
				}
				return
			}
		}
	}
	for _, v := range slices.Sorted(maps.Keys(needs)) {
		if index[v] == 0 {
			visit(v)
		}
	}
	return largest
}

// TestLargestCircle: the counting itself.
func TestLargestCircle(t *testing.T) {
	needs := func(edges ...string) map[string]map[string]bool {
		all := map[string]map[string]bool{}
		for _, e := range edges {
			from, to, _ := strings.Cut(e, ">")
			if all[from] == nil {
				all[from] = map[string]bool{}
			}
			all[from][to] = true
		}
		return all
	}
	for _, test := range []struct {
		name  string
		edges []string
		want  int
	}{
		{"nothing", nil, 0},
		{"a row", []string{"a>b", "b>c", "a>c"}, 0},
		{"a pair", []string{"a>b", "b>a", "b>c"}, 2},
		{"two circles that touch", []string{"a>b", "b>c", "c>a", "c>d", "d>c"}, 4},
		{"two circles apart", []string{"a>b", "b>a", "b>c", "c>d", "d>e", "e>c"}, 3},
	} {
		if got := largestCircle(needs(test.edges...)); got != test.want {
			t.Errorf("%s: a circle of %d, want %d", test.name, got, test.want)
		}
	}
}
