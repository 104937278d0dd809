package foreign

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shown writes a tree with its lines.
func shown(n *Node) string {
	var parts []string
	for _, i := range n.Items {
		parts = append(parts, shown(i))
	}
	for _, m := range n.Members {
		parts = append(parts, fmt.Sprintf("%s@%d %s", m.Name, m.Line, shown(m.Value)))
	}
	switch n.Kind {
	case List:
		return fmt.Sprintf("%d[%s]", n.Line, strings.Join(parts, " "))
	case Object:
		return fmt.Sprintf("{%s}", strings.Join(parts, " "))
	}
	return fmt.Sprintf("%d:%d:%s", n.Line, n.Kind, n.Text)
}

// TestRead wants the same values of each syntax, each with its line.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		syntax   Syntax
		in, want string
	}{
		{JSON, "\ufeff// c\n{\"a\": {\"b\": \"x\\ny\",\n \"c\": [1,\n true]}, /* d */ \"e\": null,}",
			"{a@2 {b@2 2:1:x\ny c@3 3[3:2:1 4:3:true]} e@4 4:0:null}"},
		{TOML, "# c\n[a]\nb = \"x\\ny\"\nc = [1,\n true]\n[a.\"d.e\".f]\ng.h = {i = 2, j.k = ''}\n[[l]]\nm=1\n[[l]]\nm=2\n",
			"{a@2 {b@3 3:1:x\ny c@4 4[4:2:1 5:3:true] d.e@6 {f@6 {g@7 {h@7 {i@7 7:2:2 j@7 {k@7 7:1:}}}}}} " +
				"l@8 8[{m@9 9:2:1} {m@11 11:2:2}]}"},
		{YAML, "# c\na:\n  b: \"x\\ny\"\n  c:\n  - 1\n  - true\ne: ~\nf: |\n  g\n",
			"{a@2 {b@3 3:1:x\ny c@4 5[5:2:1 6:3:true]} " +
				"e@7 7:0:~ f@8 8:1:g\n}"},
	} {
		n, err := Read(tt.syntax, []byte(tt.in))
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
		} else if got := shown(n); got != tt.want {
			t.Errorf("%q:\n%s\nwant\n%s", tt.in, got, tt.want)
		}
	}
}

// TestHashHint wants the hint of no mistake that is something else.
func TestHashHint(t *testing.T) {
	for _, in := range []string{
		"{\"a\": \"#\" \"b\"}", "{\"a\": 1 // #\n \"b\"}", "{\"a\": 1 /* # */ \"b\"}", "{\"a\": 1 \"b\"\n# c\n}",
		"{\"a\n\": 1}\n# b", "{\"a\": \"#", "{/* #", "{\"a\": \"\\",
	} {
		if _, err := Read(JSON, []byte(in)); err == nil || strings.Contains(err.Error(), "#") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// TestReadRefuses wants the place of each mistake, and nothing of the file's texts.
func TestReadRefuses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		syntax   Syntax
		in, want string
	}{
		{"syntax", JSON, "{\n\"key\": \"secret-1\" \"x\"}", "line 2"},
		{"# before", JSON, "# secret-1\n{}", "line 1: JSON has no comments with #; write // instead"},
		{"# behind a comma", JSON, "{\n\"a\": 1, # secret-1\n\"b\": 2}", "line 2: JSON has no comments with #"},
		{"# behind a value", JSON, "{\n\"a\": [1]\n# secret-1\n}", "line 3: JSON has no comments with #"},
		{"# in a list", JSON, "{\"a\": [1,\n# secret-1\n2]}", "line 2: JSON has no comments with #"},
		{"# behind all", JSON, "{}\n# secret-1", "line 2: JSON has no comments with #"},
		{"# behind a string and comments", JSON, "{\n\"#\\\"#\": 1, // #\n/* # */ # secret-1\n}",
			"line 3: JSON has no comments with #"},
		{"twice", JSON, "{\"a\": 1,\n\"b\": {\"secret-1\": 1,\n\"secret-1\": 2}}", "line 3"},
		{"deep", JSON, "\n" + strings.Repeat("[", 1<<20), "line 2"},
		{"a list", JSON, `["secret-1"]`, "not an object"},
		{"not UTF-8", JSON, "{\n\"a\": \"secret-1\xff\"}", "line 2"},
		{"syntax", TOML, "a = 1\nb = \"secret-1", "line 2"},
		{"twice", TOML, "a = 'secret-1'\na = 2\n", "line 2"},
		{"a table twice", TOML, "[a]\nb = 'secret-1'\n[a]\nb = 2\n", "line 3"},
		{"deep", TOML, "a = " + strings.Repeat("[", 1<<20), "line 1"},
		{"a deep key", TOML, "\n" + strings.Repeat("a.", 1<<14) + "a = 1", "line 2"},
		{"a deep key in a table", TOML, "\nx = {" + strings.Repeat("a.", 1<<14) + "a = 1}", "line 2"},
		{"syntax", YAML, "a: 1\nb: [secret-1\n", "line"},
		{"twice", YAML, "a: 1\nsecret-1: 1\nsecret-1: 2\n", "line 3"},
		{"an alias", YAML, "a: &a [secret-1]\nb: *a\n", "line 2"},
		{"a merge", YAML, "a: &a {b: secret-1}\nc:\n  <<: {d: 1}\n", "line 3"},
		{"deep", YAML, "a: " + strings.Repeat("[", 1<<20), "line 1"},
		{"deep by dashes", YAML, "a:\n " + strings.Repeat("- ", 1<<16) + "secret-1", ""},
		{"large", YAML, strings.Repeat("#", MaxSize+1), "16 MiB"},
		{"many values", JSON, `{"a":[` + strings.Repeat("1,", maxNodes) + `1]}`, "values"}, // the last one: it is slow
	} {
		n, err := Read(tt.syntax, []byte(tt.in))
		if err == nil || n != nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret-1") {
			t.Errorf("%s, %d: %v, want %q", tt.name, tt.syntax, err, tt.want)
		}
	}
}

// FuzzRead wants no panic, lines that are there, and no name twice.
func FuzzRead(f *testing.F) {
	for _, tt := range puts {
		f.Add(int(tt.syntax), tt.in)
	}
	f.Fuzz(func(t *testing.T, syntax int, in string) {
		n, err := Read(Syntax(syntax), []byte(in))
		if err != nil {
			return
		}
		lines := strings.Count(in, "\n") + 1
		var walk func(n *Node)
		walk = func(n *Node) {
			if n.Line < 1 || n.Line > lines {
				t.Fatalf("line %d of %d in %q", n.Line, lines, in)
			}
			var names []string
			for _, m := range n.Members {
				if names = append(names, m.Name); m.Line < 1 || m.Line > lines {
					t.Fatalf("%q is in line %d of %d in %q", m.Name, m.Line, lines, in)
				}
				walk(m.Value)
			}
			if slices.Sort(names); len(slices.Compact(slices.Clone(names))) != len(names) {
				t.Fatalf("names %q in %q", names, in)
			}
			for _, i := range n.Items {
				walk(i)
			}
		}
		walk(n)
	})
}
