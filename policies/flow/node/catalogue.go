package node

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/nearest"
	"github.com/pfar/pfar/policies/toolname"
)

// Catalogue is a flow.Nodes of the nodes that a client may use. It never changes.
type Catalogue struct {
	native []flow.Node
	nodes  []flow.Node // of tools, in the order of names
	names  []toolname.Tool
}

// New makes a catalogue of tools' nodes and of native ones, whose Server is "". silent are servers that the client may
// use and whose tools are not known now: a name that may be of one of their tools finds no other server's.
func New(nodes []flow.Node, silent []string) *Catalogue {
	c := &Catalogue{}
	for _, n := range nodes {
		if n.Server == "" {
			c.native = append(c.native, n)
			continue
		}
		c.nodes = append(c.nodes, n)
		c.names = append(c.names, toolname.Tool{Server: n.Server, Tool: n.Tool, Aliases: n.Aliases})
	}
	for _, s := range silent {
		c.names = append(c.names, toolname.Tool{Server: s})
	}
	c.names = toolname.WithShipped(c.names)
	for i := range c.nodes {
		c.nodes[i].Aliases = c.names[i].Aliases
	}
	return c
}

// All returns all nodes: native ones first, each kind in the order in which they were given.
func (c *Catalogue) All() []flow.Node { return slices.Concat(c.native, c.nodes) }

// Find finds a node by any name that pfar call takes for a tool, or a native one by its own, where - and _ are alike.
// The exact name of a native node goes before every name of a tool, and an alias that an owner gave before the other
// names of native nodes. The error is a *toolname.Error, with what to write instead.
func (c *Catalogue) Find(name string) (*flow.Node, error) {
	for i := range c.native {
		if c.native[i].ID == name {
			return &c.native[i], nil
		}
	}
	m, _, err := toolname.Resolve(c.names, []string{name})
	if err == nil && m.By >= toolname.ByLikeAlias {
		return &c.nodes[m.At], nil
	}
	like := func(other string) bool { return toolname.Alike(other, name) }
	for i := range c.native {
		if n := &c.native[i]; like(n.ID) || slices.ContainsFunc(n.Aliases, like) {
			return n, nil
		}
	}
	if err != nil {
		return nil, c.missing(name, err)
	}
	return &c.nodes[m.At], nil
}

// missing says in terms of nodes why there is none.
func (c *Catalogue) missing(name string, err error) error {
	if silent, ok := errors.AsType[*toolname.Silent](err); ok {
		return &toolname.Error{
			Unknown: true, Text: fmt.Sprintf("no such node now: %q, since %s offers no tools", name, silent.Server),
			Advice: "pfar start " + silent.Server,
		}
	}
	e, ok := errors.AsType[*toolname.Error](err)
	if !ok || !e.Unknown {
		return err
	}
	unknown := &toolname.Error{Unknown: true, Text: fmt.Sprintf("no such node: %q", name), Advice: e.Advice}
	if toolname.Near(c.names, name) != nil {
		return unknown
	}
	unknown.Advice = `"pfar flow nodes" lists the nodes`
	var names []string
	for _, n := range c.native {
		names = append(append(names, n.ID), n.Aliases...)
	}
	if near := nearest.Name(name, names); near != "" {
		unknown.Advice = fmt.Sprintf("did you mean %q?", near)
	}
	return unknown
}
