package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
)

// completeFlow completes a flow of flows.d, a file or a node, and behind a node its flags.
func (v flowClient) completeFlow(
	cmd *cobra.Command, words []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := forShell(cmd)
	defer cancel()
	between := func(w string) bool { return w == "+" || w == ">>" }
	step := words
	for i, w := range words {
		if between(w) {
			step = words[i+1:]
		}
	}
	a, err := v.askFlows(ctx, flows.Order{Verb: flows.Nodes}, access.Default)
	if len(step) == 0 {
		names := nodeNames(a.Nodes, typed)
		if len(words) == 0 {
			return append(v.offeredFlows(ctx, typed), names...), cobra.ShellCompDirectiveDefault
		}
		return names, noFiles
	}
	if err != nil {
		return nil, noFiles
	}
	n, err := node.New(a.Nodes, nil).Find(step[0])
	if err != nil {
		return nil, noFiles
	}
	return nodeFlags(n, step[1:], typed)
}

// offeredFlows are the flows of flows.d.
func (v flowClient) offeredFlows(ctx context.Context, typed string) []string {
	entries, _ := os.ReadDir(v.located(ctx, sources{}).flows()) // none are offered that cannot be read
	var names []string
	for _, e := range entries {
		name, ext := e.Name(), filepath.Ext(e.Name())
		if ext == "."+form.HCL || ext == "."+form.JSON {
			name = strings.TrimSuffix(name, ext)
			if strings.HasPrefix(name, typed) && visible.ShellSafe(name) {
				names = append(names, completion(name, "flow"))
			}
		}
	}
	return names
}

// nodeNames are the names of nodes that begin with what was typed.
func nodeNames(nodes []flow.Node, typed string) []string {
	var names []string
	for _, n := range nodes {
		for _, name := range append([]string{n.ID}, n.Aliases...) {
			if strings.HasPrefix(name, typed) && visible.ShellSafe(name) {
				names = append(names, completion(name, summary(n.Description, 60)))
			}
		}
	}
	return names
}

// nodeFlags are the flags of a node that are not there yet, or the values of the last one.
func nodeFlags(n *flow.Node, rest []string, typed string) ([]string, cobra.ShellCompDirective) {
	properties := map[string]property{}
	var names []string
	for _, p := range slices.Concat(n.Inputs, n.Params) {
		flag := strings.ReplaceAll(p.Name, "_", "-")
		if p.Own || !usableFlag.MatchString(flag) {
			continue
		}
		one := property{Property: argument.Of(p.Name, p.Schema), flag: flag}
		properties["--"+flag] = one
		if !slices.Contains(rest, "--"+flag) || one.Kind == argument.Array {
			names = append(names, completion("--"+flag, summary(p.Description, 60)))
		}
	}
	if flag, _, ok := strings.Cut(typed, "="); ok {
		return values(properties[flag], flag+"="), noFiles
	}
	if len(rest) > 0 {
		if p, ok := properties[rest[len(rest)-1]]; ok && p.Kind != argument.Boolean {
			return values(p, ""), noFiles
		}
	}
	return names, noFiles
}
