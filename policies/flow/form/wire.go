package form

import (
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/fit"
	"github.com/pfar/pfar/policies/flow/step"
)

// Wire connects what a pipe connects. Where a step has an input that nothing gives, it reads the result of the step
// before: the only output whose type fits, else the whole result. Nothing gives an input if its name is neither in the
// store at the beginning, nor set by the step, nor set or written by one that may come before.
//
// It does so for the piped input of a native node, if the step reads nothing else, and with linked, which is for lines
// of a command line, for the only input that a step needs. The step before is the one whose Default edge leads there.
// If there are several, nothing is connected.
func Wire(f *flow.Flow, nodes flow.Nodes, linked bool) {
	w := wiring{flow: f, nodes: make([]*flow.Node, len(f.Steps)), next: make([][]int, len(f.Steps))}
	at := map[string]int{}
	for i, s := range f.Steps {
		at[s.ID] = i
		w.nodes[i], _ = nodes.Find(s.Node) // check.Check tells of one that is not known
	}
	w.before = make([]int, len(f.Steps))
	for i := range w.before {
		w.before[i] = none
	}
	for _, e := range f.Edges {
		from, ok := at[e.From]
		to, known := at[e.To]
		if !ok || !known {
			continue
		}
		w.next[from] = append(w.next[from], to)
		switch {
		case e.Action != "":
		case from == to || w.before[to] != none && w.before[to] != from:
			w.before[to] = several
		default:
			w.before[to] = from
		}
	}
	for i := range f.Steps {
		if w.nodes[i] == nil || w.before[i] < 0 || w.nodes[w.before[i]] == nil {
			continue
		}
		if in, ok := w.wants(i, linked); ok {
			w.connect(i, in)
		}
	}
}

// apart gives the ports that are a step's own names in the store that have its id.
func apart(f *flow.Flow, nodes flow.Nodes) {
	for i := range f.Steps {
		s := &f.Steps[i]
		n, err := nodes.Find(s.Node)
		if err != nil {
			continue
		}
		for _, p := range n.Inputs {
			if p.Own {
				s.Reads = unlessMapped(s.Reads, p.Name, p.Name+"."+s.ID)
			}
		}
		for _, p := range n.Outputs {
			if p.Own {
				s.Writes = unlessMapped(s.Writes, p.Name, p.Name+"."+s.ID)
			}
		}
	}
}

// unlessMapped maps a name, if it is not mapped already.
func unlessMapped(names map[string]string, own, stored string) map[string]string {
	if _, mapped := names[own]; mapped {
		return names
	}
	names = maps.Clone(names)
	if names == nil {
		names = map[string]string{}
	}
	names[own] = stored
	return names
}

// What stands in wiring.before for no step, or for more than one.
const (
	none    = -1
	several = -2
)

type wiring struct {
	flow   *flow.Flow
	nodes  []*flow.Node // of the steps; nil: not known
	next   [][]int      // by edges of any action
	before []int        // the step whose Default edge leads to each
}

// wants is the input of a step that a pipe gives.
func (w wiring) wants(i int, linked bool) (flow.Port, bool) {
	s, n := w.flow.Steps[i], w.nodes[i]
	given := w.given(i)
	var missing []flow.Port
	for _, in := range n.Inputs {
		switch {
		case given[step.Reads(s, in.Name)] || s.Reads[in.Name] != "":
		case in.Piped && len(s.Reads) == 0 && !(n.Open && len(step.Named(s.Params)) > 0):
			return in, true
		case in.Required && in.Default == nil:
			missing = append(missing, in)
		}
	}
	if linked && len(missing) == 1 {
		return missing[0], true
	}
	return flow.Port{}, false
}

// given are the names that the store may have when a step reads.
func (w wiring) given(i int) map[string]bool {
	given := map[string]bool{}
	for name := range w.flow.Store {
		given[name] = true
	}
	set := func(s flow.Step) {
		for own := range s.Set {
			given[step.Reads(s, own)] = true
		}
	}
	set(w.flow.Steps[i])
	for _, j := range w.earlier(i) {
		set(w.flow.Steps[j])
		if w.nodes[j] != nil {
			for _, out := range w.nodes[j].Outputs {
				given[step.Writes(w.flow.Steps[j], out.Name)] = true
			}
		}
	}
	return given
}

// earlier are the steps that a run may come to without this one, and that lead to it.
func (w wiring) earlier(i int) []int {
	reached := w.walk(0, w.next, i)
	back := make([][]int, len(w.next))
	for from, next := range w.next {
		for _, to := range next {
			back[to] = append(back[to], from)
		}
	}
	leading := w.walk(i, back, none)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(reached)), func(j int) bool { return j == i || !leading[j] })
}

// walk are the steps that edges lead to from one step, that one too, without going on from another.
func (w wiring) walk(from int, edges [][]int, not int) map[int]bool {
	seen := map[int]bool{from: true}
	for todo := []int{from}; len(todo) > 0; todo = todo[1:] {
		if todo[0] == not {
			continue
		}
		for _, to := range edges[todo[0]] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return seen
}

// connect has a step read the result of the one before.
func (w wiring) connect(i int, in flow.Port) {
	before := w.before[i]
	outputs := w.nodes[before].Outputs
	if len(outputs) == 0 {
		return
	}
	whole, parts := outputs[len(outputs)-1], slices.Clone(outputs[:len(outputs)-1])
	fits := func(o flow.Port) bool { return fit.Output(o.Schema, in.Schema) }
	parts = slices.DeleteFunc(parts, func(o flow.Port) bool { return !fits(o) })
	switch {
	case len(parts) == 1:
		whole = parts[0]
	case !fits(whole):
		return
	}
	s := &w.flow.Steps[i]
	s.Reads = unlessMapped(s.Reads, in.Name, step.Writes(w.flow.Steps[before], whole.Name))
}
