// Package prose describes audit records in words: a line for each call or event, and all records of one call.
package prose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/egress"
	failures "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/visible"
)

// Filter says which records are shown. What is empty or zero matches all records.
type Filter struct {
	ID                            string // of a call, or the beginning of one
	Client, Session, Server, Tool string
	Verdict, Kind                 string // one of Verdicts, one of Kinds
	Since, Until                  time.Time
}

// Verdicts are the verdicts of calls.
func Verdicts() []string { return []string{"allow", "inspect", "ask", "deny"} }

// Call is the kind of the records of calls: audit.Open and audit.Close.
const Call = "call"

// Kinds are the kinds of records.
func Kinds() []string {
	list := []string{Call}
	for _, k := range []audit.Kind{
		audit.Retry, audit.Refused, audit.Vault, audit.Pin, audit.Approval, audit.Session, audit.Lifecycle,
		audit.Declaration, audit.Policy, audit.SetUp, audit.Retention, audit.Torn, audit.Resumed, audit.Begin,
		audit.Rotate,
	} {
		list = append(list, string(k))
	}
	return list
}

// passes reports whether a record is to be shown. What is known of a call only from its first record goes for all of
// its.
func (f *Filter) passes(r *audit.Record, of *audit.Record) bool {
	for _, each := range [][2]string{
		{f.Client, of.Client}, {f.Session, of.Session}, {f.Server, of.Server}, {f.Tool, of.Tool},
	} {
		if want, has := each[0], each[1]; want != "" && want != has {
			return false
		}
	}
	kind := string(r.Kind)
	if r.Kind == audit.Open || r.Kind == audit.Close {
		kind = Call
	}
	switch {
	case f.ID != "" && !strings.HasPrefix(r.ID, f.ID), f.Kind != "" && f.Kind != kind:
		return false
	case f.Verdict != "" && (of.Decision == nil || of.Decision.Verdict.String() != f.Verdict):
		return false
	case !f.Since.IsZero() && r.Time.Before(f.Since), !f.Until.IsZero() && r.Time.After(f.Until):
		return false
	}
	return true
}

// Tone says how much a line matters.
type Tone string

const (
	Plain Tone = ""
	Good  Tone = "good"
	Wary  Tone = "wary"
	Bad   Tone = "bad"
)

// Line is one line for people. Strangers wrote parts of its text, so callers must escape it.
type Line struct {
	At     time.Time
	Word   string // the verdict of a call, the kind of any other record
	Tone   Tone
	Text   string
	ID     string // of the call; "": the record is about no call
	Client string
	Server string
}

// Lines makes lines of entries, which it takes oldest first. A call has one line, once it is closed.
type Lines struct {
	Filter Filter
	open   map[string]*audit.Entry
}

// Take returns the line that an entry adds, nil for none, and reports whether the entry passes the filter.
func (v *Lines) Take(e *audit.Entry) (*Line, bool) {
	first := e
	if e.Kind == audit.Open && e.ID != "" {
		if e.Outcome == "" {
			if v.open == nil {
				v.open = map[string]*audit.Entry{}
			}
			v.open[e.ID] = e
		}
	} else if o := v.open[e.ID]; o != nil {
		first = o
		if e.Kind == audit.Close {
			delete(v.open, e.ID)
		}
	}
	if !v.Filter.passes(&e.Record, &first.Record) {
		return nil, false
	}
	var l Line
	switch {
	case e.Kind == audit.Open && e.Outcome == "":
		return nil, true // when it is closed
	case e.Kind == audit.Close && first != e:
		l = ofCall(&first.Record, &e.Record)
	case e.Kind == audit.Close || e.Kind == audit.Open:
		l = ofCall(&e.Record, &e.Record)
	default:
		l = ofEvent(&e.Record)
	}
	return &l, true
}

// Unclosed are the lines of the calls that no record has closed.
func (v *Lines) Unclosed() (list []Line) {
	bySeq := func(a, b *audit.Entry) int { return cmp.Compare(a.Seq, b.Seq) } // of one chain, the gateway's
	for _, e := range slices.SortedFunc(maps.Values(v.open), bySeq) {
		if v.Filter.passes(&e.Record, &e.Record) {
			const words = "not closed: under way, or its gateway was killed"
			list = append(list, ofCall(&e.Record, &audit.Record{Outcome: words}))
		}
	}
	return list
}

// ofCall is the line of a call by its first and last record.
func ofCall(o, c *audit.Record) Line {
	l := Line{At: o.Time, Word: Call, ID: o.ID, Client: o.Client, Server: o.Server}
	what := []string{o.Server + "." + o.Tool}
	if d := o.Decision; d != nil {
		l.Word = d.Verdict.String()
		l.Tone = map[string]Tone{"allow": Good, "inspect": Wary, "ask": Wary, "deny": Bad}[l.Word]
	}
	if o.Client != "" {
		what = append(what, "by "+strings.TrimSuffix(o.Client+"/"+o.Session, "/"))
	}
	if d := o.Decision; d != nil && l.Word != "allow" {
		what = append(what, "("+d.Reason+")")
	}
	result := c.Outcome
	if c.Failure != nil {
		result += " (" + failedBy(*c.Failure) + ")"
	}
	if c.Bytes > 0 {
		result += ", " + visible.Size(c.Bytes)
	}
	if c.Latency > 0 {
		result += ", " + c.Latency.Round(10*time.Microsecond).String()
	}
	if c.Output != nil {
		result += ", " + c.Output.Integrity.String()
	}
	if c.Approver != "" {
		result += ", approved by " + c.Approver
	}
	if c.Reason != "" {
		result += ": " + c.Reason
	}
	l.Text = strings.Join(append(what, result, o.ID), "  ")
	return l
}

// ofEvent is the line of any other record.
func ofEvent(recorded *audit.Record) Line {
	r := *recorded
	if r.Kind == audit.Refused && r.Outcome != "" {
		r.Subject, r.Outcome, r.Reason = egress.Refusal{Host: r.Subject, Reason: r.Outcome, Detail: r.Reason}.String(), "", ""
	}
	l := Line{At: r.Time, Word: string(r.Kind), ID: r.ID, Client: r.Client, Server: r.Server}
	var words []string
	add := func(list ...string) {
		for _, w := range list {
			if w != "" {
				words = append(words, w)
			}
		}
	}
	add(r.Method, r.Server)
	if r.Session != "" || r.Client != "" {
		add(strings.Trim(r.Client+"/"+r.Session, "/"))
	}
	add(r.Tool, r.Subject)
	switch r.Kind {
	case audit.Refused, audit.Torn:
		l.Tone = Bad
	case audit.Begin, audit.Rotate:
		add(r.Writer)
	}
	if r.Old != "" || r.New != "" {
		add(shortened(r.Old) + " → " + shortened(r.New))
	}
	add(r.User, r.Outcome, r.Approver, r.Channel)
	if r.Failure != nil {
		add("after " + failedBy(*r.Failure))
	}
	if r.To != "" {
		add("to the " + r.To)
	}
	add(r.Reason)
	if r.Left > 0 {
		add(fmt.Sprintf("(%d more before it)", r.Left))
	}
	if r.Torn != nil {
		add(fmt.Sprintf("%d bytes of a record that was cut", r.Torn.Bytes))
	}
	add(r.ID)
	l.Text = strings.Join(words, "  ")
	return l
}

// failedBy is how a call failed: its class, and how often it was sent if that was more than once.
func failedBy(f failures.Failure) string {
	words := string(f.Class)
	if f.Status != 0 {
		words += " " + strconv.Itoa(f.Status)
	}
	if f.After != 0 {
		words += ", again in " + failures.Short(f.After)
	}
	if f.Tries > 1 {
		words += fmt.Sprintf(", sent %d times", f.Tries)
	}
	return words
}

// shortened is the beginning of a digest, and any other word as it is.
func shortened(s string) string {
	if len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" {
		return s[:12]
	}
	if s == "" {
		return "nothing"
	}
	return s
}
