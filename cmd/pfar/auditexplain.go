package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// explainCall says why a call was decided as it was, from its records alone.
func (c auditVerb) explainCall(ctx context.Context, id string) error {
	merged, _, err := c.openAudit(time.Time{})
	if err != nil {
		return err
	}
	defer merged.Close()
	var found []*audit.Entry
	for {
		e, err := merged.Next()
		if err != nil {
			return fmt.Errorf("reading what was recorded: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if e == nil {
			break
		}
		if strings.HasPrefix(e.ID, id) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return fail(exitNoSuch, "no record of call %s", id).withHint(`"pfar audit" shows them`)
	}
	for _, e := range found {
		if e.ID != found[0].ID {
			return fail(exitNoSuch, "ambiguous call ID: matches %s and %s", found[0].ID, e.ID)
		}
	}
	if c.json() {
		records := make([]audit.Record, len(found))
		for i, e := range found {
			records[i] = e.Record
		}
		return c.printJSON(records)
	}
	var b strings.Builder
	explainRecords(&b, found)
	_, err = io.WriteString(c.stdout, b.String())
	return err
}

// explainRecords writes the records of one call in words, each of them on a line of its own whatever is in it: names
// are a stranger's too, and none of them may draw a line that looks like one of these.
func explainRecords(w io.Writer, list []*audit.Entry) {
	row := rows(w)
	open := false // a call that nothing has closed; what a server says of itself opens nothing
	for _, e := range list {
		switch e.Kind {
		case audit.Open:
			explainOpen(row, &e.Record)
			open = e.Outcome == ""
		case audit.Close:
			open = false
			row("Closed", "%s: %s", stamp(e.Time), callLine(&e.Record, &e.Record).text)
			explainOutput(row, &e.Record)
		default:
			l := eventLine(&e.Record)
			row(titled(l.word), "%s: %s", stamp(l.at), l.text)
		}
		explainFindings(row, e.Findings)
		explainText(row, "Withheld", e.Withheld)
	}
	if open {
		row("Closed", "not: it is under way, or its gateway was killed")
	}
}

// titled is a word with a large first letter.
func titled(word string) string {
	first := min(1, len(word))
	return strings.ToUpper(word[:first]) + word[first:]
}

func explainOpen(row explainRow, r *audit.Record) {
	row("Call", "%s of %s.%s, %s", r.ID, r.Server, r.Tool, r.Method)
	row("When", "%s, record %d of %s", stamp(r.Time), r.Seq, r.Writer)
	row("Who", "client %q, session %q", r.Client, r.Session)
	if d := r.Decision; d != nil {
		row("Verdict", "%s: %s", d.Verdict, d.Reason)
		row("Rule", "%s (profile %s)", d.Rule, d.Profile)
		for _, rule := range d.Fired {
			if rule != d.Rule {
				row("", "also: %s", rule)
			}
		}
		for _, flow := range d.Flows {
			row("", "loosened by: %s", flow)
		}
		row("Data", "what the call carries is %s", d.Data)
	}
	for _, l := range []struct {
		name  string
		label *audit.Label
	}{{"Session", r.Before}, {"After it", r.After}} {
		if l.label != nil {
			words := l.label.Label.String()
			if len(l.label.Sources) > 0 {
				words += ", by " + strings.Join(l.label.Sources, ", ")
			}
			row(l.name, "%s", words)
		}
	}
	explainFacts(row, r.Facts)
	explainText(row, "Arguments", r.Arguments)
	for _, d := range [][2]string{{"Pin", r.Pin}, {"Policy", r.Policy}, {"Approver", r.Approver}, {"Channel", r.Channel},
		{"Outcome", r.Outcome}, {"Reason", r.Reason}} {
		if d[1] != "" {
			row(d[0], "%s", d[1])
		}
	}
}

// explainRow writes one line, with a name in a column before it.
type explainRow func(name, format string, args ...any)

func rows(w io.Writer) explainRow {
	return func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-11s %s\n", escape(name, oneLine), escape(fmt.Sprintf(format, args...), oneLine))
	}
}

// explainText says what is kept of a text that strangers or models have written, as one line.
func explainText(row explainRow, name string, a *audit.Arguments) {
	if a == nil {
		return
	}
	row(name, "%d bytes, sha256 %s", a.Bytes, a.SHA256)
	if a.Text != "" {
		row("", "%s", a.Text)
	}
}

func explainFacts(row explainRow, f *gate.Facts) {
	if f == nil {
		return
	}
	row("Facts", "output %s (%s), %s (%s)", f.Output.Confidentiality, f.From.Confidentiality, f.Output.Integrity, f.From.Integrity)
	row("", "audience %s (%s)", f.Audience, f.From.Audience)
	row("", "effect %s (%s)", f.Effect, f.From.Effect)
	if f.Tier != "" {
		row("", "only for the tier %s", f.Tier)
	}
	if f.Extract {
		row("", "its results are typed values by the outputSchema that was accepted: raw counts as extracted, if nothing else comes back")
	}
	if f.Forbidden != "" {
		row("", "forbidden: %s", f.Forbidden)
	}
}

// explainOutput says what came back of a call that typed values were to come back of.
func explainOutput(row explainRow, r *audit.Record) {
	if r.Output != nil {
		what := "typed values alone"
		if r.Reason != "" {
			what = "not only typed values"
		}
		row("Output", "%s: %s", r.Output.Label, what)
	}
}

func explainFindings(row explainRow, list []audit.Finding) {
	for _, f := range list {
		row("Inspector", "%s found %s: %s", f.Inspector, f.Kind, f.Detail)
		if f.Digest != "" {
			row("", "sha256 %s", f.Digest)
		}
	}
}
