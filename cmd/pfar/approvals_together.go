package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

// together returns the calls that wait, of one client for one tool each: those that one looks at together, and answers
// one by one.
func together(all []waitingCall) [][]*waitingCall {
	var groups [][]*waitingCall
	at := map[[4]string]int{}
	for i := range all {
		w := &all[i]
		if w.State != operator.Pending {
			continue
		}
		key := w.alike()
		k, known := at[key]
		if !known {
			k, at[key] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[k] = append(groups[k], w)
	}
	return slices.DeleteFunc(groups, func(g []*waitingCall) bool { return len(g) < 2 })
}

// differing returns the arguments in which calls differ, as pointers, the most telling first, and what each call has
// there, as JSON. Arguments that are no JSON are one text.
func differing(calls []*waitingCall) (pointers []string, values []map[string]string) {
	count := map[string]int{} // of calls that have what the first one has
	for _, w := range calls {
		has := map[string]string{}
		values = append(values, has)
		list, err := wording.Arguments(w.Arguments)
		if err != nil {
			list = []wording.Argument{{Value: string(w.Arguments)}}
		}
		for _, a := range list {
			b, _ := json.Marshal(a.Value) // it was JSON
			value := string(b)
			has[a.Pointer] = value
			if _, known := count[a.Pointer]; !known {
				count[a.Pointer] = 0
				pointers = append(pointers, a.Pointer)
			}
			if first, ok := values[0][a.Pointer]; ok && first == value {
				count[a.Pointer]++
			}
		}
	}
	pointers = slices.DeleteFunc(pointers, func(p string) bool { return count[p] == len(calls) })
	slices.SortStableFunc(pointers, func(a, b string) int { return wording.Rank(a) - wording.Rank(b) })
	return pointers, values
}

// alike is equal for calls of one client for one tool.
func (w *waitingCall) alike() [4]string { return [4]string{w.Client, w.Server, w.Name, w.Method} }

const (
	maxPlaces = 3  // in which calls differ, of which is shown what they have there
	maxValue  = 40 // characters of that
	before    = 8  // bytes of those, at most, that stand before the difference
)

// shownValues are what calls have in one place, each shortened to what is around the first difference: what all begin
// with may be long, and be there to hide it.
func shownValues(pointer string, values []map[string]string) []string {
	var all []any
	var texts []string
	for _, has := range values {
		var v any = json.RawMessage("nothing") // a text that says so is in quotes
		if raw, ok := has[pointer]; ok {
			v = json.RawMessage(raw)
			if text := ""; json.Unmarshal([]byte(raw), &text) == nil && raw != "null" {
				v = text
			}
		}
		all = append(all, v)
		texts = append(texts, fmt.Sprintf("%s", v))
	}
	from := len(texts[0])
	for _, text := range texts[1:] {
		n := 0
		for n < from && n < len(text) && text[n] == texts[0][n] {
			n++
		}
		from = n
	}
	from -= before
	for from > 0 && !utf8.RuneStart(texts[0][from]) {
		from--
	}
	var shown []string
	for i, text := range texts {
		head, tail := "", ""
		if from > 0 {
			head, text = "…", text[from:]
		}
		if r := []rune(text[:min(len(text), utf8.UTFMax*(maxValue+1))]); len(r) > maxValue {
			text, tail = string(r[:maxValue]), "…"
		}
		if _, isText := all[i].(string); isText {
			text = wording.Quoted(text)
		} else {
			text = visible.Reveal(text)
		}
		shown = append(shown, head+text+tail)
	}
	return shown
}

// renderTogether says what of a group is different, and which call has what.
func renderTogether(b *page, calls []*waitingCall) {
	if renderPlans(b, calls) {
		return
	}
	pointers, values := differing(calls)
	head := fmt.Sprintf("%d calls of %s to %s ", len(calls), visible.Reveal(calls[0].Client), visible.Reveal(calls[0].what()))
	if len(pointers) == 0 {
		as := ""
		if slices.ContainsFunc(calls, func(w *waitingCall) bool { return len(w.Masked) > 0 }) {
			as = ", as far as they are shown"
		}
		b.line("", head+"have the same arguments"+as)
		return
	}
	var names []string
	each := make([][]string, len(calls))
	for _, p := range pointers[:min(len(pointers), maxPlaces)] {
		name := wording.Place(p)
		names = append(names, name)
		for i, text := range shownValues(p, values) {
			each[i] = append(each[i], name+": "+text)
		}
	}
	list := strings.Join(names, ", ")
	if n := len(pointers) - len(names); n > 0 {
		list += fmt.Sprintf(" and %d more", n)
	}
	b.line("", head+"differ only in "+list)
	for i, w := range calls {
		b.line("  "+visible.Reveal(w.ID)+"  ", strings.Join(each[i], ", "))
	}
}

// printTogether prints, below the list, what is different in calls that are alike: many of them hide one that is not.
func printTogether(c *streams, all []waitingCall) {
	b := page{columns: columnsOf(c.stdout)}
	for _, group := range together(all) {
		renderTogether(&b, group)
	}
	fmt.Fprint(c.stdout, b.String())
}
