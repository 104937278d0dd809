package form

import (
	"slices"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/fit"
	"github.com/pfar/pfar/policies/flow/step"
)

// Wire connects what a pipe connects. Where a step has an input that nothing gives, it reads the result of the step
// before: the only output whose type fits, else the whole result. Nothing gives an input if its name is neither in the
// store at the beginning, nor set, nor an output of any step.
//
// It does so for the piped input of a native node, if the step reads nothing else, and with linked, which is for lines
// of a command line, for the only input that a step needs. The step before is the one whose Default edge leads there.
// If there are several, nothing is connected.
func Wire(f *flow.Flow, nodes flow.Nodes, linked bool) {
	w := wiring{f, make([]*flow.Node, len(f.Steps)), map[string]bool{}}
	for name := range f.Store {
		w.given[name] = true
	}
	for i, s := range f.Steps {
		n, err := nodes.Find(s.Node)
		if err != nil {
			continue
		}
		w.nodes[i] = n
		for own := range s.Set {
			w.given[step.Reads(s, own)] = true
		}
		for _, out := range n.Outputs {
			w.given[step.Writes(s, out.Name)] = true
		}
	}
	for i := range f.Steps {
		if in, ok := w.wants(i, linked); ok {
			w.connect(i, in)
		}
	}
}

type wiring struct {
	flow  *flow.Flow
	nodes []*flow.Node    // of the steps; nil: not known
	given map[string]bool // names in the store
}

// wants is the input of a step that a pipe gives.
func (w wiring) wants(i int, linked bool) (flow.Port, bool) {
	s, n := w.flow.Steps[i], w.nodes[i]
	if n == nil {
		return flow.Port{}, false
	}
	var missing []flow.Port
	for _, in := range n.Inputs {
		name := step.Reads(s, in.Name)
		switch {
		case w.given[name] || s.Reads[in.Name] != "":
		case in.Piped && len(s.Reads) == 0 && !(n.Open && len(step.Named(s.Params)) > 0):
			return in, true
		case in.Required:
			missing = append(missing, in)
		}
	}
	if linked && len(missing) == 1 {
		return missing[0], true
	}
	return flow.Port{}, false
}

// connect has a step read the result of the one before.
func (w wiring) connect(i int, in flow.Port) {
	before := -1
	for _, e := range w.flow.Edges {
		if e.To != w.flow.Steps[i].ID || e.Action != "" {
			continue
		}
		from := slices.IndexFunc(w.flow.Steps, func(s flow.Step) bool { return s.ID == e.From })
		if from == i || before >= 0 && from != before {
			return
		}
		before = from
	}
	if before < 0 || w.nodes[before] == nil {
		return
	}
	outputs := w.nodes[before].Outputs
	if len(outputs) == 0 {
		return
	}
	whole, parts := outputs[len(outputs)-1], outputs[:len(outputs)-1]
	fits := func(o flow.Port) bool { return fit.Output(o.Schema, in.Schema) }
	parts = slices.DeleteFunc(slices.Clone(parts), func(o flow.Port) bool { return !fits(o) })
	switch {
	case len(parts) == 1:
		whole = parts[0]
	case !fits(whole):
		return
	}
	s := &w.flow.Steps[i]
	reads := map[string]string{}
	for own, name := range s.Reads {
		reads[own] = name
	}
	reads[in.Name] = step.Writes(w.flow.Steps[before], whole.Name)
	s.Reads = reads
}
