package prose

import (
	"fmt"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// Row is one row of the story of a call: a name and a text. If the name is empty, the row continues the one before.
// Strangers wrote parts of both, so callers must escape them.
type Row struct{ Name, Text string }

// rowWriter adds a row.
type rowWriter func(name, format string, args ...any)

// Story describes the records of one call in rows. at formats times.
func Story(list []*audit.Entry, at func(time.Time) string) (rows []Row) {
	row := rowWriter(func(name, format string, args ...any) {
		rows = append(rows, Row{name, fmt.Sprintf(format, args...)})
	})
	open := false // a call that nothing has closed; what a server says of itself opens nothing
	for _, e := range list {
		switch e.Kind {
		case audit.Open:
			explainOpen(row, &e.Record, at)
			open = e.Outcome == ""
		case audit.Close:
			open = false
			row("Closed", "%s: %s", at(e.Time), ofCall(&e.Record, &e.Record).Text)
			explainOutput(row, &e.Record)
		default:
			l := ofEvent(&e.Record)
			row(titled(l.Word), "%s: %s", at(l.At), l.Text)
		}
		explainFindings(row, e.Findings)
		explainText(row, "Withheld", e.Withheld)
	}
	if open {
		row("Closed", "not: it is under way, or its gateway was killed")
	}
	return rows
}

// titled is a word with a large first letter.
func titled(word string) string {
	first := min(1, len(word))
	return strings.ToUpper(word[:first]) + word[first:]
}

func explainOpen(row rowWriter, r *audit.Record, at func(time.Time) string) {
	row("Call", "%s of %s.%s, %s", r.ID, r.Server, r.Tool, r.Method)
	row("When", "%s, record %d of %s", at(r.Time), r.Seq, r.Writer)
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

// explainText says what is kept of a text that strangers or models have written, as one line.
func explainText(row rowWriter, name string, a *audit.Arguments) {
	if a == nil {
		return
	}
	row(name, "%d bytes, sha256 %s", a.Bytes, a.SHA256)
	if a.Text != "" {
		row("", "%s", a.Text)
	}
}

func explainFacts(row rowWriter, f *gate.Facts) {
	if f == nil {
		return
	}
	from := f.From
	row("Facts", "output %s (%s), %s (%s)",
		f.Output.Confidentiality, from.Confidentiality, f.Output.Integrity, from.Integrity)
	row("", "audience %s (%s)", f.Audience, f.From.Audience)
	row("", "effect %s (%s)", f.Effect, f.From.Effect)
	if f.Tier != "" {
		row("", "only for the tier %s", f.Tier)
	}
	if f.Extract {
		row("", "its results are typed values by the outputSchema that was accepted: raw counts as extracted, if "+
			"nothing else comes back")
	}
	if f.Forbidden != "" {
		row("", "forbidden: %s", f.Forbidden)
	}
}

// explainOutput describes the result of a call that should return typed values only.
func explainOutput(row rowWriter, r *audit.Record) {
	if r.Output != nil {
		what := "typed values alone"
		if r.Reason != "" {
			what = "not only typed values"
		}
		row("Output", "%s: %s", r.Output.Label, what)
	}
}

func explainFindings(row rowWriter, list []audit.Finding) {
	for _, f := range list {
		row("Inspector", "%s found %s: %s", f.Inspector, f.Kind, f.Detail)
		if f.Digest != "" {
			row("", "sha256 %s", f.Digest)
		}
	}
}
