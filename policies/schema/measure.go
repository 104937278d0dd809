package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// What one check may cost. A step is the application of a subschema to a part of the value, about 200 ns and, should it
// fail, 350 bytes of error; what takes longer counts as several. Matching is counted apart, as nothing is kept of it.
const (
	maxSteps    = 1 << 18
	maxScan     = 1 << 27 // bytes, times the instructions of the pattern that reads them
	calculation = 3       // steps for a number, which is a fraction of big integers
)

var (
	errSteps = fmt.Errorf("the check takes more than %d steps", maxSteps)
	errScan  = fmt.Errorf("the strings are too long for the patterns")
	errTime  = fmt.Errorf("the patterns take too long")
)

// cost returns an upper bound of the steps that checking tree takes, and an error if a check may not take that many.
// Mostly the value's size says enough. Else a meter walks value and schema together and counts, instead of following
// it, each way in which a part of the value and a subschema can meet: its own work is at most that of the check.
func (g *graph) cost(tree any, d *decoder) (int64, error) {
	bytes := int64(len(d.s))
	if g.bounded {
		most := (2*int64(d.nodes) + bytes/512) * g.weight * int64(1+d.depth/16)
		if most <= maxSteps && bytes*g.scan <= maxScan {
			return most, nil
		}
	}
	m := g.meters.Get().(*meter)
	err := m.measure(tree)
	steps := m.steps
	g.meters.Put(m)
	return steps, err
}

// meter counts the cost of one check.
type meter struct {
	g           *graph
	steps, scan int64
	work        int64         // done by the meter itself
	slow        time.Duration // spent on backtracking patterns
	counts      []int64       // by subschema, all 0 between two parts of a value
	queue       []int32       // the subschemas that are counted, the least last
	met         []meeting
}

// meeting is how often a subschema is applied to a part of the value.
type meeting struct {
	id int32
	n  int64
}

func (m *meter) measure(tree any) error {
	m.steps, m.scan, m.work, m.slow, m.met = 0, 0, 0, 0, m.met[:0]
	m.met = append(m.met, meeting{m.g.root, 1})
	err := m.part(tree, 1, 0)
	if err != nil { // it ended in the middle
		clear(m.counts)
		m.queue = m.queue[:0]
	}
	return err
}

// part counts for a part of the value what meets it, m.met[lo:], and all below.
func (m *meter) part(v any, depth int, lo int) error {
	if err := m.expand(v, depth, lo); err != nil {
		return err
	}
	hi := len(m.met)
	defer func() { m.met = m.met[:lo] }()
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if err := m.member(name, member, depth, lo, hi); err != nil {
				return err
			}
		}
	case []any:
		return m.items(v, depth, lo, hi)
	}
	return nil
}

// expand adds what the subschemas lead to without going deeper, least number first: then each is met once, with the sum
// of the ways that lead to it.
func (m *meter) expand(v any, depth int, lo int) error {
	for _, e := range m.met[lo:] {
		m.push(e.id, e.n)
	}
	m.met = m.met[:lo]
	kind := kindBit(v)
	for len(m.queue) > 0 {
		last := len(m.queue) - 1
		id := m.queue[last]
		m.queue = m.queue[:last]
		count := m.counts[id]
		m.counts[id] = 0
		n := &m.g.nodes[id]
		if err := m.charge(n, count, v, depth); err != nil {
			return err
		}
		if n.kinds&kind == 0 {
			continue
		}
		m.met = append(m.met, meeting{id, count})
		for _, to := range n.same {
			m.push(to, count)
		}
	}
	return nil
}

func (m *meter) push(id int32, n int64) {
	m.work++
	if m.counts[id] == 0 {
		at, _ := slices.BinarySearchFunc(m.queue, id, func(e, id int32) int { return int(id - e) })
		m.queue = slices.Insert(m.queue, at, id)
	}
	m.counts[id] = add(m.counts[id], n)
}

// charge counts the cost of applying n to v count times. The memory of an error grows with the depth.
func (m *meter) charge(n *node, count int64, v any, depth int) error {
	steps := n.weight + int64(depth/16)
	if n.dynamic {
		steps += int64(depth)
	}
	switch v := v.(type) {
	case map[string]any:
		steps += int64(len(v) / 8)
		if m.g.marks {
			steps += int64(len(v))
		}
	case []any:
		if m.g.marks {
			steps += int64(len(v))
		}
		if n.unique {
			steps += size(v)
		}
	case json.Number:
		if n.numeric {
			steps += calculation + int64(len(v)/16)
		}
	case string:
		if n.kinds&isString != 0 {
			steps += int64(len(v) / 512) // the library copies it
		}
	}
	if m.steps = add(m.steps, count*steps); m.steps > maxSteps {
		return errSteps
	}
	if s, ok := v.(string); ok && n.pattern != nil {
		_, err := m.match(n.pattern, s, count)
		return err
	}
	return nil
}

// match counts the cost of matching, count times, and reports whether s matches if that had to be found out.
func (m *meter) match(p pattern, s string, count int64) (bool, error) {
	if b, ok := p.(*backtracking); ok {
		matched, took, err := timed(b, s, count)
		if m.slow += took; err == nil && m.slow > checkTime {
			err = errTime
		}
		m.steps = add(m.steps, 8*count)
		return matched, err
	}
	if m.scan += count * p.size() * int64(len(s)); m.scan > maxScan {
		return false, errScan
	}
	if m.steps = add(m.steps, count); m.steps > maxSteps {
		return false, errSteps
	}
	return false, nil
}

// timed matches once, and returns how long count times would take. What looks long is tried again: on a busy machine
// another program may have run in between.
func timed(b *backtracking, s string, count int64) (matched bool, took time.Duration, err error) {
	const short = 10 * time.Millisecond
	for i := range 3 {
		start := time.Now()
		if matched, err = b.try(s); err != nil {
			return false, 0, err
		}
		once := time.Since(start) * time.Duration(count)
		if i == 0 || once < took {
			took = once
		}
		if took < short {
			break
		}
	}
	return matched, took, nil
}

func (m *meter) member(name string, v any, depth, lo, hi int) error {
	start := len(m.met)
	for i := lo; i < hi; i++ {
		e := m.met[i]
		n := &m.g.nodes[e.id]
		if n.names != none {
			m.met = append(m.met, meeting{n.names, e.n})
		}
	}
	if len(m.met) > start {
		if err := m.part(name, depth+1, start); err != nil {
			return err
		}
	}
	for i := lo; i < hi; i++ {
		if err := m.property(m.met[i], name); err != nil {
			return err
		}
	}
	if len(m.met) == start {
		return nil
	}
	return m.part(v, depth+1, start)
}

// property adds what e leads to for the member of that name.
func (m *meter) property(e meeting, name string) error {
	m.work++
	n := &m.g.nodes[e.id]
	to, evaluated := n.props[name]
	if evaluated {
		m.met = append(m.met, meeting{to, e.n})
	}
	for _, p := range n.patterns {
		matched, err := m.match(p.pattern, name, e.n)
		if err != nil {
			return err
		}
		if l, ok := p.pattern.(*linear); ok {
			matched = l.MatchString(name)
		}
		if matched {
			evaluated = true
			m.met = append(m.met, meeting{p.to, e.n})
		}
	}
	if evaluated {
		return nil
	}
	if n.other != none {
		m.met = append(m.met, meeting{n.other, e.n})
		return nil
	}
	if n.uneval != none {
		m.met = append(m.met, meeting{n.uneval, e.n})
	}
	return nil
}

func (m *meter) items(list []any, depth, lo, hi int) error {
	longest, toAll := 0, false
	for i := lo; i < hi; i++ { // only what looks at items: the library does not go over them for the others
		n := &m.g.nodes[m.met[i].id]
		if all := n.items != none || n.contains != none || n.unevalIt != none; all || len(n.prefix) > 0 {
			m.met = append(m.met, m.met[i])
			longest, toAll = max(longest, len(n.prefix)), toAll || all
		}
	}
	lo, hi = hi, len(m.met)
	if !toAll {
		list = list[:min(longest, len(list))]
	}
	for i, item := range list {
		for j := lo; j < hi; j++ {
			m.item(m.met[j], i)
		}
		if err := m.part(item, depth+1, hi); err != nil {
			return err
		}
	}
	return nil
}

// item adds what e leads to for the item with that index.
func (m *meter) item(e meeting, i int) {
	m.work++
	n := &m.g.nodes[e.id]
	to := n.unevalIt
	if i < len(n.prefix) {
		to = n.prefix[i]
	} else if n.items != none {
		to = n.items
	}
	for _, id := range [...]int32{to, n.contains} {
		if id != none {
			m.met = append(m.met, meeting{id, e.n})
		}
	}
}

func kindBit(v any) uint8 {
	switch v.(type) {
	case nil:
		return isNull
	case bool:
		return isBool
	case json.Number:
		return isNumber
	case string:
		return isString
	case []any:
		return isArray
	}
	return isObject
}

// size returns the number of values in v, long strings counted as several.
func size(v any) int64 {
	n := int64(1)
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += size(item)
		}
	case map[string]any:
		for name, member := range v {
			n += 1 + int64(len(name)/512) + size(member)
		}
	case string:
		n += int64(len(v) / 512)
	}
	return n
}
