package main

import (
	"context"
	"io"
	"slices"

	"github.com/pfar/pfar/policies/toolname"
	"github.com/spf13/pflag"
)

// toolsVerb lists tools, and calls them.
type toolsVerb struct{ *pfar }

// openTools begins a session with the gateway and lists the tools. The caller closes the session.
func (c toolsVerb) openTools(ctx context.Context) (*gateway, []tool, error) {
	g, err := c.openGateway(ctx)
	if err != nil {
		return nil, nil, plainly(err)
	}
	tools, err := g.tools(ctx)
	if err != nil {
		g.close()
		return nil, nil, plainly(err)
	}
	return g, tools, nil
}

// findTool finds the tool that the words name, and the words that follow. What no tool has as its exact name could be
// meant for a server that does not run, or for a tool that is held back, so pfard and the gateway are asked which these
// are: a name must not lead to another tool because its own is not there.
func (c toolsVerb) findTool(ctx context.Context, tools []tool, words []string) (tool, []string, error) {
	names := listedOf(tools)
	m, rest, err := resolve(names, words)
	if err == nil && m.By == toolname.ByIdentity || len(words) == 0 || c.persona.client != "" { // what a client may not use is not there for it
		return at(tools, m, err), rest, err
	}
	report, reportErr := c.report(ctx)
	if reportErr == nil {
		for _, s := range report.Servers {
			if !slices.ContainsFunc(tools, func(t tool) bool { return t.Meta.Server == s.Name }) {
				names = append(names, toolname.Tool{Server: s.Name})
			}
		}
		m, rest, err = resolve(names, words)
	}
	err = c.explainMissing(ctx, words, m, err, report)
	return at(tools, m, err), rest, err
}

// at returns what was matched, if nothing went wrong.
func at(tools []tool, m toolname.Match, err error) tool {
	if err != nil {
		return tool{}
	}
	return tools[m.At]
}

// toolsOfServer keeps the tools of the server that is called name, - and _ alike.
func toolsOfServer(tools []tool, name string) []tool {
	var of []tool
	for _, t := range tools {
		if toolname.Alike(t.Meta.Server, name) {
			of = append(of, t)
		}
	}
	return of
}

// callOptions are the flags of pfar call itself.
type callOptions struct {
	help  bool
	whole string
}

// callFlags makes the flags of pfar call itself.
func (c toolsVerb) callFlags() (*pflag.FlagSet, *callOptions) {
	options := &callOptions{}
	flags := pflag.NewFlagSet("call", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	flags.StringVar(&options.whole, "json", "", "all arguments as JSON, as @FILE, or - for standard input")
	flags.VarP((*outputFormat)(&c.output), "output", "o", `form of the output, "text" or "json"`)
	flags.BoolVarP(&options.help, "help", "h", false, "show the tool's flags")
	return flags, options
}
