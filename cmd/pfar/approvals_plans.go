package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

// plannedSteps are the steps of a flow about which a person is asked.
type plannedSteps []struct {
	Step  string `json:"step"`
	Calls string `json:"calls"`
}

// renderPlans compares runs of one flow that wait for an approval, by what their steps do. It reports false of calls
// that are not about flows.
func renderPlans(b *page, calls []*waitingCall) bool {
	var all []plannedSteps
	for _, w := range calls {
		var plan struct {
			Steps plannedSteps `json:"steps"`
		}
		if w.Method != operator.WholeFlow || json.Unmarshal(w.Arguments, &plan) != nil || len(plan.Steps) == 0 {
			return false
		}
		all = append(all, plan.Steps)
	}
	head := fmt.Sprintf("%s of the flow %s for %s ", plural.Count(len(calls), "run"),
		visible.Reveal(strings.TrimPrefix(calls[0].Name, "flow:")), visible.Reveal(calls[0].Client))
	if !alikeSteps(all) {
		b.line("", head+"have different steps")
		for i, steps := range all {
			var names []string
			for _, s := range steps {
				names = append(names, s.Calls)
			}
			b.line("  "+visible.Reveal(calls[i].ID)+"  ", visible.Reveal(strings.Join(names, ", then ")))
		}
		return true
	}
	renderSteps(b, head, calls, all[0])
	return true
}

// renderSteps says in which arguments runs with the same steps differ.
func renderSteps(b *page, head string, calls []*waitingCall, steps plannedSteps) {
	pointers, values := differing(calls)
	var names []string
	each, left, other := make([][]string, len(calls)), 0, false
	for _, p := range pointers {
		name, is := ofStep(p, steps)
		switch {
		case !is:
			other = other || strings.HasPrefix(p, "/steps/")
		case len(names) == maxPlaces:
			left++
		default:
			names = append(names, name)
			for i, text := range shownValues(p, values) {
				each[i] = append(each[i], name+": "+text)
			}
		}
	}
	masked := slices.ContainsFunc(calls, func(w *waitingCall) bool { return len(w.Masked) > 0 })
	switch {
	case len(names) > 0:
	case other:
		b.line("", head+"have the same steps and arguments, and differ in what pfar says of them: read each")
		return
	case masked:
		b.line("", head+"have the same steps and arguments, as far as they are shown; each answer is for one run")
		return
	default:
		b.line("", head+"have the same steps and arguments; each answer is for one run")
		return
	}
	list := strings.Join(names, ", ")
	if left > 0 {
		list += fmt.Sprintf(" and %d more", left)
	}
	b.line("", head+"have the same steps, and differ in "+list)
	for i, w := range calls {
		b.line("  "+visible.Reveal(w.ID)+"  ", strings.Join(each[i], ", "))
	}
}

// alikeSteps reports whether all plans have the same steps, which call the same tools.
func alikeSteps(all []plannedSteps) bool {
	for _, steps := range all[1:] {
		if len(steps) != len(all[0]) {
			return false
		}
		for i, s := range steps {
			if s != all[0][i] {
				return false
			}
		}
	}
	return true
}

// ofStep names the argument of a step to which a pointer into a plan leads.
func ofStep(pointer string, steps plannedSteps) (name string, ok bool) {
	parts := strings.SplitN(pointer, "/", 5) // "", "steps", number, "arguments", the rest
	given := len(parts) == 5 && (parts[3] == "arguments" || parts[3] == "arguments that are else one of")
	if !given || parts[1] != "steps" {
		return "", false
	}
	i, err := strconv.Atoi(parts[2])
	if err != nil || i < 0 || i >= len(steps) {
		return "", false
	}
	return wording.Place(steps[i].Step + "/" + parts[4]), true
}
