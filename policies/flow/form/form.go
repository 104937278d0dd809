// Package form reads flows from the three forms in which people and planners write them: JSON, HCL, and a line of a
// command line. What comes out has a place for each step, edge and mistake.
package form

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/flow"
)

// Source is a flow as it came, with what goes over it.
type Source struct {
	Name  string   // "": it is of a command line
	Form  string   // JSON, HCL or Line
	Text  string   // the flow
	Flags []string // --NAME VALUE or --NAME=VALUE, over what Text says
	Input *string  // standard input, for the first step; nil: none

	// Unseen says that standard input comes, and that nothing which is said of the flow may tell of it. The first step
	// sets nil in its place, in place of Input.
	Unseen bool
}

// Read reads a flow, lays the flags over it, feeds standard input to its first step, and connects what a pipe connects
// (see Wire). One end of a line at the end of standard input is none of it. It returns all mistakes that it finds, in
// the order of their places. A flow with mistakes has what could be read: if it has steps, check.Check finds the other
// mistakes.
func Read(s Source, nodes flow.Nodes) (flow.Flow, []flow.Problem) {
	nodes = flow.Remember(nodes)
	d := &decoder{form: s.Form}
	d.flow.Name = s.Name
	linked := false // each step to the next
	switch {
	case len(s.Text) > MaxText:
		d.problem(flow.At{}, "", fmt.Sprintf("the flow has %d bytes; the limit is %d", len(s.Text), MaxText),
			"Split the flow.")
	case !utf8.ValidString(s.Text):
		d.problem(flow.At{}, "", "the flow is not UTF-8", "Save it as UTF-8.")
	case s.Form == JSON:
		jsonReader{reader{d}}.read(s.Text)
	case s.Form == HCL:
		hclReader{reader{d}}.read(s.Name, s.Text)
	case s.Form == Line:
		(&lineReader{d, nodes, used{}, used{}}).read(s.Text)
		linked = true
	default:
		d.problem(flow.At{}, "", "unknown form "+quote(s.Form), "Write json, hcl or line.")
	}
	if len(d.flow.Steps) > 0 {
		apart(&d.flow, nodes)
		o := overlay{d, nodes}
		o.flags(s.Flags)
		switch {
		case s.Unseen:
			o.feed(nil)
		case s.Input != nil:
			text, _ := json.Marshal(strings.TrimSuffix(*s.Input, "\n")) // a string
			o.feed(text)
		}
		Wire(&d.flow, nodes, linked)
	}
	slices.SortStableFunc(d.problems, func(a, b flow.Problem) int {
		return cmp.Or(a.At.Line-b.At.Line, a.At.Column-b.At.Column)
	})
	return d.flow, d.problems
}
