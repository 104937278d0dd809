// Package check finds what is wrong with a flow before it runs, and makes a plan of one with which nothing is wrong.
package check

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/fit"
	"github.com/pfar/pfar/policies/flow/step"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/toolname"
)

// Bounds of a flow.
const (
	maxSteps    = 256
	maxEdges    = 1024
	maxName     = 128 // bytes of an id, or of a name in the store
	maxProblems = 100
	maxShown    = 60 // characters of a word that a problem repeats
)

// Check returns the plan of a flow, or all that is wrong with it, in the order of places. nodes are those that the
// client may use. Nothing has been called, and nothing in the plan is a result. When ctx is done, Check ends, and says
// that it was given up: nobody wants to know any more.
func Check(ctx context.Context, f flow.Flow, nodes flow.Nodes) (*flow.Plan, []flow.Problem) {
	c := &checker{ctx: ctx, flow: f, nodes: flow.Remember(nodes), at: map[string]int{}}
	if !c.bounded() {
		return nil, c.problems
	}
	c.steps()
	c.edges()
	if c.whole() {
		c.reach()
		c.data()
	}
	if c.givenUp() {
		return nil, []flow.Problem{{Text: "the flow was not checked: whoever asked has hung up", Advice: "Ask again."}}
	}
	slices.SortStableFunc(c.problems, func(a, b flow.Problem) int {
		return cmp.Or(a.At.Line-b.At.Line, a.At.Column-b.At.Column)
	})
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	p := &flow.Plan{Flow: f, Steps: c.planned}
	p.Digest = digest(p)
	return p, nil
}

// checker checks one flow.
type checker struct {
	ctx      context.Context
	flow     flow.Flow
	nodes    flow.Nodes
	planned  []flow.Planned // as Flow.Steps; a step whose node is not known has none
	at       map[string]int // id to the place in planned
	problems []flow.Problem
}

func (c *checker) problem(at flow.At, step, text, advice string) {
	if !c.full() {
		c.problems = append(c.problems, flow.Problem{At: at, Step: step, Text: text, Advice: advice})
	}
}

// givenUp reports whether nobody wants to know any more. What has been found out by then is of no use.
func (c *checker) givenUp() bool { return c.ctx.Err() != nil }

// full reports whether no more problems are told. What would be said of another one need not be found then.
func (c *checker) full() bool { return len(c.problems) >= maxProblems }

// bounded reports whether a flow is of a size that the rest of the check takes.
func (c *checker) bounded() bool {
	f := c.flow
	switch {
	case len(f.Steps) == 0:
		c.problem(flow.At{}, "", "the flow has no steps", "Write at least one.")
	case len(f.Steps) > maxSteps:
		c.problem(flow.At{}, "", fmt.Sprintf("the flow has %d steps, and may have %d", len(f.Steps), maxSteps), "Split it.")
	case len(f.Edges) > maxEdges:
		c.problem(flow.At{}, "", fmt.Sprintf("the flow has %d edges, and may have %d", len(f.Edges), maxEdges), "Split it.")
	case f.Most < 0 || f.Most > flow.MaxMost:
		c.problem(flow.At{}, "", fmt.Sprintf("a run of %d calls is not possible", f.Most),
			fmt.Sprintf("Write a number of steps from 1 to %d.", flow.MaxMost))
	default:
		return true
	}
	return false
}

// whole reports whether every step has a node: else what the steps give to each other is not known.
func (c *checker) whole() bool {
	return len(c.planned) == len(c.flow.Steps) && !slices.ContainsFunc(c.planned,
		func(p flow.Planned) bool { return p.Node == nil })
}

// steps checks each step by itself.
func (c *checker) steps() {
	for i, s := range c.flow.Steps {
		if c.givenUp() {
			return
		}
		s.Reads = maps.Clone(s.Reads)
		p := flow.Planned{Step: s, Node: c.node(s), Next: map[string]int{}}
		first, twice := c.at[s.ID]
		switch {
		case !isID(s.ID):
			c.problem(s.At, s.ID, quote(s.ID)+" is no id of a step",
				fmt.Sprintf("Write at most %d letters, digits and the marks - _ . and /.", maxName))
		case twice:
			c.problem(s.At, s.ID, fmt.Sprintf("%s is the id of two steps, also of the one in line %d", quote(s.ID),
				c.flow.Steps[first].At.Line), "Give one of them an id of its own, and name its node beside it.")
		default:
			c.at[s.ID] = i
		}
		if p.Node != nil {
			c.ports(&p)
		}
		c.planned = append(c.planned, p)
	}
}

// isID reports whether a text can be the id of a step. A person reads it between words of pfar's own, so that no id can
// look like them. Names of tools may have a slash, and a line takes its ids from them.
func isID(s string) bool {
	const marks = "-_./"
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune(marks, r)
	})
}

// isName reports whether a text can be a name in the store: one that can be shown on a line.
func isName(s string) bool {
	return s != "" && len(s) <= maxName && strconv.Quote(s) == `"`+s+`"`
}

// node finds the node of a step, nil if it cannot be called.
func (c *checker) node(s flow.Step) *flow.Node {
	n, err := c.nodes.Find(s.Node)
	if s.Source != "" {
		source, sourceErr := c.nodes.Find(s.Source)
		switch {
		case sourceErr != nil:
		case err != nil:
			n, err = source, nil
		case source.ID != n.ID:
			c.problem(s.At, s.ID, fmt.Sprintf("%s is %s, and its metadata says %s", quote(s.Node), n.ID, source.ID),
				"Correct the one that is wrong.")
			return nil
		}
	}
	switch {
	case err != nil:
		c.problem(s.At, s.ID, err.Error(), advice(err))
		return nil
	case n.Held != "" || n.Pin == "":
		c.problem(s.At, s.ID, fmt.Sprintf("%s is held: %s", n.ID, cmp.Or(n.Held, "nobody has accepted its definition")),
			"pfar pins show "+n.Server)
		return nil
	case s.Version != "" && s.Version != strings.TrimPrefix(n.Version, "v") && s.Version != n.Version:
		has := "says no version"
		if n.Version != "" {
			has = "has version " + quote(n.Version)
		}
		c.problem(s.At, s.ID, fmt.Sprintf("the flow wants version %s of %s, which %s", quote(s.Version), n.ID, has),
			"Look at what has changed, and write the version that it has.")
		return nil
	}
	return n
}

// advice is what the error of a name says to write instead.
func advice(err error) string {
	if e, ok := err.(*toolname.Error); ok {
		return e.Advice
	}
	return ""
}

// ports checks what a step says of its node's inputs, params and outputs.
func (c *checker) ports(p *flow.Planned) {
	n := p.Node
	if n.Open {
		named := step.Named(p.Params)
		if len(named) > step.MaxNamed {
			c.problem(p.At, p.ID, fmt.Sprintf("the texts of the step name more than %d values", step.MaxNamed),
				"Make several steps of it.")
			named = nil
		}
		for _, name := range named {
			if _, ok := p.Reads[name]; !ok {
				p.Reads = with(p.Reads, name, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Params)) {
		port := find(n.Params, name)
		switch {
		case port == nil && find(n.Inputs, name) != nil:
			c.problem(p.At, p.ID, fmt.Sprintf("%s is an input of %s, and stands among the params", quote(name), n.ID),
				"Write it among the inputs.")
		case port == nil:
			c.unknown(p, "param", name, n.Params)
		default:
			c.fits(p, port, p.Params[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Set)) {
		port := find(n.Inputs, name)
		_, read := p.Reads[name]
		switch {
		case port != nil:
			c.fits(p, port, p.Set[name])
		case read: // checked below
		case find(n.Params, name) != nil:
			c.problem(p.At, p.ID, fmt.Sprintf("%s is a param of %s, and stands among the inputs", quote(name), n.ID),
				"Write it among the params.")
		default:
			c.unknown(p, "input", name, n.Inputs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Reads)) {
		if find(n.Inputs, name) == nil && find(n.Params, name) == nil && !n.Open {
			c.unknown(p, "input", name, slices.Concat(n.Inputs, n.Params))
		}
		c.stored(p, p.Reads[name])
	}
	for _, port := range n.Params {
		_, given := p.Params[port.Name]
		if _, read := p.Reads[port.Name]; port.Required && !given && !read && port.Default == nil {
			c.problem(p.At, p.ID, fmt.Sprintf("%s needs the param %s", n.ID, quote(port.Name)),
				fmt.Sprintf("Write params = { %s = ... }, or --%s VALUE.", port.Name, strings.ReplaceAll(port.Name, "_", "-")))
		}
	}
	c.outputs(p)
}

func (c *checker) outputs(p *flow.Planned) {
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(p.Step.Writes)) {
		if find(p.Node.Outputs, name) == nil {
			c.unknown(p, "output", name, p.Node.Outputs)
		}
		c.stored(p, p.Step.Writes[name])
	}
	for _, out := range p.Node.Outputs {
		name := step.Writes(p.Step, out.Name)
		if other, twice := names[name]; twice {
			c.problem(p.At, p.ID, fmt.Sprintf("the outputs %s and %s have the same name in the store, %s", quote(other),
				quote(out.Name), quote(name)), mapOutput(p.ID, out.Name))
		}
		names[name] = out.Name
	}
}

// stored checks a name in the store.
func (c *checker) stored(p *flow.Planned, name string) {
	if !isName(name) {
		c.problem(p.At, p.ID, quote(name)+" is no name in the store",
			fmt.Sprintf("Write at most %d letters, digits and signs.", maxName))
	}
}

func with(m map[string]string, name, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[name] = value
	return m
}

func find(ports []flow.Port, name string) *flow.Port {
	for i := range ports {
		if ports[i].Name == name {
			return &ports[i]
		}
	}
	return nil
}

// unknown reports a name that the node does not have.
func (c *checker) unknown(p *flow.Planned, kind, name string, ports []flow.Port) {
	if c.full() {
		return
	}
	var names []string
	for _, port := range ports {
		names = append(names, port.Name)
	}
	advice := fmt.Sprintf("It has no %s.", kind)
	if near := nearest.Name(name, names); near != "" {
		advice = fmt.Sprintf("Did you mean %s?", quote(near))
	} else if len(names) > 0 {
		advice = "It has " + list(names) + "."
	}
	c.problem(p.At, p.ID, fmt.Sprintf("%s has no %s %s", p.Node.ID, kind, quote(name)), advice)
}

// fits checks a value that the flow says.
func (c *checker) fits(p *flow.Planned, port *flow.Port, value json.RawMessage) {
	if wrong := fit.Value(port.Schema, value); wrong != "" {
		c.problem(p.At, p.ID, fmt.Sprintf("%s does not fit: %s", quote(port.Name), wrong), "")
	}
}

// maxListed bounds how many names a problem lists.
const maxListed = 8

// list writes names for a sentence.
func list(names []string) string { return listed(names, len(names)) }

// listed writes the first of so many names for a sentence.
func listed(names []string, all int) string {
	more := ""
	if n := all - maxListed; n > 0 {
		names, more = names[:maxListed], fmt.Sprintf(" and %d more", n)
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ") + more
}

// quote quotes a name, shortened, with what a terminal would obey as its code.
func quote(s string) string {
	if short := []rune(s); len(short) > maxShown {
		s = string(short[:maxShown]) + "..."
	}
	return strconv.Quote(s)
}

// digest is the SHA-256 of a plan: of its flow, its edges and each node. What a node is called besides makes no
// difference.
func digest(p *flow.Plan) string {
	said := struct {
		Flow  flow.Flow
		Steps []flow.Planned
	}{p.Flow, slices.Clone(p.Steps)}
	for i := range said.Steps {
		n := *said.Steps[i].Node
		n.Aliases = nil
		said.Steps[i].Node = &n
	}
	b, err := json.Marshal(said)
	if err != nil { // a value that is no JSON: the form reads none, and fits finds none that it could check
		panic(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
