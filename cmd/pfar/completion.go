package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/visible"
)

// completeCall completes NAME.TOOL and then the tool's flags and their values.
func (c toolsVerb) completeCall(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := forShell(cmd)
	defer cancel()
	before, _ := c.callFlags()
	c.persona.flags(before)
	before.SetInterspersed(false)
	if before.Parse(args) != nil { // the value of one of pfar's flags is missing
		if args[len(args)-1] == "--client" {
			return offer(c.offeredClients)(cmd, args, toComplete)
		}
		return nil, cobra.ShellCompDirectiveDefault // --json takes a file
	}
	if before.NArg() == 0 && strings.HasPrefix(toComplete, "-") {
		var names []string
		before.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
		return names, noFiles
	}
	tools, ok := c.listForShell(ctx)
	if !ok {
		return nil, noFiles
	}
	if before.NArg() == 0 {
		return completeNames(tools, toComplete), noFiles
	}
	m, rest, err := resolve(listedOf(tools), before.Args())
	switch {
	case err == nil:
		return completeFlags(readProperties(tools[m.At].InputSchema), rest, toComplete)
	case before.NArg() == 1:
		return completeToolsOf(tools, before.Arg(0)), noFiles
	}
	return nil, noFiles
}

// completeTools completes what pfar tools takes: a server and a tool of it, or any name of a tool.
func (c toolsVerb) completeTools(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, noFiles
	}
	ctx, cancel := forShell(cmd)
	defer cancel()
	var servers []string
	if len(args) == 0 {
		servers, _ = c.offeredServers(ctx)
		if toComplete == "" {
			return servers, noFiles
		}
	}
	tools, ok := c.listForShell(ctx)
	switch {
	case !ok:
		return servers, noFiles
	case len(args) == 1:
		return completeToolsOf(tools, args[0]), noFiles
	}
	return append(servers, completeNames(tools, toComplete)...), noFiles
}

// listForShell lists the tools, or says nothing of why it cannot.
func (c toolsVerb) listForShell(ctx context.Context) ([]tool, bool) {
	g, tools, err := c.openTools(ctx)
	if err != nil {
		return nil, false
	}
	g.close()
	return tools, true
}

// completeNames completes any way to write a tool that begins with what was typed and names no other tool. That is
// found by counting: to resolve each would take a time that is the square of their number.
func completeNames(tools []tool, typed string) []string {
	names := listedOf(tools)
	meant := map[string]int{}
	for _, t := range names {
		of := map[string]bool{} // each once, however many ways of writing the tool are alike
		for _, name := range slices.Concat([]string{t.ID(), t.Wire()}, t.Forms(), t.Aliases) {
			of[strings.ReplaceAll(name, "_", "-")] = true
		}
		for name := range of {
			meant[name]++
		}
	}
	var all []string
	for i, t := range names {
		for _, name := range t.Spelt(typed) {
			if visible.ShellSafe(name) && (name == t.ID() || meant[strings.ReplaceAll(name, "_", "-")] == 1) {
				all = append(all, completion(name, summary(tools[i].Description, 60)))
			}
		}
	}
	return all
}

func completeToolsOf(tools []tool, server string) []string {
	var all []string
	for _, t := range toolsOfServer(tools, server) {
		if visible.ShellSafe(t.Meta.Tool) {
			all = append(all, completion(t.Meta.Tool, summary(t.Description, 60)))
		}
	}
	return all
}

// completeFlags completes what can follow the flags that are there already.
func completeFlags(properties []property, rest []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	byFlag := map[string]property{}
	for _, p := range properties {
		if p.flag != "" {
			byFlag["--"+p.flag] = p
		}
	}
	if flag, _, ok := strings.Cut(toComplete, "="); ok {
		return values(byFlag[flag], flag+"="), noFiles
	}
	if len(rest) > 0 {
		last := rest[len(rest)-1]
		if p, ok := byFlag[last]; ok && p.Kind != argument.Boolean {
			return values(p, ""), noFiles
		}
		switch last {
		case "--json":
			return nil, cobra.ShellCompDirectiveDefault
		case "--output", "-o":
			return []string{"text", "json"}, noFiles
		}
	}
	var all []string
	for _, p := range properties {
		if p.flag != "" && (p.Kind == argument.Array || !slices.Contains(rest, "--"+p.flag)) {
			all = append(all, completion("--"+p.flag, p.remarks()))
		}
	}
	return append(all, ownCompletions()...), noFiles
}

func values(p property, prefix string) []string {
	texts := argument.EnumTexts(p.Enum)
	if p.Kind == argument.Boolean {
		texts = []string{"true", "false"}
	}
	texts = slices.DeleteFunc(texts, func(s string) bool { return !visible.ShellSafe(s) })
	for i := range texts {
		texts[i] = prefix + texts[i]
	}
	return texts
}

func ownCompletions() []string {
	var own []string
	for _, name := range ownFlags() {
		own = append(own, "--"+name)
	}
	return own
}
