package form

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/tests/flownodes"
)

// seeds adds the flows of one form from the golden files.
func seeds(f *testing.F, form string) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		flags, text := "", ""
		for _, file := range txtar.Parse(b).Files {
			switch file.Name {
			case form:
				text = string(file.Data)
			case "flags":
				flags = string(file.Data)
			}
		}
		if text != "" {
			f.Add(text, flags)
		}
	}
}

// catalogue is made once: it never changes.
var catalogue = sync.OnceValue(flownodes.Catalogue)

// read reads a flow with flags and looks at what comes out: what has no problem has steps with ids and nodes, and every
// value is JSON.
func read(t *testing.T, form, text, flags string) {
	input := "text\n"
	f, problems := Read(Source{Form: form, Text: text, Flags: strings.Fields(flags), Input: &input}, catalogue())
	if len(problems) == 0 && len(f.Steps) == 0 {
		t.Errorf("%q is nothing, and no problem", text)
	}
	for _, p := range problems {
		if p.Text == "" || len(p.Text) > 1<<10 || p.At.Line < 0 {
			t.Errorf("%q has the problem %+v", text, p)
		}
	}
	if len(f.Steps) > MaxSteps || len(f.Edges) > MaxEdges || len(problems) > maxProblems {
		t.Errorf("%d steps, %d edges, %d problems", len(f.Steps), len(f.Edges), len(problems))
	}
	for _, s := range f.Steps {
		if s.ID == "" || s.Node == "" && len(problems) == 0 {
			t.Errorf("%q has the step %+v", text, s)
		}
		for _, values := range []map[string]json.RawMessage{s.Params, s.Set, f.Store} {
			for name, v := range values {
				if !json.Valid(v) {
					t.Errorf("%q: %q is %q", text, name, v)
				}
			}
		}
	}
	for _, e := range f.Edges {
		if e.From == "" || e.To == "" || e.Action == flow.Default {
			t.Errorf("%q has the edge %+v", text, e)
		}
	}
}

func FuzzJSON(f *testing.F) {
	seeds(f, JSON)
	f.Add(`{"nodes":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`, "")
	f.Add(`{"nodes":[{"id":"a","params":{"x":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}}]}`, "")
	f.Fuzz(func(t *testing.T, text, flags string) { read(t, JSON, text, flags) })
}

func FuzzHCL(f *testing.F) {
	seeds(f, HCL)
	f.Fuzz(func(t *testing.T, text, flags string) { read(t, HCL, text, flags) })
}

func FuzzLine(f *testing.F) {
	seeds(f, Line)
	f.Fuzz(func(t *testing.T, text, flags string) { read(t, Line, text, flags) })
}

// TestBounds: what is too large is told and not read.
func TestBounds(t *testing.T) {
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	many := `{"nodes":["backoff"` + strings.Repeat(`,"backoff"`, MaxSteps) + `],"edges":[]}`
	edges := `{"nodes":["a"],"edges":[{"from":"a","to":"a"}` + strings.Repeat(`,{"from":"a","to":"a"}`, MaxEdges) + `]}`
	values := `{"nodes":["a"],"store":{"a":[0` + strings.Repeat(`,0`, maxValues) + `]}}`
	flags := make([]string, 2*maxFlags+1)
	for _, tt := range []struct {
		form, text string
		flags      []string
		says       string
	}{
		{Line, strings.Repeat("x", MaxText+1), nil, "the flow has 1048577 bytes; the limit is 1048576"},
		{JSON, `{"nodes":` + deep + `}`, nil, "the flow is not JSON: more than 64 nested levels"},
		{JSON, `{"nodes":[{"id":"a","params":{"x":` + deep + `}}]}`, nil,
			"the flow is not JSON: more than 64 nested levels"},
		{JSON, many, nil, "the flow has more than 256 steps"},
		{Line, "backoff" + strings.Repeat(" >> backoff", MaxSteps), nil, "the flow has more than 256 steps"},
		{JSON, edges, nil, "the flow has more than 1024 edges"},
		{JSON, values, nil, "the flow is not JSON: more than 32768 values"},
		{HCL, "store = { a = " + deep + " }", nil, "A flow nests at most 16 levels, and has only literal values. "},
		{Line, "backoff", flags, "the command line has more than 256 flags"},
		{JSON, "{\"nodes\":[\"\xff\"]}", nil, "the flow is not UTF-8"},
		{"yaml", "a", nil, `unknown form "yaml"`},
	} {
		f, problems := Read(Source{Form: tt.form, Text: tt.text, Flags: tt.flags}, catalogue())
		if len(problems) == 0 || !strings.HasPrefix(problems[0].Text,
			tt.says) || len(f.Steps) > MaxSteps || len(f.Edges) > MaxEdges {
			t.Errorf("%.60q: %+v, want %q", tt.text, problems, tt.says)
		}
	}
	var wrong []string
	for range 300 {
		wrong = append(wrong, "x")
	}
	if _, problems := Read(Source{Form: Line, Text: "backoff " + strings.Join(wrong, " ")},
		catalogue()); len(problems) != maxProblems {
		t.Errorf("%d problems", len(problems))
	}
}
