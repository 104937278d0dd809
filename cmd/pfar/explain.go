package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
)

// factsOf returns the facts of a server's tools in words, each with who says it. Tools with the same facts stand
// together. It returns "" if the gateway is not running, does not tell this user, or knows no tool of the server.
func (c toolsVerb) factsOf(ctx context.Context, server string) string {
	tools := map[gate.Facts][]string{}
	var order []gate.Facts
	known := c.facts(ctx)
	for _, k := range known {
		if k.Server != server {
			continue
		}
		if tools[k.Facts] == nil {
			order = append(order, k.Facts)
		}
		tools[k.Facts] = append(tools[k.Facts], k.Tool)
	}
	for _, names := range tools {
		slices.Sort(names)
	}
	slices.SortFunc(order, func(a, b gate.Facts) int { return strings.Compare(tools[a][0], tools[b][0]) })
	if len(order) == 0 {
		return ""
	}
	b := page{columns: columnsOf(c.stdout)}
	b.WriteString("\nThe gate goes by these facts of its tools now, each with its source:\n")
	for _, f := range order {
		b.line("  ", escape(strings.Join(tools[f], ", "), oneLine))
		for _, line := range c.tableLines(c.stdout, factRows("    ", f), b.columns) {
			fmt.Fprintln(&b, line)
		}
		if f.Forbidden != "" {
			b.line("    forbidden: ", escape(f.Forbidden, oneLine))
		}
	}
	return b.String()
}
