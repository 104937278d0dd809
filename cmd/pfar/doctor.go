package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
)

const doctorHelp = `Check whether this machine can run servers in sandboxes, and say what to do where it cannot.

If root runs this, it tests the sandbox as an unprivileged user, like the servers. If a check fails, the exit
code is 1. A warning means that pfar runs with less protection. n/a means that the check does not concern
this machine, or not yet.`

// doctorVerb finds what is missing on this machine.
type doctorVerb struct{ *pfar }

func (c doctorVerb) doctorCommand() *cobra.Command {
	var listen string
	var page uint16
	cmd := c.outputFlag(&cobra.Command{
		Use:   "doctor",
		Short: "Check whether this machine can run pfar",
		Long:  doctorHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.printFindings(c.diagnose(cmd.Context(), c.thisHost(), listen, page))
		},
	})
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:7417", "`ADDRESS` of the MCP endpoint")
	cmd.Flags().Uint16Var(&page, "page-port", 0, "`PORT` of one-time pages; 0 for one that is free")
	return cmd
}

// diagnose runs every check, each by itself: one that fails explains nothing about the next.
func (c doctorVerb) diagnose(ctx context.Context, h host, listen string, page uint16) []finding {
	checks := []func(context.Context) finding{
		h.bubblewrap, h.bindFD, h.nestedNamespaces, h.namespaceLimit, h.namespaceSwitch, h.apparmor, h.emptySandbox,
		h.userUnitSandbox, h.ownViews,
		h.nftables, h.cgroups, h.oneUser, h.hostFirewall, h.lingering, h.node,
		func(context.Context) finding { return h.vaultKey(c.own.State) },
		func(context.Context) finding { return h.auditFiles(c.own.Audit()) },
		func(context.Context) finding {
			beside := []string{c.own.Clients(), c.own.Policies(), c.own.Models(), control.ChatFiles(c.own)}
			return obeyed(append(c.own.Folders(c.own.Config), beside...)...)
		},
		func(context.Context) finding { return h.runDirectory(c.own.Run) },
		func(ctx context.Context) finding {
			return h.port(listen, func() (control.Report, error) { return c.report(ctx) })
		},
		func(context.Context) finding { return pages(h, page) },
		func(ctx context.Context) finding {
			return leftoverCheck(func() (control.Report, error) { return c.report(ctx) })
		},
		func(ctx context.Context) finding {
			return chatCheck(func() (control.Report, error) { return c.report(ctx) })
		},
		func(ctx context.Context) finding {
			report, _ := c.report(ctx) // without one there are no servers
			return noticesCheck(noticesOf(ctx, c.pfar, report))
		},
	}
	findings := make([]finding, len(checks))
	for i, check := range checks {
		findings[i] = check(ctx)
		if findings[i].Outcome == "" {
			findings[i].Outcome = fault
		}
	}
	return findings
}

func (c doctorVerb) printFindings(findings []finding) error {
	var failed int
	rows := make([][]cell, 0, len(findings))
	for _, f := range findings {
		colour := map[outcome]string{pass: green, warn: yellow, fault: red}[f.Outcome]
		rows = append(rows, []cell{{string(f.Outcome), colour}, {f.Check, ""}, {f.Detail, ""}})
		if f.Outcome == fault {
			failed++
		}
	}
	if c.json() {
		if err := c.printJSON(findings); err != nil {
			return err
		}
	} else {
		c.table(c.stdout, rows)
		for _, f := range findings {
			if f.Remedy != "" {
				fmt.Fprintf(c.stdout, "\n%s\n%s\n", c.paint(c.stdout, bold, f.Check+":"), indent(escape(f.Remedy, keepLines), "  "))
			}
		}
	}
	if failed > 0 {
		return fail(exitFailed, "%s failed", plural.Count(failed, "check"))
	}
	return nil
}
