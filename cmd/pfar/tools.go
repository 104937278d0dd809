package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/toolname"
	"github.com/spf13/cobra"
)

const toolsHelp = `List the tools of all servers, of the server NAME, or one TOOL of it.

If you are the operator, each tool has its facts. DOES says whether a call only reads. PIN says who has reviewed the
definition. FROM is the source of the facts: the owner's declaration, a policy, the service, the sandbox, or the
server's accepted hint. "unknown" means that the gate assumes the worst. A terminal of 120 columns, a file or a
pipe has three more columns. OUTPUT says how secret the result is, and who may have written it. AUDIENCE is the
most secret data that may go into a call. EFFECT is what a call changes. "pfar describe" says more about one tool.

--search keeps tools whose names or descriptions contain all words of TEXT, in any case. --filter keeps those that
read or write, or lists the tools that pfar holds until you accept them.

In place of NAME TOOL you can write NAME.TOOL, or any other name that "pfar call" takes.`

func (c toolsVerb) toolsCommand() *cobra.Command {
	var wanted toolFilter
	cmd := c.outputFlag(&cobra.Command{
		Use:   "tools [NAME] [TOOL]",
		Short: "List the tools that the servers offer",
		Long:  toolsHelp,
		Example: example("pfar tools", "pfar tools --search 'create issue'", "pfar tools notion --filter write",
			"pfar tools notion --json | jq '.[].inputSchema'"),
		ValidArgsFunction: c.completeTools,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.list(cmd.Context(), args, wanted) },
	})
	wanted.flags(cmd)
	return cmd
}

func (c toolsVerb) list(ctx context.Context, args []string, wanted toolFilter) error {
	if err := wanted.check(args); err != nil {
		return err
	}
	known := c.facts(ctx)
	if wanted.does == "held" {
		tools, err := c.heldDefinitions(ctx, args)
		if err != nil {
			return err
		}
		return c.printTools(wanted.of(tools, known), known)
	}
	g, tools, err := c.openTools(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	if len(args) > 0 {
		if tools, err = c.toolsOf(ctx, tools, args); err != nil {
			return err
		}
	}
	return c.printTools(wanted.of(tools, known), known)
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
	columns := widthOf(c.stdout)
	c.table(c.stdout, toolRows(tools, known, columns))
	return nil
}

// wideTools is how many columns a terminal needs for all facts.
const wideTools = 120

// toolRows is the table of tools for so many columns, 0 for as many as it takes.
func toolRows(tools []tool, known facts, columns int) [][]cell {
	names := listedOf(tools)
	rows := [][]cell{slices.Concat(heading("TOOL"), known.heading(), heading("DESCRIPTION"))}
	for _, t := range tools {
		rows = append(rows, slices.Concat([]cell{{t.id(), ""}}, known.cells(t), []cell{{summary(t.Description, 200), ""}}))
	}
	narrow := known != nil && columns > 0 && columns < wideTools
	named := slices.ContainsFunc(names, func(t toolname.Tool) bool { return len(t.Aliases) > 0 })
	for i, row := range rows {
		if narrow {
			row = slices.Delete(row, len(row)-1-factColumns, len(row)-1)
		}
		switch {
		case named && i == 0:
			row = slices.Insert(row, 1, heading("ALIAS")...)
		case named:
			row = slices.Insert(row, 1, cell{strings.Join(names[i-1].Aliases, ", "), ""})
		}
		rows[i] = row
	}
	return rows
}
