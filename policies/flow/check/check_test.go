package check

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/tests/flownodes"
)

var update = flag.Bool("update", false, "write the golden files anew")

// nodes are those of flownodes, and some for what those do not have.
var nodes = func() flow.Nodes {
	all := append(native.Nodes(), flownodes.Catalogue().All()...)
	all = slices.DeleteFunc(all, func(n flow.Node) bool { return n.Server == "" })
	for _, definition := range []string{
		`{"name":"echo","inputSchema":{"properties":{"query":{"type":"string"}},"required":["query"]},
			"outputSchema":{"properties":{"query":{"type":"string"},"said":{"type":"string"}}}}`,
		`{"name":"paint","inputSchema":{"properties":{"color":{"enum":["red"]},"size":{"type":"integer"}},
			"required":["color","size"]}}`,
		`{"name":"count","inputSchema":{"type":"object"},"outputSchema":{"properties":{"n":{"type":"integer"}}}}`,
	} {
		all = append(all, flownodes.Tool("demo", "", "", definition))
	}
	return node.New(append(native.Nodes(), all...), nil)
}()

// shown is a plan, or all problems, as golden files have them.
func shown(p *flow.Plan, problems []flow.Problem) string {
	var b strings.Builder
	for _, x := range problems {
		fmt.Fprintf(&b, "%d:%d problem %s", x.At.Line, x.At.Column, x.Text)
		if x.Step != "" {
			fmt.Fprintf(&b, " (%s)", x.Step)
		}
		fmt.Fprintf(&b, "\n    %s\n", x.Advice)
	}
	if p == nil {
		return b.String()
	}
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%d %s = %s", i, s.ID, s.Node.ID)
		for _, action := range slices.Sorted(maps.Keys(s.Next)) {
			fmt.Fprintf(&b, ", %s to %d", action, s.Next[action])
		}
		for _, own := range slices.Sorted(maps.Keys(s.Reads)) {
			fmt.Fprintf(&b, ", %s from %s", own, s.Reads[own])
		}
		if len(s.Unread) > 0 {
			fmt.Fprintf(&b, ", nobody reads %s", strings.Join(s.Unread, " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestGolden: each file of testdata is a flow in one form, and its plan or all that is wrong with it.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var s form.Source
			var want string
			for _, f := range a.Files {
				switch text := string(f.Data); f.Name {
				case form.JSON, form.HCL, form.Line:
					s = form.Source{Name: "f", Form: f.Name, Text: text}
				case "flags":
					s.Flags = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
				case "input":
					s.Input = &text
				case "checked":
					want = text
				}
			}
			f, problems := form.Read(s, nodes)
			if len(problems) > 0 {
				t.Fatalf("the form: %+v", problems)
			}
			got := shown(Check(t.Context(), f, nodes))
			if got == want {
				return
			}
			if !*update {
				t.Fatalf("got:\n%s\nwant:\n%s", got, want)
			}
			a.Files = slices.DeleteFunc(a.Files, func(f txtar.File) bool { return f.Name == "checked" })
			a.Files = append(a.Files, txtar.File{Name: "checked", Data: []byte(got)})
			if err := os.WriteFile(path, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDigest: whatever of a plan changes, its digest is another one. What a node is called besides is no part of it.
func TestDigest(t *testing.T) {
	plan := func(change func(f *flow.Flow, n *flow.Node)) string {
		f := flow.Flow{
			Name: "f", Store: map[string]json.RawMessage{"a": json.RawMessage("1")},
			Steps: []flow.Step{
				{ID: "a", Node: "demo.x", Set: map[string]json.RawMessage{"q": json.RawMessage(`"v"`)}},
				{ID: "b", Node: "demo.x", Set: map[string]json.RawMessage{"q": json.RawMessage(`"v"`)}},
			},
			Edges: []flow.Edge{{From: "a", To: "b"}},
		}
		n := flownodes.Tool("demo", "1", "", `{"name":"x","inputSchema":{"properties":{"q":{"type":"string"},
			"n":{"type":"integer"}},"required":["q"]},"outputSchema":{"properties":{"o":{}}}}`)
		change(&f, &n)
		p, problems := Check(t.Context(), f, node.New([]flow.Node{n}, nil))
		if p == nil {
			t.Fatalf("%+v", problems)
		}
		return p.Digest
	}
	same := plan(func(*flow.Flow, *flow.Node) {})
	if got := plan(func(_ *flow.Flow, n *flow.Node) { n.Aliases = []string{"other"} }); got != same || len(same) != 64 {
		t.Errorf("%s and %s", got, same)
	}
	seen := map[string]string{same: "nothing"}
	for what, change := range map[string]func(f *flow.Flow, n *flow.Node){
		"the name":   func(f *flow.Flow, _ *flow.Node) { f.Name = "g" },
		"the prompt": func(f *flow.Flow, _ *flow.Node) { f.Metadata.Prompt = "x" },
		"a value":    func(f *flow.Flow, _ *flow.Node) { f.Steps[0].Set["q"] = json.RawMessage(`"w"`) },
		"a param": func(f *flow.Flow,
			_ *flow.Node) {
			f.Steps[0].Params = map[string]json.RawMessage{"n": json.RawMessage("1")}
		},
		"the store": func(f *flow.Flow, _ *flow.Node) { f.Store["a"] = json.RawMessage("2") },
		"an id":     func(f *flow.Flow, _ *flow.Node) { f.Steps[1].ID, f.Edges[0].To = "c", "c" },
		"a mapping": func(f *flow.Flow, _ *flow.Node) { f.Steps[0].Writes = map[string]string{"o": "p"} },
		"an edge": func(f *flow.Flow, _ *flow.Node) {
			f.Edges = append(f.Edges, flow.Edge{From: "b", To: "a",
				Action: "timeout"})
		},
		"an action":   func(f *flow.Flow, _ *flow.Node) { f.Edges[0].Action = "timeout" },
		"the bound":   func(f *flow.Flow, _ *flow.Node) { f.Most = 5 },
		"the pin":     func(_ *flow.Flow, n *flow.Node) { n.Pin = "other" },
		"the version": func(_ *flow.Flow, n *flow.Node) { n.Version = "2" },
		"the server": func(f *flow.Flow, n *flow.Node) {
			n.Server, n.ID, f.Steps[0].Node, f.Steps[1].Node = "d", "d.x",
				"d.x", "d.x"
		},
		"a port":       func(_ *flow.Flow, n *flow.Node) { n.Inputs[0].Description = "x" },
		"its cachable": func(_ *flow.Flow, n *flow.Node) { n.Pure = true },
	} {
		digest := plan(change)
		if other, twice := seen[digest]; twice {
			t.Errorf("%s changes the digest no more than %s", what, other)
		}
		seen[digest] = what
	}
}

// TestCheckLeavesTheFlow: the plan has what the check adds, and the flow that was given does not change.
func TestCheckLeavesTheFlow(t *testing.T) {
	f, _ := form.Read(form.Source{Form: form.JSON, Text: `{"nodes": ["demo.count",
		{"id": "template", "params": {"template": "{{n}} {{m}}"}}],
		"mappings": {"template": {"input_mappings": {"m": "count"}}}}`}, nodes)
	before, _ := json.Marshal(f)
	p, problems := Check(t.Context(), f, nodes)
	if p == nil {
		t.Fatalf("%+v", problems)
	}
	if after, _ := json.Marshal(f); string(after) != string(before) || p.Steps[1].Reads["n"] != "n" {
		t.Errorf("%s became %s; the plan reads %v", before, after, p.Steps[1].Reads)
	}
}

// TestBounds: what is larger than a check takes is no plan.
func TestBounds(t *testing.T) {
	many := func(n int) (steps []flow.Step) {
		for i := range n {
			steps = append(steps, flow.Step{ID: fmt.Sprint("s", i), Node: "backoff"})
		}
		return steps
	}
	wide := strings.Builder{}
	for i := range 250 {
		fmt.Fprintf(&wide, `,"p%d":{"type":"string"}`, i)
	}
	ports := `{"properties":{` + wide.String()[1:] + `}}`
	big := node.New([]flow.Node{flownodes.Tool("big", "", "",
		`{"name":"x","inputSchema":`+ports+`,"outputSchema":`+ports+`}`)}, nil)
	steps := many(40)
	var edges []flow.Edge
	for i := range steps {
		steps[i].Node = "big.x"
		if i > 0 {
			edges = append(edges, flow.Edge{From: steps[i-1].ID, To: steps[i].ID})
		}
	}
	for _, tt := range []struct {
		flow  flow.Flow
		nodes flow.Nodes
		says  string
	}{
		{flow.Flow{}, nodes, "the flow has no steps"},
		{flow.Flow{Steps: many(257)}, nodes, "the flow has 257 steps, and may have 256"},
		{flow.Flow{Steps: many(1), Edges: make([]flow.Edge, 1025)}, nodes, "the flow has 1025 edges, and may have 1024"},
		{flow.Flow{Steps: many(1), Most: 1025}, nodes, "a run of 1025 calls is not possible"},
		{flow.Flow{Steps: many(1), Most: -1}, nodes, "a run of -1 calls is not possible"},
		{flow.Flow{Steps: steps, Edges: edges}, big, "the steps write and read 10000 names, and may 4096"},
	} {
		p, problems := Check(t.Context(), tt.flow, tt.nodes)
		if p != nil || len(problems) == 0 || problems[0].Text != tt.says {
			t.Errorf("%+v, want %q", problems, tt.says)
		}
	}
	if _, problems := Check(t.Context(), flow.Flow{Steps: many(256)}, nodes); len(problems) != maxProblems {
		t.Errorf("%d problems", len(problems))
	}
}

// FuzzCheck: whatever a flow says, it is a plan whose every edge leads to a step and whose every input is read from
// somewhere, or there is a problem.
func FuzzCheck(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range files {
		a, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range a.Files {
			if file.Name == form.JSON || file.Name == form.HCL || file.Name == form.Line {
				f.Add(file.Name, string(file.Data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind, text string) {
		read, _ := form.Read(form.Source{Form: kind, Text: text}, nodes)
		p, problems := Check(t.Context(), read, nodes)
		if (p == nil) == (len(problems) == 0) {
			t.Fatalf("%q: a plan and %d problems", text, len(problems))
		}
		if p == nil {
			return
		}
		for _, s := range p.Steps {
			for action, next := range s.Next {
				if next < 0 || next >= len(p.Steps) || !slices.Contains(s.Node.Actions, action) {
					t.Errorf("%q: %s leads %s to %d", text, s.ID, action, next)
				}
			}
			if s.Node.Held != "" {
				t.Errorf("%q: %s is held", text, s.Node.ID)
			}
		}
	})
}

// TestExamples: what examples/flows has is sound, with the flags that each file names, and so is the example of the
// manual.
func TestExamples(t *testing.T) {
	manual, err := os.ReadFile("../../../packaging/man/pfar-flow.5")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(manual), ".Bd -literal -offset indent\n")
	example, _, ok := strings.Cut(example, ".Ed\n")
	if !ok {
		t.Fatal("the manual has no example")
	}
	files := map[string]string{"manual.hcl": strings.ReplaceAll(example, `\-`, "-")}
	paths, _ := filepath.Glob("../../../examples/flows/*")
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = string(b)
	}
	flags := map[string]string{
		"digest.hcl": "--query authentication --language python --channel #dev-team", "weather.hcl": "--location Bern",
		"compare.hcl": "", "notify.json": "--query authentication --alerts #alerts", "manual.hcl": "--query authentication",
	}
	if len(files) != len(flags) {
		t.Errorf("%d files and %d rows", len(files), len(flags))
	}
	for name, text := range files {
		words, known := flags[name]
		if !known {
			t.Errorf("%s has no row", name)
		}
		f, problems := form.Read(form.Source{Form: filepath.Ext(name)[1:], Text: text, Flags: strings.Fields(words)}, nodes)
		if len(problems) == 0 {
			_, problems = Check(t.Context(), f, nodes)
		}
		for _, p := range problems {
			t.Errorf("%s:%d:%d: %s: %s %s", name, p.At.Line, p.At.Column, p.Step, p.Text, p.Advice)
		}
	}
}
