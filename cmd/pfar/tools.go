package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const toolsHelp = `List the tools of all servers, of the server NAME, or one TOOL of it.

If you are the operator, each tool has its facts. OUTPUT is how secret its result is, and who may have written it.
AUDIENCE is the most secret data that may go into it. EFFECT is what a call changes. FROM is the source of the facts: the
owner's declaration, a policy, the service, or the server's accepted hint. "unknown" means that the gate assumes the worst.

NAME.TOOL works too, and so does any other name that "pfar call" takes.`

func (c toolsVerb) toolsCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:               "tools [NAME] [TOOL]",
		Short:             "List the tools that the servers offer",
		Long:              toolsHelp,
		Example:           example("pfar tools", "pfar tools notion --json | jq '.[].inputSchema'"),
		ValidArgsFunction: c.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			g, tools, err := c.openTools(cmd.Context())
			if err != nil {
				return err
			}
			defer g.close()
			if len(args) > 0 {
				if tools, err = c.toolsOf(cmd.Context(), tools, args); err != nil {
					return err
				}
			}
			return c.printTools(tools, c.facts(cmd.Context()))
		},
	})
}

// toolsOf keeps one server's tools, or one tool. A server without tools is not an error of its name if pfard knows it.
func (c toolsVerb) toolsOf(ctx context.Context, tools []tool, words []string) ([]tool, error) {
	if len(words) == 1 {
		if of := toolsOfServer(tools, words[0]); len(of) > 0 {
			return of, nil
		}
	}
	t, rest, err := c.findTool(ctx, tools, words)
	switch {
	case err == nil && len(rest) > 0:
		return nil, usage("unexpected argument %q", rest[0]).withHint("pfar tools NAME")
	case err == nil:
		return []tool{t}, nil
	}
	if code, _ := classify(err); code != exitNoSuch || len(words) > 1 {
		return nil, err
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Meta.Server)
	}
	if report, reportErr := c.report(ctx); reportErr == nil {
		for _, s := range report.Servers {
			names = append(names, s.Name)
		}
	}
	if nearestName(words[0], names) != "" {
		return nil, noSuchServer(words[0], names)
	}
	return nil, err
}

func (c toolsVerb) printTools(tools []tool, known facts) error {
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(a.id(), b.id()) })
	if c.json() {
		return c.printJSON(known.with(tools))
	}
	if len(tools) == 0 {
		fmt.Fprintln(c.stderr, "no tools")
		return nil
	}
	names := listedOf(tools)
	rows := [][]cell{slices.Concat(heading("TOOL"), known.heading(), heading("DESCRIPTION"))}
	named := slices.ContainsFunc(names, func(t listed) bool { return len(t.aliases) > 0 })
	if named {
		rows[0] = slices.Insert(rows[0], 1, heading("ALIAS")...)
	}
	for i, t := range tools {
		row := slices.Concat([]cell{{t.id(), ""}}, known.cells(t), []cell{{summary(t.Description, 200), ""}})
		if named {
			row = slices.Insert(row, 1, cell{strings.Join(names[i].aliases, ", "), ""})
		}
		rows = append(rows, row)
	}
	c.table(c.stdout, rows)
	return nil
}
