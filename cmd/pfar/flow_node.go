package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/toolname"
)

// nativeNamed is the native node that a word names, nil for none.
func nativeNamed(nodes []flow.Node, word string) *flow.Node {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n flow.Node) bool { return n.Server != "" })
	n, err := node.New(nodes, nil).Find(word)
	if err != nil {
		return nil
	}
	return n
}

// nodeOfTool is the node of a tool, nil for none.
func nodeOfTool(nodes []flow.Node, t toolname.Tool) *flow.Node {
	for i := range nodes {
		if nodes[i].Server == t.Server && nodes[i].Tool == t.Tool {
			return &nodes[i]
		}
	}
	return nil
}

// nodeLines say what a node reads and writes, one port on each line. Names and descriptions of a tool's ports are its
// server's words.
func nodeLines(n *flow.Node) []string {
	var lines []string
	port := func(head, said string, p flow.Port) {
		if said != "" {
			head += " (" + said + ")"
		}
		if p.Description != "" {
			head += " - " + strings.Join(strings.Fields(p.Description), " ")
		}
		lines = append(lines, head)
	}
	for _, p := range n.Inputs {
		var notes []string
		if !p.Required {
			notes = append(notes, "optional")
		}
		if p.Piped {
			notes = append(notes, "or the result of the step before")
		}
		port(fmt.Sprintf("Reads: shared[%q]", p.Name), strings.Join(notes, ", "), p)
	}
	if n.Open {
		lines = append(lines, "Reads: shared[NAME] for each {{NAME}} in its params")
	}
	for _, p := range n.Outputs {
		port(fmt.Sprintf("Writes: shared[%q]", p.Name), "", p)
	}
	for _, p := range n.Params {
		said := ""
		switch {
		case p.Default != nil:
			said = "default " + string(p.Default)
		case p.Required:
			said = "required"
		}
		port("Params: "+p.Name, said, p)
	}
	lines = append(lines, "Actions: "+strings.Join(n.Actions, ", "))
	if n.Pure {
		lines = append(lines, "Purity: flow-safe: the owner says that the same inputs give the same result")
	}
	if n.Server != "" {
		source := n.Server + "/" + n.Tool
		if n.Version != "" {
			source += " v" + strings.TrimPrefix(n.Version, "v")
		}
		lines = append(lines, "MCP Source: "+source)
	}
	if n.Held != "" {
		lines = append(lines, "Held: "+n.Held)
	}
	return lines
}

// printNative prints a native node.
func (v flowPrinter) printNative(n *flow.Node) error {
	if v.json() {
		return v.printJSON(n)
	}
	b := page{columns: columnsOf(v.stdout)}
	b.line("", escape(n.ID, oneLine)+", one of pfar's own nodes")
	b.line("  ", escape(n.Description, oneLine))
	if len(n.Aliases) > 0 {
		b.line("  also called ", escape(strings.Join(n.Aliases, ", "), oneLine))
	}
	b.WriteString("\nInterface:\n")
	for _, line := range nodeLines(n) {
		b.line("  ", escape(line, oneLine))
	}
	fmt.Fprint(v.stdout, b.trimmed())
	return nil
}
