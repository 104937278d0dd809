package form

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/nearest"
)

// The forms.
const (
	JSON = "json"
	HCL  = "hcl"
	Line = "line"
)

// Bounds of what is read.
const (
	MaxText     = 1 << 20 // bytes
	MaxSteps    = 256
	MaxEdges    = 1024
	maxDepth    = 64 // levels of JSON
	maxProblems = 100
	maxListed   = 64  // words that a problem lists
	maxNear     = 256 // words among which a near one is looked for
	maxShown    = 60  // characters of a word that a problem repeats
)

// decoder reads one flow.
type decoder struct {
	form     string
	flow     flow.Flow
	problems []flow.Problem
}

// full reports whether no more problems are told. What would be said of another one need not be found then.
func (d *decoder) full() bool { return len(d.problems) >= maxProblems }

func (d *decoder) problem(at flow.At, step, text, advice string) {
	if !d.full() {
		d.problems = append(d.problems, flow.Problem{At: at, Step: step, Text: text, Advice: advice})
	}
}

// step adds a step, if there is room for it.
func (d *decoder) step(s flow.Step) {
	if len(d.flow.Steps) == MaxSteps {
		d.problem(s.At, "", fmt.Sprintf("the flow has more than %d steps", MaxSteps), "Split the flow.")
		return
	}
	d.flow.Steps = append(d.flow.Steps, s)
}

// edge adds an edge, if there is room for it.
func (d *decoder) edge(e flow.Edge) {
	if e.Action == flow.Default {
		e.Action = ""
	}
	if len(d.flow.Edges) == MaxEdges {
		d.problem(e.At, "", fmt.Sprintf("the flow has more than %d edges", MaxEdges), "Split the flow.")
		return
	}
	d.flow.Edges = append(d.flow.Edges, e)
}

// chain adds the edges from each step to the next.
func (d *decoder) chain() {
	for i := 1; i < len(d.flow.Steps); i++ {
		d.edge(flow.Edge{From: d.flow.Steps[i-1].ID, To: d.flow.Steps[i].ID, At: d.flow.Steps[i].At})
	}
}

// quote quotes what somebody wrote, shortened, with what a terminal would obey as its code, and not at all if it may be
// a secret.
func quote(s string) string {
	if block.SecretWithin(s) {
		return `"***"`
	}
	if short := []rune(s); len(short) > maxShown {
		s = string(short[:maxShown]) + "..."
	}
	return strconv.Quote(s)
}

// meant says which of some words a misspelt one was meant to be, or lists them.
func meant(word string, words []string) string {
	if near := nearest.Keyword(word, words[:min(len(words), maxNear)]); near != "" {
		return fmt.Sprintf("Did you mean %q?", near)
	}
	list, sorted := "", slices.Compact(slices.Sorted(slices.Values(words)))
	for i, w := range sorted {
		if i == maxListed {
			return fmt.Sprintf("Use one of %s and %d more.", list, len(sorted)-maxListed)
		}
		if i > 0 {
			list += ", "
		}
		list += strconv.Quote(w)
	}
	return "Use one of " + list + "."
}

// named is the step of an id, nil if there is none.
func (d *decoder) named(id string) *flow.Step {
	for i := range d.flow.Steps {
		if d.flow.Steps[i].ID == id {
			return &d.flow.Steps[i]
		}
	}
	return nil
}
