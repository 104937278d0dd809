package schema

import (
	"fmt"
	"slices"
)

// Bounds on how often one place of a schema leads to others.
const (
	maxChain   = 128      // subschemas that one place leads to without going deeper into the value
	maxInPlace = 16 << 10 // subschemas that are applied to one and the same part of a value
)

// order numbers subschemas and adds up what they lead to.
type order struct {
	b       *builder
	state   []uint8 // not met, open, done
	rank    []int32 // of finishing
	inPlace []int64
	chain   []int
	next    int32
}

const (
	unmet uint8 = iota
	open
	done
)

// graph numbers the nodes and refuses those that cost too much before a value is seen.
func (b *builder) graph() (*graph, error) {
	n := len(b.nodes)
	o := order{b: b, state: make([]uint8, n), rank: make([]int32, n), inPlace: make([]int64, n), chain: make([]int, n)}
	for i := range b.nodes {
		if err := o.visit(int32(i)); err != nil {
			return nil, err
		}
	}
	g := &graph{nodes: make([]node, n)}
	to := func(id int32) int32 { return int32(n) - 1 - o.rank[id] } // what is finished first is led to
	for i := range b.nodes {
		id := to(int32(i))
		g.nodes[id] = b.nodes[i].renumbered(func(id int32) int32 {
			if id == none {
				return none
			}
			return to(id)
		})
		g.marks = g.marks || g.nodes[id].marks
	}
	g.root = to(0)
	g.meters.New = func() any { return &meter{g: g, counts: make([]int64, n)} }
	g.unfold()
	return g, nil
}

// visit follows what is applied to the same part of a value, depth first.
func (o *order) visit(id int32) error {
	if o.state[id] == done {
		return nil
	}
	location := func() string { return quoted(rulePath(o.b.list[id].Location), 200) }
	o.state[id] = open
	total, chain := int64(1), 1
	for _, t := range o.b.nodes[id].same {
		if o.state[t] == open {
			return fmt.Errorf("the schema at %s refers to itself without going deeper into the value", location())
		}
		if err := o.visit(t); err != nil {
			return err
		}
		total = add(total, o.inPlace[t])
		chain = max(chain, o.chain[t]+1)
	}
	if chain > maxChain {
		return fmt.Errorf("the schema at %s leads on to %d others in a row, more than %d", location(), chain, maxChain)
	}
	if total > maxInPlace {
		return fmt.Errorf("the schema at %s applies %d subschemas to the same value, more than %d", location(), total, maxInPlace)
	}
	o.state[id], o.inPlace[id], o.chain[id] = done, total, chain
	o.rank[id] = o.next
	o.next++
	return nil
}

func (n node) renumbered(to func(int32) int32) node {
	list := func(ids []int32) []int32 {
		out := make([]int32, len(ids))
		for i, id := range ids {
			out[i] = to(id)
		}
		return out
	}
	n.same, n.prefix = list(n.same), list(n.prefix)
	props := make(map[string]int32, len(n.props))
	for name, id := range n.props {
		props[name] = to(id)
	}
	n.props = props
	n.patterns = slices.Clone(n.patterns)
	for i := range n.patterns {
		n.patterns[i].to = to(n.patterns[i].to)
	}
	n.other, n.uneval, n.names = to(n.other), to(n.uneval), to(n.names)
	n.items, n.contains, n.unevalIt = to(n.items), to(n.contains), to(n.unevalIt)
	return n
}

// unfold adds up all applications there can be, to any part of a value. It gives up where there is no end of them,
// or where their cost depends on more than the value's size.
func (g *graph) unfold() {
	state := make([]uint8, len(g.nodes))
	weight, scan := make([]int64, len(g.nodes)), make([]int64, len(g.nodes))
	var visit func(id int32) bool
	visit = func(id int32) bool {
		n := &g.nodes[id]
		if state[id] != unmet {
			return state[id] == done
		}
		if n.special() {
			return false
		}
		state[id] = open
		w, s := n.weight+int64(len(n.patterns)), n.scan()
		if n.numeric {
			w += calculation
		}
		for _, t := range append(n.children(), n.same...) {
			if !visit(t) {
				return false
			}
			w, s = add(w, weight[t]), add(s, scan[t])
		}
		state[id], weight[id], scan[id] = done, w, s
		return true
	}
	g.bounded = visit(g.root)
	g.weight, g.scan = weight[g.root], scan[g.root]
}

// special reports whether applying n costs more for some values than their size says.
func (n *node) special() bool {
	special := n.unique || n.marks || n.dynamic || n.pattern != nil && n.pattern.size() == 0
	for _, e := range n.patterns {
		special = special || e.pattern.size() == 0
	}
	return special
}

// scan returns the instructions of the patterns of n.
func (n *node) scan() int64 {
	var s int64
	if n.pattern != nil {
		s = n.pattern.size()
	}
	for _, e := range n.patterns {
		s += e.pattern.size()
	}
	return s
}
