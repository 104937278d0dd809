package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/tests/flownodes"
)

// wide has tools with as many ports as a node may have: big.x gives 256 texts and takes as many, and big.y needs a
// number.
func wide() flow.Nodes {
	var in, out strings.Builder
	for i := range 256 {
		fmt.Fprintf(&in, `,"p%d":{"type":"string"}`, i)
		fmt.Fprintf(&out, `,"o%d":{"type":"string"}`, i)
	}
	return node.New([]flow.Node{
		flownodes.Tool("big", "", "", `{"name":"x","inputSchema":{"properties":{`+in.String()[1:]+
			`}},"outputSchema":{"properties":{`+out.String()[1:]+`}}}`),
		flownodes.Tool("big", "", "", `{"name":"y","inputSchema":{"properties":{"need":{"type":"integer"}},
			"required":["need"]}}`),
	}, nil)
}

// chain is a flow of steps that lead one to the next.
func chain(steps ...flow.Step) (f flow.Flow) {
	for i := range steps {
		steps[i].ID = fmt.Sprint("s", i)
		if i > 0 {
			f.Edges = append(f.Edges, flow.Edge{From: steps[i-1].ID, To: steps[i].ID})
		}
	}
	f.Steps = steps
	return f
}

// begun is a checker that has come to what steps give to each other.
func begun(f flow.Flow, nodes flow.Nodes) *checker {
	c := &checker{ctx: context.Background(), flow: f, nodes: flow.Remember(nodes), at: map[string]int{}}
	c.steps()
	c.edges()
	return c
}

// TestOffered: of very many outputs, few are looked through for one that fits, however many inputs lack one, and the
// paths of the flow are followed once.
func TestOffered(t *testing.T) {
	steps := slices.Concat(slices.Repeat([]flow.Step{{Node: "big.x"}}, 150),
		slices.Repeat([]flow.Step{{Node: "big.y"}}, 100))
	c := begun(chain(steps...), wide())
	d := c.dataflow()
	d.check()
	if len(c.problems) != maxProblems {
		t.Fatalf("%d problems, the first %+v", len(c.problems), c.problems[0])
	}
	const want = `or map one of "o0", "o1", "o10", "o100", "o101", "o102", "o103", "o104" and 38542 more.`
	if got := c.problems[0].Advice; !strings.HasSuffix(got, want) {
		t.Errorf("it is advised: %s", got)
	}
	if n := d.paths.found; n > 4*len(c.planned) {
		t.Errorf("%d steps along edges of %d", n, len(c.planned))
	}
	offered, more := d.paths.available(200)
	if len(offered) != maxOffered || len(offered)+more != 150*257+50 {
		t.Errorf("%d outputs and %d more are offered", len(offered), more)
	}
}

// TestFitsOnce: whether an output fits an input is found out once, however many steps of the same two nodes there are.
func TestFitsOnce(t *testing.T) {
	var steps []flow.Step
	for range 8 {
		s := flow.Step{Node: "big.x", Reads: map[string]string{}, Writes: map[string]string{"o0": "x"}}
		for i := range 256 {
			s.Reads[fmt.Sprint("p", i)] = "x"
		}
		steps = append(steps, s)
	}
	c := begun(chain(steps...), wide())
	d := c.dataflow()
	d.check()
	if len(c.problems) == 0 || d.paths.found > 256+2*len(steps)*len(steps) {
		t.Errorf("%d things were found out", d.paths.found)
	}
}

// TestFull: when no more problems are told, nothing is looked for that one would say.
func TestFull(t *testing.T) {
	c := begun(chain(flow.Step{Node: "big.y"}), wide())
	for !c.full() {
		c.problem(flow.At{}, "", "x", "")
	}
	p := &c.planned[0]
	edge := flow.Edge{From: "s1", To: "s1"}
	for what, look := range map[string]func(){
		"a port":             func() { c.unknown(p, "input", "nead", p.Node.Inputs) },
		"the end of an edge": func() { c.named(edge, edge.From) },
	} {
		if n := testing.AllocsPerRun(1, look); n > 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// TestNamedBound: a step's texts name at most so many values.
func TestNamedBound(t *testing.T) {
	var text strings.Builder
	for i := range 257 {
		fmt.Fprintf(&text, "{{n%d}}", i)
	}
	for end, want := range map[int]string{text.Len() - len("{{n256}}"): "nothing gives",
		text.Len(): "the texts of the step name more than 256 values"} {
		f := chain(flow.Step{Node: "template", Params: map[string]json.RawMessage{
			"template": json.RawMessage(`"` + text.String()[:end] + `"`),
		}})
		_, problems := Check(t.Context(), f, nodes)
		if len(problems) == 0 || !strings.HasPrefix(problems[0].Text, want) {
			t.Errorf("%d bytes: %+v", end, problems)
		}
	}
}
