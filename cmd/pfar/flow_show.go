package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/form"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/flows/wording"
)

// flowPrinter prints flows, nodes and runs.
type flowPrinter struct{ *pfar }

// printPlan prints how the gate judges each step, and below that what is known of the arguments, who sees them, and
// what the step changes. Of a plan that a model has written, it also prints how the steps follow each other, and with
// what the store begins.
func (v flowPrinter) printPlan(w io.Writer, a flows.Answer) {
	rows := [][]cell{heading("STEP", "NODE", "VERDICT", "SESSION", "WHY")}
	for _, s := range a.Steps {
		rows = append(rows, []cell{
			{s.Step, ""}, {nodeShown(s.Step, s.Node), ""}, {s.Verdict.String(), verdictColour(s.Verdict)},
			{s.Label.String(), labelColour(s.Label)}, {s.Reason, ""},
		})
	}
	v.table(w, rows)
	fmt.Fprintln(w)
	b := page{columns: columnsOf(w)}
	for _, s := range a.Steps {
		b.line("", escape(s.Step, oneLine))
		for _, line := range wording.Arguments(s) {
			b.line("  | ", escape(line, oneLine))
		}
		b.line("  ", wording.Reach(s))
	}
	digest := a.Digest
	if a.Draft != nil {
		for _, line := range wording.Course(a.Draft.Flow) {
			b.line("", escape(line, oneLine))
		}
		digest = cmp.Or(digest, a.Draft.Digest)
	}
	if digest != "" {
		b.line("", "plan "+escape(digest[:min(len(digest), exactly)], oneLine))
	}
	io.WriteString(w, b.trimmed())
}

// nodeShown is a node where its step is shown beside it: a mark where both have one name.
func nodeShown(step, node string) string {
	if step == node {
		return "-"
	}
	return node
}

func verdictColour(d gate.Verdict) string {
	switch d {
	case gate.Allow, gate.Inspect:
		return ""
	case gate.Ask:
		return yellow
	}
	return red
}

// stateShown is the state of a run, with the step that it is at.
func stateShown(r *flows.Status) string {
	switch {
	case r.At == "":
		return string(r.State)
	case r.State == flows.Waiting: // for an approval, before the step begins
		return string(r.State) + " before " + r.At
	}
	return string(r.State) + " at " + r.At
}

func runColour(s flows.State) string {
	switch s {
	case flows.Done:
		return green
	case flows.Waiting, flows.Unknown:
		return yellow
	case flows.Failed, flows.Cancelled:
		return red
	}
	return ""
}

// printRun prints a run with its calls.
func (v flowPrinter) printRun(r *flows.Status) {
	b := page{columns: columnsOf(v.stdout)}
	row := func(name, text string) {
		if text != "" {
			b.line(fmt.Sprintf("%-9s ", name), escape(text, oneLine))
		}
	}
	row("run", r.ID)
	row("flow", r.Flow)
	row("session", r.Client+"/"+r.Session)
	row("state", stateShown(r))
	row("begun", minute(r.Begun))
	row("label", r.Label.String())
	if r.Reason != "" {
		b.line("| ", escape(unfenced(r.Reason, v.stdout), oneLine))
	}
	io.WriteString(v.stdout, b.trimmed())
	v.printNext(r)
	if len(r.Trace) > 0 {
		fmt.Fprintln(v.stdout)
		rows := [][]cell{heading("STEP", "NODE", "CALL", "VERDICT", "LABEL", "ACTION", "TOOK", "BYTES")}
		for _, s := range r.Trace {
			rows = append(rows, []cell{
				{s.Step, ""}, {nodeShown(s.Step, s.Node), ""}, {s.Call, ""}, {s.Verdict.String(), verdictColour(s.Verdict)},
				{s.Label.String(), labelColour(s.Label)}, {s.Action, ""}, {s.Took.Round(time.Millisecond).String(), ""},
				{fmt.Sprint(s.Bytes), ""},
			})
		}
		v.table(v.stdout, rows)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(v.stdout, "%s before these, without a record here\n", plural.Count(r.Dropped, "call"))
	}
	if r.Result != nil {
		fmt.Fprintln(v.stdout, "\nresult:")
		text := resultShown(r.Result, func(text string) string { return unfenced(text, v.stdout) })
		for line := range strings.Lines(text) {
			fmt.Fprintln(v.stdout, "  | "+escape(strings.TrimSuffix(line, "\n"), oneLine))
		}
	}
}

// printNext says how a run that stands still goes on.
func (v flowPrinter) printNext(r *flows.Status) {
	id := "RUN"
	if visible.ShellSafe(r.ID) {
		id = r.ID
	}
	switch r.State {
	case flows.Waiting:
		approval := "ID"
		if visible.ShellSafe(r.Approval) {
			approval = r.Approval
		}
		v.hintAt("pfar approvals show " + approval + ", then pfar approvals approve " + approval + " or deny " + approval)
	case flows.Unknown:
		v.hintAt("find out whether the server carried out the call, then pfar flow resume " + id + " --done or --again")
	}
}

// resultShown is a result as text: of a tool its content, of a native node its value. shown makes each text of it fit
// for the reader.
func resultShown(raw json.RawMessage, shown func(string) string) string {
	if text, ok := argument.Unquoted(raw); ok {
		return shown(text)
	}
	var r result
	if json.Unmarshal(raw, &r) == nil && (r.Content != nil || r.Structured != nil) {
		return resultFor(r, shown)
	}
	return shown(indentJSON(raw))
}

// printRuns prints a table of runs.
func (v flowPrinter) printRuns(runs []flows.Status) {
	rows := [][]cell{heading("RUN", "FLOW", "SESSION", "STATE", "BEGUN", "WHY")}
	for _, r := range runs {
		rows = append(rows, []cell{
			{r.ID, ""}, {r.Flow, ""}, {r.Client + "/" + r.Session, ""}, {stateShown(&r), runColour(r.State)},
			{age(v.now().Sub(r.Begun)) + " ago", ""}, {unfenced(r.Reason, v.stdout), ""},
		})
	}
	v.table(v.stdout, rows)
}

// printNodes prints a table of nodes.
func (v flowPrinter) printNodes(list []flow.Node) {
	rows := [][]cell{heading("NODE", "ALSO", "MARK", "DESCRIPTION")}
	for _, n := range list {
		mark, colour := "", ""
		switch {
		case n.Held != "":
			mark, colour = "held", yellow
		case n.Pure:
			mark = "flow-safe"
		}
		rows = append(rows, []cell{
			{n.ID, ""}, {strings.Join(n.Aliases, ", "), ""}, {mark, colour}, {summary(n.Description, 200), ""},
		})
	}
	v.table(v.stdout, rows)
}

// printProblems prints mistakes in the order of their places.
func (v flowPrinter) printProblems(s flowSource, problems []flow.Problem) {
	for _, p := range problems {
		where := s.shown
		if where == "" && s.order.Form == form.Line {
			where = "flow"
		}
		if p.At.Line > 0 {
			where = fmt.Sprintf("%s:%d:%d", where, p.At.Line, p.At.Column)
		}
		text := p.Text
		if p.Step != "" && !strings.Contains(text, p.Step) {
			text = p.Step + ": " + text
		}
		fmt.Fprintf(v.stderr, "%s %s\n", v.paint(v.stderr, red, escape(where, oneLine)+":"), escape(text, oneLine))
		if p.Advice != "" {
			fmt.Fprintf(v.stderr, "  %s %s\n", v.paint(v.stderr, cyan, "hint:"), escape(p.Advice, oneLine))
		}
	}
	if len(problems) > 0 && s.ownFlag {
		v.hintAt(flagsOfFlows)
	}
}
