package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/cmd/pfard/control"
)

// completionTimeout bounds what a shell waits for after Tab. Completion says nothing when pfar is down.
const completionTimeout = 800 * time.Millisecond

const noFiles = cobra.ShellCompDirectiveNoFileComp

type completer = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeServers completes the names of servers, for verbs that take at most that many.
func (c *cli) completeServers(most int) completer {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTimeout)
		defer cancel()
		report, err := c.report(ctx)
		if err != nil {
			return nil, noFiles
		}
		var names []string
		for _, s := range report.Servers {
			names = append(names, completion(s.Name, describe(s)))
		}
		return names, noFiles
	}
}

func (c *cli) completeKeys(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTimeout)
	defer cancel()
	r, err := c.control().Do(ctx, control.Request{Verb: control.Secrets})
	if err != nil {
		return nil, noFiles
	}
	return r.Secrets, noFiles
}

// completeCall completes NAME.TOOL and then the tool's flags and their values.
func (c *cli) completeCall(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTimeout)
	defer cancel()
	before, _ := c.callFlags()
	before.SetInterspersed(false)
	if before.Parse(args) != nil {
		return nil, cobra.ShellCompDirectiveDefault // the value of one of pfar's flags; --json takes a file
	}
	if before.NArg() == 0 && strings.HasPrefix(toComplete, "-") {
		return ownCompletions(), noFiles
	}
	g, err := c.openGateway(ctx)
	if err != nil {
		return nil, noFiles
	}
	defer g.close()
	tools, err := g.tools(ctx)
	if err != nil {
		return nil, noFiles
	}
	if before.NArg() == 0 {
		return completeTools(tools, func(t tool) string { return t.id() }), noFiles
	}
	server, name, rest, err := splitTool(before.Args())
	if err != nil {
		ofServer := slices.DeleteFunc(tools, func(t tool) bool { return t.Meta.Server != before.Arg(0) })
		return completeTools(ofServer, func(t tool) string { return t.Meta.Tool }), noFiles
	}
	i := slices.IndexFunc(tools, func(t tool) bool { return t.Meta.Server == server && t.Meta.Tool == name })
	if i < 0 {
		return nil, noFiles
	}
	return completeFlags(readProperties(tools[i].InputSchema), rest, toComplete)
}

func completeTools(tools []tool, name func(tool) string) []string {
	var all []string
	for _, t := range tools {
		if shellSafe(t.Meta.Tool) {
			all = append(all, completion(name(t), summary(t.Description, 60)))
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
		if p, ok := byFlag[last]; ok && p.kind != kindBoolean {
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
		if p.flag != "" && (p.kind == kindArray || !slices.Contains(rest, "--"+p.flag)) {
			all = append(all, completion("--"+p.flag, p.remarks()))
		}
	}
	return append(all, ownCompletions()...), noFiles
}

func values(p property, prefix string) []string {
	texts := enumTexts(p.enum)
	if p.kind == kindBoolean {
		texts = []string{"true", "false"}
	}
	texts = slices.DeleteFunc(texts, func(s string) bool { return !shellSafe(s) })
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

// shellSafe reports whether a server's word may stand on the operator's command line: a completion is inserted
// unquoted, so a tool named "x;reboot" must not be offered.
func shellSafe(s string) bool {
	return s != "" && !strings.HasPrefix(s, "-") && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/:@+,", r))
	})
}

// completion joins a word and its description as cobra's scripts split them.
func completion(word, description string) string {
	description = strings.ReplaceAll(escape(summary(description, 60), oneLine), `\t`, " ")
	if description == "" {
		return word
	}
	return word + "\t" + description
}
