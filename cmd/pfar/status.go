package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/wants"
)

// statusVerb shows the state of servers.
type statusVerb struct{ *pfar }

func (c statusVerb) statusCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:               "status [NAME]",
		Short:             "Show the servers, broken declarations and missing protections",
		Example:           example("pfar status", "pfar status notion --json"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := c.report(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 1 {
				s, err := findServer(report, args[0])
				if line := c.setUpOf(report, args[0]); err != nil && line != "" {
					return fail(exitNoSuch, "no server %q is declared yet", args[0]).withHint("%s", line)
				}
				if err != nil {
					return err
				}
				return c.printServer(s, report, c.wants(cmd.Context(), report))
			}
			wanted := c.wants(cmd.Context(), report)
			report.Notes = append(report.Notes, health.Unsent(noticesOf(cmd.Context(), c.pfar, report))...)
			if c.json() {
				return c.printJSON(struct {
					control.Report
					Wants []wants.Want `json:"wants"`
				}{report, wanted})
			}
			c.printReport(report)
			c.printWants(wanted)
			return nil
		},
	})
}

// printReport prints the table of the servers and, below it, what is wrong.
func (c statusVerb) printReport(report control.Report) {
	if len(report.Servers) == 0 {
		fmt.Fprintf(c.stdout, "no servers declared in %s\n", escape(report.Directory, oneLine))
	} else {
		c.table(c.stdout, c.serverRows(report.Servers))
	}
	for _, now := range report.SetUps {
		_ = c.event(c.stdout, []cell{{"set-up:", yellow}, {c.setUpWords(now), ""}})
	}
	for _, d := range report.Diagnostics {
		fmt.Fprintf(c.stdout, "\n%s\n", strings.TrimSpace(diagnosticText(d)))
	}
	for _, note := range health.Notes(report) {
		_ = c.event(c.stdout, []cell{{"note:", yellow}, {note, ""}})
	}
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
		more := detail(s)
		if at := place(s.Reach); at != "" {
			more = strings.TrimSuffix("at "+at+": "+more, ": ")
		}
		rows = append(rows, []cell{
			{s.Name, ""}, {string(s.State), stateColour(s.State)}, {fmt.Sprint(s.Tools), ""}, {uid, ""}, {since, ""}, {more, ""},
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

// printServer prints one server, one member a line.
func (c statusVerb) printServer(s control.Server, report control.Report, wanted []wants.Want) error {
	setUps := slices.DeleteFunc(slices.Clone(report.SetUps), func(f control.Flow) bool { return f.Server != s.Name })
	wanted = slices.DeleteFunc(wanted, func(w wants.Want) bool { return w.Server != s.Name })
	if c.json() {
		return c.printJSON(struct {
			control.Server
			Wants  []wants.Want   `json:"wants"`
			SetUps []control.Flow `json:"set_ups,omitempty"`
		}{s, wanted, setUps})
	}
	rows := [][]cell{{{"name", bold}, {s.Name, ""}}, {{"state", bold}, {string(s.State), stateColour(s.State)}}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []cell{{name, bold}, {value, ""}})
		}
	}
	if v := s.Verification; v.Result == units.Invalid {
		add("credentials", "invalid: "+v.Tool+" says: "+v.Words)
		add("remedy", v.Remedy.Command)
		add("", v.Where)
	} else {
		add("detail", s.Detail)
		add("credentials", verifiedWords(v))
	}
	add("description", strings.Join(strings.Fields(s.Description), " "))
	add("url", s.URL)
	add("attached to", s.Attached)
	add("transport", s.Transport)
	add("protocol", s.Protocol)
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
		add("launcher", health.UnderAnother(s, report.Version))
	}
	if !s.Since.IsZero() {
		add("since", stamp(s.Since))
	}
	if s.Crashes > 0 {
		add("crashes", fmt.Sprintf("%d in a row", s.Crashes))
	}
	add("last refusal", s.LastRefusal)
	add("", refusalRemedy(s))
	add("set-up", c.setUpOf(report, s.Name))
	for _, w := range wanted {
		add("wants", w.What+": "+w.Command)
	}
	if s.State == control.Failed || s.State.TriedAgain() {
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

// verifiedWords says what is known of a server's secrets, "" for nothing.
func verifiedWords(v control.Verification) string {
	switch v.Result {
	case units.Verified:
		return "verified by " + v.Tool + " at " + stamp(v.At)
	case units.Unverified:
		words := strings.TrimSuffix("not verified: "+v.Words, ": ")
		if v.Tool != "" { // it was called, or will be the next time
			words += "; pfar test tries again"
		}
		return words
	case units.Verifying:
		return "being verified"
	}
	return ""
}
