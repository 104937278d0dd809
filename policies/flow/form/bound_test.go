package form

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/tests/flownodes"
)

// wide has big.x, which has as many inputs and outputs as a node may have.
func wide() flow.Nodes {
	var in, out strings.Builder
	for i := range 256 {
		fmt.Fprintf(&in, `,"p%d":{"type":"string"}`, i)
		fmt.Fprintf(&out, `,"o%d":{"type":"string"}`, i)
	}
	return node.New(append(native.Nodes(), flownodes.Tool("big", "", "", `{"name":"x","inputSchema":{"properties":{`+
		in.String()[1:]+`}},"outputSchema":{"properties":{`+out.String()[1:]+`}}}`)), nil)
}

// reads is what reading a flow allocates, a measure of its work that is the same on each machine.
func reads(s Source, nodes flow.Nodes) (allocations float64, f flow.Flow, problems []flow.Problem) {
	allocations = testing.AllocsPerRun(1, func() { f, problems = Read(s, nodes) })
	return allocations, f, problems
}

// TestWideLine: the work for a line grows with its steps and their ports, not with the square of the steps.
func TestWideLine(t *testing.T) {
	nodes := wide()
	line := func(n int) float64 {
		work, f, problems := reads(Source{Form: Line, Text: strings.Repeat(">>big.x", n)[2:]}, nodes)
		if len(problems) > 0 || len(f.Steps) != n || f.Steps[n-1].Writes["o7"] != fmt.Sprint("o7-", n) {
			t.Fatalf("%d steps, %+v", len(f.Steps), problems)
		}
		return work
	}
	if once, twice := line(100), line(200); twice > 2.5*once {
		t.Errorf("%v allocations, and %v for twice the steps", once, twice)
	}
}

// TestManyFlags: what flags can name is found out once for all flags, and there are at most so many of both.
func TestManyFlags(t *testing.T) {
	nodes := wide()
	flags := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("--zz%d", i), "1")
		}
		return list
	}
	var steps strings.Builder
	for i := range 100 {
		fmt.Fprintf(&steps, `,{"id":"s_%d","node":"big.x"}`, i)
	}
	text := `{"nodes":[` + steps.String()[1:] + `]}`
	work := func(n int) float64 {
		work, _, problems := reads(Source{Form: JSON, Text: text, Flags: flags(n)}, nodes)
		if len(problems) != n || !strings.HasSuffix(problems[0].Advice, " and 192 more.") {
			t.Fatalf("%d problems, %+v", len(problems), problems[:min(len(problems), 1)])
		}
		return work
	}
	one, many := work(1), work(20)
	if each := (many - one) / 19; each > one/4 {
		t.Errorf("%v allocations for one flag, and %v for each further one", one, each)
	}
	for what, tt := range map[string]struct {
		s    Source
		says string
	}{
		"flags": {Source{Form: JSON, Text: text, Flags: flags(257)}, "the command line has more than 256 flags"},
		"flags of a step": {Source{Form: Line, Text: "big.x" + strings.Repeat(" --p1 x", 257)},
			"the step has more than 256 flags"},
		"targets": {Source{Form: JSON, Text: text + strings.Repeat(" ", 10), Flags: flags(1)}, "unknown flag --zz0"},
		"too many targets": {Source{Form: JSON, Text: strings.Replace(text, `"nodes":[`, `"nodes":[`+
			strings.ReplaceAll(steps.String()[1:], "s_", "t_")+",", 1), Flags: flags(1)},
			"the steps have more than 16384 inputs and params, too many for flags"},
	} {
		_, problems := Read(tt.s, nodes)
		if len(problems) != 1 || !strings.HasPrefix(problems[0].Text, tt.says) {
			t.Errorf("%s: %d problems, %+v", what, len(problems), problems[:min(len(problems), 1)])
		}
	}
}

// TestFarWords: a line whose every word is wrong is not read further than problems are told.
func TestFarWords(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("log>>", 20000) + "log", strings.Repeat("big.x --zz 1;", 7000),
		strings.Repeat("big.x ;big.x a;", 6000),
	} {
		work, _, problems := reads(Source{Form: Line, Text: text}, wide())
		if len(problems) != maxProblems || work > float64(2*len(text)) {
			t.Errorf("%.20q: %d problems, %v allocations for %d bytes", text, len(problems), work, len(text))
		}
	}
}
