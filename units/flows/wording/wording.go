// Package wording puts plans of flows, and what is wrong with them, into words for people: what the gateway answers in,
// text out, with nothing in it that a terminal obeys.
package wording

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
)

// Plan shows a plan whole: what the model says of it, each step with all that is known of its call and the gate's
// verdict, and how the steps follow. verdict writes a verdict, perhaps in colour. a has a draft.
func Plan(a flows.Answer, verdict func(gate.Verdict) string) string {
	var b strings.Builder
	d := a.Draft
	fmt.Fprintf(&b, "A plan by the model %s:\n", visible.Reveal(d.Model))
	b.WriteString(Quote(d.Reasoning))
	for i, s := range a.Steps {
		fmt.Fprintf(&b, "\n%d. %s calls %s\n", i+1, visible.Reveal(s.Step), visible.Reveal(s.Node))
		for _, line := range Arguments(s) {
			fmt.Fprintf(&b, "     %s\n", visible.Reveal(line))
		}
		fmt.Fprintf(&b, "   %s: %s\n", verdict(s.Verdict), visible.Reveal(s.Reason))
		fmt.Fprintf(&b, "   %s; the session at worst: %s\n", Reach(s), s.Label)
	}
	if course := Course(d.Flow); len(course) > 0 {
		b.WriteString("\n")
		for _, line := range course {
			fmt.Fprintf(&b, "%s\n", visible.Reveal(line))
		}
	}
	if d.LeftOut > 0 {
		fmt.Fprintf(&b, "\n%s\n", LeftOut(d.LeftOut))
	}
	return b.String()
}

// Said is what a model answers, under its name.
func Said(model, text string) string {
	return fmt.Sprintf("Words of the model %s:\n%s", visible.Reveal(model), Quote(text))
}

// Quote puts a mark before each line of what a model, a server or a service wrote, which so cannot pass for words of
// pfar.
func Quote(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "| %s\n", visible.Reveal(strings.TrimRight(line, "\r\n")))
	}
	return b.String()
}

// Arguments are lines about the arguments of a step: each value that is known, and where each other one comes from.
// They quote the flow as it is.
func Arguments(s flows.Judged) (lines []string) {
	known := argument.Object(s.Arguments)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		lines = append(lines, name+" = "+string(known[name]))
	}
	for _, name := range s.From {
		lines = append(lines, name+" from an earlier step"+values(", or ", s.Or[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Or)) {
		if !slices.Contains(s.From, name) {
			lines = append(lines, name+values(" = ", s.Or[name]))
		}
	}
	return lines
}

// values are those that the flow gives to an argument that is not certain.
func values(before string, values []json.RawMessage) string {
	text := ""
	for _, v := range values {
		text += before + string(v)
		before = ", or "
	}
	return text
}

// Reach says who sees the arguments of a step, and what it changes.
func Reach(s flows.Judged) string {
	return fmt.Sprintf("seen by: %s; effect: %s", s.Facts.Audience, s.Facts.Effect)
}

// Course is lines about how the steps of a flow follow each other, if that is not one after the other, and where values
// come from. They quote the flow, in its JSON form, as it is.
func Course(text json.RawMessage) (lines []string) {
	var f struct {
		Edges []struct {
			From   string `json:"from"`
			To     string `json:"to"`
			Action string `json:"action"`
		} `json:"edges"`
		Mappings json.RawMessage `json:"mappings"`
		Store    json.RawMessage `json:"store"`
	}
	if json.Unmarshal(text, &f) != nil {
		return nil
	}
	for _, e := range f.Edges {
		lines = append(lines, "after "+e.From+", on "+cmp.Or(e.Action, "default")+": "+e.To)
	}
	if len(f.Mappings) > 0 && string(f.Mappings) != "{}" {
		lines = append(lines, "mappings: "+string(f.Mappings))
	}
	store := argument.Object(f.Store)
	for _, name := range slices.Sorted(maps.Keys(store)) {
		lines = append(lines, "in the store before the first step: "+name+" = "+string(store[name]))
	}
	return lines
}

// LeftOut says how many tools a model that plans was not told of.
func LeftOut(tools int) string {
	return fmt.Sprintf("pfar hid %s from the model: nobody has accepted their definitions (pfar pins)",
		plural.Count(tools, "tool"))
}

// Unplanned says why a model has written no plan, in one or more lines. They quote the plan, with the mark of Quote.
func Unplanned(a flows.Answer) string {
	model := ""
	if a.Draft != nil {
		model = " " + visible.Reveal(a.Draft.Model)
	}
	lines := Quote(strings.Join(problems(a.Problems), "\n"))
	return fmt.Sprintf("the plan of the model%s cannot run:\n%s", model, strings.TrimRight(lines, "\n"))
}

func problems(list []flow.Problem) (lines []string) {
	for _, p := range list {
		line := p.Text
		if p.Step != "" {
			line = "step " + p.Step + ": " + line
		}
		lines = append(lines, line)
	}
	return lines
}
