package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

// statusVerb shows the state of servers.
type statusVerb struct{ *pfar }

func (c statusVerb) statusCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:               "status [NAME]",
		Short:             "Show the servers, broken declarations and what does not hold on this host",
		Example:           example("pfar status", "pfar status notion --json"),
		Args:              arguments("[NAME]"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := c.report(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				s, err := findServer(report, args[0])
				if err != nil {
					return err
				}
				return c.printServer(s, report.Version)
			}
			if c.json() {
				return c.printJSON(report)
			}
			c.printReport(report)
			return nil
		},
	})
}

// report asks pfard for all that it knows.
func (c *pfar) report(ctx context.Context) (control.Report, error) {
	r, err := c.control().Do(ctx, control.Request{Verb: control.Status})
	if err != nil {
		return control.Report{}, err
	}
	if r.Status == nil {
		return control.Report{}, errors.New("pfard answered without a report: pfar and pfard may be of different versions")
	}
	return *r.Status, nil
}

func findServer(report control.Report, name string) (control.Server, error) {
	var names []string
	for _, s := range report.Servers {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return control.Server{}, noSuch("server", name, names)
}

// printReport prints the table of the servers and, below it, what is wrong.
func (c statusVerb) printReport(report control.Report) {
	if len(report.Servers) == 0 {
		fmt.Fprintf(c.stdout, "no servers declared in %s\n", escape(report.Directory, oneLine))
	} else {
		c.table(c.stdout, c.serverRows(report.Servers))
	}
	for _, d := range report.Diagnostics {
		fmt.Fprintf(c.stdout, "\n%s\n", strings.TrimSpace(diagnosticText(d)))
	}
	for _, note := range slices.Concat(report.Notes, outlived(report), unjudged(report.Servers), leftBehind(report)) {
		_ = c.event(c.stdout, []cell{{"note:", yellow}, {note, ""}})
	}
}

// outlived notes which servers began before an upgrade: they run on as they began.
func outlived(report control.Report) []string {
	var notes []string
	for _, s := range report.Servers {
		if s.Launcher != "" {
			notes = append(notes, s.Name+" "+underAnother(s, report.Version))
		}
	}
	return notes
}

// underAnother says by which pfar a server was started, and how that changes.
func underAnother(s control.Server, version string) string {
	return fmt.Sprintf("runs under pfar %s, and pfar is %s: pfar restart %s", s.Launcher, version, s.Name)
}

// unjudged notes which servers' calls wait because nothing is known of their tools.
func unjudged(servers []control.Server) []string {
	var names []string
	for _, s := range servers {
		if s.Unknown != "" && !s.Broken {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{"nothing is known of the tools of " + strings.Join(names, ", ") + ", so their calls wait for approval: pfar explain " + names[0] + " says what to write"}
}

func (c statusVerb) serverRows(servers []control.Server) [][]cell {
	rows := [][]cell{heading("NAME", "STATE", "TOOLS", "UID", "SINCE", "DETAIL")}
	own := c.uid != 0 // servers of an ordinary user may all run as that user
	for _, s := range servers {
		own = own && (s.PID == 0 || s.UID == c.uid)
	}
	for _, s := range servers {
		since, uid := "", ""
		if !s.Since.IsZero() {
			since = age(c.now().Sub(s.Since))
		}
		if s.PID != 0 {
			uid = fmt.Sprint(s.UID)
		}
		rows = append(rows, []cell{
			{s.Name, ""}, {string(s.State), stateColour(s.State)}, {fmt.Sprint(s.Tools), ""}, {uid, ""}, {since, ""}, {detail(s), ""},
		})
	}
	if own {
		const uid = 3
		for i := range rows {
			rows[i] = slices.Delete(rows[i], uid, uid+1)
		}
	}
	return rows
}

// detail is what the table says of a server beyond its state.
func detail(s control.Server) string {
	var parts []string
	for _, p := range []string{s.Detail, s.LastRefusal} {
		if p != "" && (len(parts) == 0 || parts[0] != p) {
			parts = append(parts, p)
		}
	}
	if s.Stale {
		parts = append(parts, "its file is broken: the last good version is in force")
	}
	return strings.Join(parts, "; ")
}

func stateColour(s control.State) string {
	switch s {
	case control.Running:
		return green
	case control.Failed:
		return red
	case control.BackOff, control.Waiting:
		return yellow
	}
	return ""
}

// describe says a server's state in a few words: "running, 24 tools".
func describe(s control.Server) string {
	words, more := string(s.State), detail(s)
	if s.State == control.Running {
		count := fmt.Sprintf("%d tools", s.Tools)
		if s.Tools == 1 {
			count = "1 tool"
		}
		if rest, ok := strings.CutPrefix(more, count); ok { // the status line says it, as systemctl status shows it
			return words + ", " + count + rest
		}
		words += ", " + count
	}
	switch {
	case strings.HasPrefix(more+" ", words+" "): // "back-off 5s after crash 2 of 3: ..."
		return more
	case more != "":
		return words + ": " + more
	}
	return words
}

// printServer prints one server, one member a line.
func (c statusVerb) printServer(s control.Server, version string) error {
	if c.json() {
		return c.printJSON(s)
	}
	rows := [][]cell{{{"name", bold}, {s.Name, ""}}, {{"state", bold}, {string(s.State), stateColour(s.State)}}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []cell{{name, bold}, {value, ""}})
		}
	}
	add("detail", s.Detail)
	add("description", strings.Join(strings.Fields(s.Description), " "))
	add("label", s.Label)
	add("tools", fmt.Sprint(s.Tools))
	add("unknown", s.Unknown)
	if s.SessionsMax > 0 {
		add("sessions", fmt.Sprintf("%d with a process of their own, of at most %d", len(s.Sessions), s.SessionsMax))
	}
	if s.PID != 0 {
		add("uid", fmt.Sprint(s.UID))
		add("pid", fmt.Sprint(s.PID))
	}
	if s.Launcher != "" {
		add("launcher", underAnother(s, version))
	}
	if !s.Since.IsZero() {
		add("since", stamp(s.Since))
	}
	if s.Crashes > 0 {
		add("crashes", fmt.Sprintf("%d in a row", s.Crashes))
	}
	add("last refusal", s.LastRefusal)
	add("", refusalRemedy(s))
	if s.State == control.Failed || s.State == control.BackOff {
		add("remedy", symptomRemedy(s.File, s.Detail))
	}
	add("limits", s.Limits)
	add("shared", s.Shared)
	add("declaration", s.File)
	if s.Stale {
		add("", "is broken now: the last good version is in force")
	}
	add("log", s.Log)
	c.table(c.stdout, rows)
	return nil
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// diagnosticText is a diagnostic with its source line, as pfard rendered it or, failing that, in one line.
func diagnosticText(d control.Diagnostic) string {
	if d.Text != "" {
		return escape(d.Text, keepLines)
	}
	s := fmt.Sprintf("%s:%d:%d: %s: %s", d.File, d.Line, d.Column, d.Severity, d.Summary)
	if d.Detail != "" {
		s += "; " + d.Detail
	}
	return escape(s, keepLines)
}
