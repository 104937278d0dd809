package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (c *cli) toolsCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:               "tools [NAME]",
		Short:             "List the tools that the servers offer",
		Example:           example("pfar tools", "pfar tools notion --json | jq '.[].inputSchema'"),
		Args:              arguments("[NAME]"),
		ValidArgsFunction: c.completeServers(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := c.openGateway(cmd.Context())
			if err != nil {
				return err
			}
			defer g.close()
			tools, err := g.tools(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if tools, err = c.toolsOf(cmd, tools, args[0]); err != nil {
					return err
				}
			}
			return c.printTools(tools)
		},
	})
}

// toolsOf keeps one server's tools. A server without tools is not an error if pfard knows it.
func (c *cli) toolsOf(cmd *cobra.Command, tools []tool, server string) ([]tool, error) {
	var names []string
	for _, t := range tools {
		names = append(names, t.Meta.Server)
	}
	tools = slices.DeleteFunc(tools, func(t tool) bool { return t.Meta.Server != server })
	if len(tools) > 0 {
		return tools, nil
	}
	if report, err := c.report(cmd.Context()); err == nil {
		for _, s := range report.Servers {
			if s.Name == server {
				return nil, fail(exitFailed, "%s has no tools: it is %s", server, describe(s))
			}
			names = append(names, s.Name)
		}
	}
	return nil, noSuch("server", server, names)
}

func (c *cli) printTools(tools []tool) error {
	slices.SortFunc(tools, func(a, b tool) int { return strings.Compare(a.id(), b.id()) })
	if c.json() {
		if tools == nil {
			tools = []tool{}
		}
		return c.printJSON(tools)
	}
	if len(tools) == 0 {
		fmt.Fprintln(c.stderr, "no tools")
		return nil
	}
	rows := [][]cell{heading("TOOL", "LABEL", "DESCRIPTION")}
	for _, t := range tools {
		rows = append(rows, []cell{{t.id(), ""}, {t.Meta.Label, ""}, {summary(t.Description, 80), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

// summary is the first sentence or line of a text, at most width characters long.
func summary(s string, width int) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i]
	}
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > width {
		s = strings.TrimSpace(string(r[:width-1])) + "…"
	}
	return s
}
