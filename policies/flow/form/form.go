// Package form reads flows from the three forms in which people and planners write them: JSON, HCL, and a line of a
// command line. What comes out has a place for each step, edge and mistake.
package form

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

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
	maxShown    = 60 // characters of a word that a problem repeats
)

// Source is a flow as it came, with what goes over it.
type Source struct {
	Name  string   // "": it is of a command line
	Form  string   // JSON, HCL or Line
	Text  string   // the flow
	Flags []string // --NAME VALUE or --NAME=VALUE, over what Text says
	Input *string  // standard input, for the first step; nil: none
}

// Read reads a flow, lays the flags over it, feeds standard input to its first step, and connects what a pipe connects
// (see Wire). It returns all mistakes that it finds, in the order of their places. A flow with mistakes has what could
// be read: if it has steps, check.Check finds the other mistakes.
func Read(s Source, nodes flow.Nodes) (flow.Flow, []flow.Problem) {
	nodes = flow.Remember(nodes)
	d := &decoder{form: s.Form}
	d.flow.Name = s.Name
	linked := false // each step to the next
	switch {
	case len(s.Text) > MaxText:
		d.problem(flow.At{}, "", fmt.Sprintf("the flow has %d bytes, and may have %d", len(s.Text), MaxText), "Split it.")
	case !utf8.ValidString(s.Text):
		d.problem(flow.At{}, "", "the flow is not UTF-8", "Save it as UTF-8.")
	case s.Form == JSON:
		d.json(s.Text)
	case s.Form == HCL:
		d.hcl(s.Name, s.Text)
	case s.Form == Line:
		d.line(s.Text, nodes)
		linked = true
	default:
		d.problem(flow.At{}, "", "no such form: "+quote(s.Form), "Write json, hcl or line.")
	}
	if len(d.flow.Steps) > 0 {
		d.flags(s.Flags, nodes)
		if s.Input != nil {
			d.feed(*s.Input, nodes)
		}
		Wire(&d.flow, nodes, linked)
	}
	slices.SortStableFunc(d.problems, func(a, b flow.Problem) int {
		return cmp.Or(a.At.Line-b.At.Line, a.At.Column-b.At.Column)
	})
	return d.flow, d.problems
}

// decoder reads one flow.
type decoder struct {
	form     string
	flow     flow.Flow
	problems []flow.Problem
}

func (d *decoder) problem(at flow.At, step, text, advice string) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, flow.Problem{At: at, Step: step, Text: text, Advice: advice})
	}
}

// step adds a step, if there is room for it.
func (d *decoder) step(s flow.Step) {
	if len(d.flow.Steps) == MaxSteps {
		d.problem(s.At, "", fmt.Sprintf("the flow has more than %d steps", MaxSteps), "Split it.")
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
		d.problem(e.At, "", fmt.Sprintf("the flow has more than %d edges", MaxEdges), "Split it.")
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
	if near := nearest.Keyword(word, words); near != "" {
		return fmt.Sprintf("Did you mean %q?", near)
	}
	list := ""
	for i, w := range slices.Sorted(slices.Values(words)) {
		if i > 0 {
			list += ", "
		}
		list += strconv.Quote(w)
	}
	return "Known are " + list + "."
}
