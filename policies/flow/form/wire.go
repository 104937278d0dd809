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
	w := &wiring{flow: f, nodes: make([]*flow.Node, len(f.Steps)), next: make([][]int, len(f.Steps))}
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
	w.gives()
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
	nodes  []*flow.Node     // of the steps; nil: not known
	next   [][]int          // by edges of any action
	before []int            // the step whose Default edge leads to each
	sets   map[string][]int // by name in the store: the steps that set it
	writes map[string][]int // and those whose outputs it is
}

// wants is the input of a step that a pipe gives.
func (w *wiring) wants(i int, linked bool) (flow.Port, bool) {
	s, n := w.flow.Steps[i], w.nodes[i]
	if len(n.Inputs) == 0 {
		return flow.Port{}, false
	}
	earlier := w.earlier(i)
	var missing []flow.Port
	for _, in := range n.Inputs {
		switch {
		case s.Reads[in.Name] != "" || w.given(i, step.Reads(s, in.Name), earlier):
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

// gives notes which steps set and write which names.
func (w *wiring) gives() {
	w.sets, w.writes = map[string][]int{}, map[string][]int{}
	for i, s := range w.flow.Steps {
		for own := range s.Set {
			name := step.Reads(s, own)
			w.sets[name] = append(w.sets[name], i)
		}
		if w.nodes[i] != nil {
			for _, out := range w.nodes[i].Outputs {
				name := step.Writes(s, out.Name)
				w.writes[name] = append(w.writes[name], i)
			}
		}
	}
}

// given reports whether the store may have a name when a step reads, after those that come earlier.
func (w *wiring) given(i int, name string, earlier map[int]bool) bool {
	_, stored := w.flow.Store[name]
	before := func(j int) bool { return earlier[j] }
	return stored || slices.Contains(w.sets[name], i) || slices.ContainsFunc(w.sets[name], before) ||
		slices.ContainsFunc(w.writes[name], before)
}

// earlier are the steps that a run may come to without this one, and that lead to it.
func (w *wiring) earlier(i int) map[int]bool {
	reached := w.walk(0, w.next, i)
	back := make([][]int, len(w.next))
	for from, next := range w.next {
		for _, to := range next {
			back[to] = append(back[to], from)
		}
	}
	leading := w.walk(i, back, none)
	maps.DeleteFunc(reached, func(j int, _ bool) bool { return j == i || !leading[j] })
	return reached
}

// walk are the steps that edges lead to from one step, that one too, without going on from another.
func (w *wiring) walk(from int, edges [][]int, not int) map[int]bool {
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
func (w *wiring) connect(i int, in flow.Port) {
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
