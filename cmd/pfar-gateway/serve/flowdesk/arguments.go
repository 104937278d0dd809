package flowdesk

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/step"
)

// origins say which steps of a plan write which names in the store.
type origins struct {
	plan   *flow.Plan
	of     map[string][]origin // by name in the store
	before [][]bool            // by the places of two steps: a call of the first may come before one of the second
}

// origin is a step that writes a name.
type origin struct {
	step  int
	value json.RawMessage // that the step sets; nil: an output of its node
}

func originsOf(p *flow.Plan) *origins {
	o := &origins{plan: p, of: make(map[string][]origin), before: make([][]bool, len(p.Steps))}
	for i := range p.Steps {
		s := &p.Steps[i]
		o.before[i] = after(p, i)
		for _, out := range s.Node.Outputs {
			if !slices.Contains(s.Unread, out.Name) {
				name := step.Writes(s.Step, out.Name)
				o.of[name] = append(o.of[name], origin{step: i})
			}
		}
		for _, own := range slices.Sorted(maps.Keys(s.Set)) {
			name := step.Reads(s.Step, own)
			o.of[name] = append(o.of[name], origin{step: i, value: s.Set[own]})
		}
	}
	return o
}

// after are the steps that may be called after a call of one.
func after(p *flow.Plan, i int) []bool {
	seen := make([]bool, len(p.Steps))
	for todo := []int{i}; len(todo) > 0; {
		at := todo[0]
		todo = todo[1:]
		for _, next := range p.Steps[at].Next {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return seen
}

// stored is what is known of a value in the store right before a step reads it.
type stored struct {
	varies bool              // an earlier step may have written it
	output bool              // and what it wrote may be an output of its node
	values []json.RawMessage // that it has otherwise
}

// at finds out what a step may read under a name. What it sets itself is certain.
func (o *origins) at(i int, name string) (s stored) {
	reader := &o.plan.Steps[i]
	for own := range reader.Set {
		if step.Reads(reader.Step, own) == name {
			return stored{}
		}
	}
	for _, writer := range o.of[name] {
		if !o.before[writer.step][i] {
			continue
		}
		if s.varies = true; writer.value == nil {
			s.output = true
		} else {
			s.values = append(s.values, writer.value)
		}
	}
	if s.varies {
		s.values = append(s.values, o.plan.Flow.Store[name])
	}
	return s
}

// arguments are what a plan itself gives to the step at a place. Of an argument that earlier steps may give it has the
// name, and each value that the plan gives in their place.
func (o *origins) arguments(i int) (enforce.Planned, error) {
	s := o.plan.Steps[i]
	planned := enforce.Planned{ID: s.ID, Or: make(map[string][]json.RawMessage)}
	varies := make(map[string]bool)
	read := func(port flow.Port, name string, param json.RawMessage) bool {
		of := o.at(i, name)
		if !of.varies {
			return false
		}
		varies[port.Name] = true
		if of.output {
			planned.From = append(planned.From, port.Name)
		}
		values := append(of.values, param)
		if port.Required {
			values = append(values, port.Default)
		}
		if values = distinct(values); len(values) > 0 {
			planned.Or[port.Name] = values
		}
		return true
	}
	bare := s
	bare.Node = &flow.Node{Open: s.Node.Open}
	for _, in := range s.Node.Inputs {
		if !read(in, step.Reads(s.Step, in.Name), nil) {
			bare.Node.Inputs = append(bare.Node.Inputs, in)
		}
	}
	for _, param := range s.Node.Params {
		name, mapped := s.Reads[param.Name]
		if !mapped || !read(param, name, s.Params[param.Name]) {
			bare.Node.Params = append(bare.Node.Params, param)
		}
	}
	bare.Reads = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(s.Reads)) {
		if !varies[name] && (!s.Node.Open || !read(flow.Port{Name: name}, s.Reads[name], nil)) {
			bare.Reads[name] = s.Reads[name]
		}
	}
	slices.Sort(planned.From)
	planned.From = slices.Compact(planned.From)
	var err error
	if planned.Known, err = step.Arguments(&bare, maps.Clone(o.store())); err != nil {
		return planned, &stepError{s.ID, err}
	}
	return planned, nil
}

// store is that of a run before its first step.
func (o *origins) store() step.Store {
	if o.plan.Flow.Store == nil {
		return step.Store{}
	}
	return o.plan.Flow.Store
}

// distinct are the values that there are, each once.
func distinct(values []json.RawMessage) (all []json.RawMessage) {
	for _, v := range values {
		same := func(other json.RawMessage) bool { return bytes.Equal(v, other) }
		if argument.TypeOf(v) != "null" && !slices.ContainsFunc(all, same) {
			all = append(all, v)
		}
	}
	return all
}
