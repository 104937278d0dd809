package check

import (
	"context"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/step"
)

// paths remembers what a check has found out about the paths of a flow, so that it finds it once: a hostile flow asks
// for it at each of thousands of inputs.
type paths struct {
	planned []flow.Planned
	readers map[string]bits // by names of dataflow.names: the steps that read them
	passed  []bits          // by step: those that every path to it has passed with success; nil: no path leads there
	after   []bits          // by step: those that may follow its success; nil: not yet known
	said    map[pair]string
	found   int // how often something was found out
	solved  int // how often the state after a step was found out

	ctx context.Context // of the check
}

// pair is what gives a value, and the input that takes it.
type pair struct {
	from *flow.Node // whose output it is; nil: the flow says the value
	step int        // that says the value; -1: the store at the beginning
	name string     // of the output, or in the store
	to   *flow.Node
	in   string
}

func newPaths(ctx context.Context, planned []flow.Planned) *paths {
	return &paths{ctx: ctx, planned: planned, after: make([]bits, len(planned)), said: map[pair]string{}}
}

// once is what find finds, which is called once for each pair.
func (p *paths) once(of pair, find func() string) string {
	s, ok := p.said[of]
	if !ok {
		p.found++
		s = find()
		p.said[of] = s
	}
	return s
}

// pass finds out which steps every path passes with success. The sets only ever become smaller, so it ends.
func (p *paths) pass() {
	p.passed = make([]bits, len(p.planned))
	p.passed[0] = newBits(len(p.planned))
	for todo := []int{0}; len(todo) > 0 && p.ctx.Err() == nil; todo = todo[1:] {
		i := todo[0]
		for action, next := range p.planned[i].Next {
			p.found++
			news := append(bits(nil), p.passed[i]...)
			if action == flow.Default {
				news.add(i)
			}
			changed := p.passed[next] == nil
			for w, before := range p.passed[next] {
				news[w] &= before
				changed = changed || news[w] != before
			}
			if changed {
				p.passed[next] = news
				todo = append(todo, next)
			}
		}
	}
}

// available are the outputs that every path to a step has written, at most maxOffered of them, and how many more there
// are. They are of all names, where the states of dataflow have only those that are read.
func (p *paths) available(i int) (offered []writer, more int) {
	if p.passed == nil {
		p.pass()
	}
	for j := range p.planned {
		if p.passed[i] == nil || !p.passed[i].has(j) {
			continue
		}
		outputs := p.planned[j].Node.Outputs
		for k := range outputs {
			if len(offered) == maxOffered {
				more += len(outputs) - k
				break
			}
			offered = append(offered, writer{step: j, output: outputs[k].Name})
		}
	}
	return offered, more
}

// read finds out which steps read the names of a flow.
func (p *paths) read(names map[string]int) {
	p.readers = make(map[string]bits, len(names))
	for i := range p.planned {
		note := func(name string) {
			if _, ok := names[name]; !ok {
				return
			}
			if p.readers[name] == nil {
				p.readers[name] = newBits(len(p.planned))
			}
			p.readers[name].add(i)
		}
		for _, in := range p.planned[i].Node.Inputs {
			note(step.Reads(p.planned[i].Step, in.Name))
		}
		for _, stored := range p.planned[i].Reads {
			note(stored)
		}
	}
}

// readAfter reports whether a name is read by a step that may come after the success of another.
func (p *paths) readAfter(i int, name string) bool {
	if p.after[i] == nil {
		p.after[i] = p.following(i)
	}
	for w, readers := range p.readers[name] {
		if readers&p.after[i][w] != 0 {
			return true
		}
	}
	return false
}

// following are the steps that may come after the success of another.
func (p *paths) following(i int) bits {
	seen := newBits(len(p.planned))
	first, ok := p.planned[i].Next[flow.Default]
	if !ok {
		return seen
	}
	seen.add(first)
	for todo := []int{first}; len(todo) > 0; todo = todo[1:] {
		p.found++
		for _, next := range p.planned[todo[0]].Next {
			if !seen.has(next) {
				seen.add(next)
				todo = append(todo, next)
			}
		}
	}
	return seen
}
