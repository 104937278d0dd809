// Package wording puts plans of flows, and what is wrong with them, into words for people: what the gateway answers in,
// text out, with nothing in it that a terminal obeys.
package wording

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
)

// Plan shows a plan whole: what the model says of it, each step with all that is known of its call and the gate's
// verdict, and how the steps follow. verdict writes a verdict, perhaps in colour. a has a draft.
func Plan(a flows.Answer, verdict func(gate.Verdict) string) string {
	var b strings.Builder
	d := a.Draft
	fmt.Fprintf(&b, "A plan by the model %s:\n", visible.Reveal(d.Model))
	for line := range strings.Lines(d.Reasoning) {
		fmt.Fprintf(&b, "| %s\n", visible.Reveal(strings.TrimRight(line, "\r\n")))
	}
	for i, s := range a.Steps {
		fmt.Fprintf(&b, "\n%d. %s calls %s\n", i+1, visible.Reveal(s.Step), visible.Reveal(s.Node))
		var arguments map[string]json.RawMessage
		_ = json.Unmarshal(s.Arguments, &arguments) // an object, or none
		for _, name := range slices.Sorted(maps.Keys(arguments)) {
			fmt.Fprintf(&b, "     %s = %s\n", visible.Reveal(name), visible.Reveal(string(arguments[name])))
		}
		for _, name := range s.From {
			fmt.Fprintf(&b, "     %s comes from an earlier step\n", visible.Reveal(name))
		}
		fmt.Fprintf(&b, "   %s: %s\n", verdict(s.Verdict), visible.Reveal(s.Reason))
		fmt.Fprintf(&b, "   who sees it: %s; effect: %s; the session has seen at worst: %s\n",
			s.Facts.Audience, s.Facts.Effect, s.Label)
	}
	b.WriteString(edges(d.Flow))
	if d.LeftOut > 0 {
		fmt.Fprintf(&b, "\nThe model was not told of %d tools whose definitions nobody has accepted: pfar pins\n", d.LeftOut)
	}
	return b.String()
}

// edges says how steps follow each other, if that is not one after the other, and where values come from.
func edges(text json.RawMessage) string {
	var f struct {
		Edges []struct {
			From   string `json:"from"`
			To     string `json:"to"`
			Action string `json:"action"`
		} `json:"edges"`
		Mappings json.RawMessage `json:"mappings"`
	}
	if json.Unmarshal(text, &f) != nil {
		return ""
	}
	var b strings.Builder
	if len(f.Edges) > 0 {
		b.WriteString("\n")
	}
	for _, e := range f.Edges {
		if e.Action == "" {
			e.Action = "default"
		}
		fmt.Fprintf(&b, "After %s, on %s: %s\n", visible.Reveal(e.From), visible.Reveal(e.Action), visible.Reveal(e.To))
	}
	if len(f.Mappings) > 0 && string(f.Mappings) != "{}" {
		fmt.Fprintf(&b, "\nMappings: %s\n", visible.Reveal(string(f.Mappings)))
	}
	return b.String()
}

// Unplanned says why a model has written no plan, in one or more lines.
func Unplanned(a flows.Answer) string {
	model := ""
	if a.Draft != nil {
		model = " " + visible.Reveal(a.Draft.Model)
	}
	lines := strings.Join(problems(a.Problems), "\n  ")
	return fmt.Sprintf("the model%s has written no plan that can run:\n  %s", model, lines)
}

func problems(list []flow.Problem) (lines []string) {
	for _, p := range list {
		line := visible.Reveal(p.Text)
		if p.Step != "" {
			line = "step " + visible.Reveal(p.Step) + ": " + line
		}
		lines = append(lines, line)
	}
	return lines
}
