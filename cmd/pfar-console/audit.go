package main

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/prose"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/operator/wording"
)

// recorded is what the page of the audit shows.
type recorded struct {
	Filters []choice
	Lines   []line // newest first
	Limited bool   // by a filter
	Older   bool   // there are records before these
	Verify  string // path of the page that has the whole audit verified
	Follow  string // path of the page that follows, with the same filter
	Stay    string // path of the page that does not, if this one follows; "": it does not
}

// choice is one property of records, and the values that the page can be limited to.
type choice struct {
	Name    string
	Options []option
}

// option is one value of a choice.
type option struct {
	Words, Path string
	Here        bool
}

// line is one line of the audit.
type line struct {
	At, Word, Text string
	Bad            bool
	Path           string // of its call; "": it is about no call
}

// maxAudit is how many lines the page of the audit has, maxOptions how many clients or servers it offers, and maxLine
// how many bytes of one line it shows.
const (
	maxAudit   = 200
	maxOptions = 20
	maxLine    = 4 << 10
)

var errNoFilter = errors.New("not a filter")

// nameText matches the clients and servers that a filter takes. Records may have others, which strangers chose.
var nameText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// auditView is which records the page shows, and whether it shows new ones by itself.
type auditView struct {
	filter prose.Filter
	follow bool
}

// followPath is the first part of a path, before its filter, if the page follows.
const followPath = "follow"

// auditAt reads the path of a page: "", "follow", or one of them and a filter.
func auditAt(path string) (v auditView, err error) {
	first, rest, more := strings.Cut(path, "/")
	if v.follow = first == followPath; v.follow {
		path = rest
	}
	if path != "" || v.follow && more {
		v.filter, err = filterAt(path)
	}
	return v, err
}

// filterAt reads the filter in a path: "verdict=deny/server=notion", in this order.
func filterAt(path string) (f prose.Filter, err error) {
	at := 0
	for part := range strings.SplitSeq(path, "/") {
		key, value, _ := strings.Cut(part, "=")
		for at < len(filters) && filters[at].key != key {
			at++
		}
		if at == len(filters) || !filters[at].takes(value) {
			return f, errNoFilter
		}
		*filters[at].in(&f) = value
		at++
	}
	return f, nil
}

func named(text string) bool { return nameText.MatchString(text) }

// filters are the properties that the page can be limited by.
var filters = []struct {
	key, name string
	takes     func(value string) bool
	in        func(*prose.Filter) *string
}{
	{"verdict", "Verdict", func(v string) bool { return slices.Contains(prose.Verdicts(), v) },
		func(f *prose.Filter) *string { return &f.Verdict }},
	{"kind", "Kind", func(v string) bool { return slices.Contains(prose.Kinds(), v) },
		func(f *prose.Filter) *string { return &f.Kind }},
	{"client", "Client", named, func(f *prose.Filter) *string { return &f.Client }},
	{"server", "Server", named, func(f *prose.Filter) *string { return &f.Server }},
}

// pathOf is the path of a page.
func pathOf(one *session, v auditView) string {
	path := "audit"
	if v.follow {
		path += "/" + followPath
	}
	for _, each := range filters {
		if v := *each.in(&v.filter); v != "" {
			path += "/" + each.key + "=" + v
		}
	}
	return one.path(path)
}

// choicesOf offers the values that records have, and the present one.
func choicesOf(one *session, now auditView, seen map[string][]string) (list []choice) {
	for _, each := range filters {
		c := choice{Name: each.name}
		at := func(value string) option {
			v := now
			*each.in(&v.filter) = value
			words := value
			if value == "" {
				words = "any"
			}
			return option{Words: words, Path: pathOf(one, v), Here: *each.in(&now.filter) == value}
		}
		values := slices.Clone(seen[each.key])
		if here := *each.in(&now.filter); here != "" && !slices.Contains(values, here) {
			values = append(values, here)
		}
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		c.Options = append(c.Options, at(""))
		for _, v := range values {
			c.Options = append(c.Options, at(v))
		}
		list = append(list, c)
	}
	return list
}

// noted adds a value to a list, and keeps the newest maxOptions values.
func noted(list []string, value string) []string {
	list = append(slices.DeleteFunc(list, func(v string) bool { return v == value }), value)
	return list[max(0, len(list)-maxOptions):]
}

// valuesOf are the values of a record by which the page can be limited.
func valuesOf(e *audit.Entry) map[string]string {
	values := map[string]string{"client": e.Client, "server": e.Server, "kind": string(e.Kind)}
	if e.Kind == audit.Open || e.Kind == audit.Close {
		values["kind"] = prose.Call
	}
	if e.Decision != nil {
		values["verdict"] = e.Decision.Verdict.String()
	}
	return values
}

// auditPage is the page of the audit.
func auditPage(ctx context.Context, a *archive, one *session, v auditView) (content, error) {
	lines, seen := prose.Lines{Filter: v.filter}, map[string][]string{}
	var last []prose.Line
	older := false
	newest := func(most int) {
		if over := len(last) - most; over > 0 {
			last, older = slices.Delete(last, 0, over), true
		}
	}
	all, err := a.read(ctx, func(e *audit.Entry) {
		values := valuesOf(e)
		for _, each := range filters {
			if v := values[each.key]; each.takes(v) {
				seen[each.key] = noted(seen[each.key], v)
			}
		}
		l, _ := lines.Take(e)
		if l == nil {
			return
		}
		if last = append(last, short(*l)); len(last) > 2*maxAudit {
			newest(maxAudit)
		}
	})
	for _, l := range lines.Unclosed() {
		last = append(last, short(l))
	}
	slices.SortStableFunc(last, func(x, y prose.Line) int { return x.At.Compare(y.At) })
	newest(maxAudit)
	b := recorded{Filters: choicesOf(one, v, seen), Limited: v.filter != prose.Filter{}, Older: older || !all}
	b.Verify, b.Follow = one.path(verifyPath), pathOf(one, auditView{v.filter, true})
	if v.follow {
		b.Stay = pathOf(one, auditView{filter: v.filter})
	}
	for _, l := range slices.Backward(last) {
		shown := line{
			At: moment(l.At), Word: visible.Reveal(l.Word), Text: visible.Reveal(l.Text), Bad: l.Tone == prose.Bad,
		}
		if audit.IsID(l.ID) {
			shown.Path = one.path("record/" + l.ID)
		}
		b.Lines = append(b.Lines, shown)
	}
	return content{title: "Audit", template: "audit", body: b, again: v.follow}, err
}

// short cuts a line that is longer than pfar writes.
func short(l prose.Line) prose.Line {
	cut := func(s string) string {
		if len(s) <= maxLine {
			return s
		}
		return strings.ToValidUTF8(s[:maxLine], "") + "..."
	}
	l.Word, l.Text = cut(l.Word), cut(l.Text)
	return l
}

// story is one call, as its records have it.
type story struct {
	ID    string
	Notes []string // each says that some of the call's records are missing
	Rows  []wording.Row
}

var errNoRecord error = &ask.Refusal{Reason: "the newest records have no such call: run pfar explain with its ID"}

// maxStory bounds the records of one call on its page, and maxRows its rows.
const (
	maxStory = 100
	maxRows  = 300
)

// recordPage is the page of one call.
func recordPage(ctx context.Context, a *archive, id string) (content, error) {
	var found []*audit.Entry
	left := 0
	all, err := a.read(ctx, func(e *audit.Entry) {
		if e.ID != id {
			return
		}
		if found = append(found, e); len(found) > maxStory { // the first and the last ones stay
			found, left = slices.Delete(found, maxStory/2, maxStory/2+1), left+1
		}
	})
	if err == nil && len(found) == 0 {
		err = errNoRecord
	}
	if err != nil {
		return content{}, err
	}
	b := story{ID: visible.Reveal(id)}
	explain := " To read them, run: pfar explain " + b.ID
	if !all && found[0].Kind != audit.Open {
		b.Notes = append(b.Notes, "Older records of this call may be missing here."+explain)
	}
	rows := prose.Story(found, moment)
	if over := len(rows) - maxRows; over > 0 {
		rows, left = rows[:maxRows], left+over
	}
	if left > 0 {
		b.Notes = append(b.Notes, "Not all of this call is shown."+explain)
	}
	for _, r := range rows {
		row := wording.Row{Name: visible.Reveal(r.Name), Text: visible.Reveal(r.Text)}
		if last := len(b.Rows) - 1; row.Name == "" && last >= 0 { // it goes on with the row before
			b.Rows[last].Text += "\n" + row.Text
			continue
		}
		b.Rows = append(b.Rows, row)
	}
	closed := slices.ContainsFunc(found, func(e *audit.Entry) bool { return e.Kind == audit.Close || e.Outcome != "" })
	return content{title: "Record of a call", template: "record", body: b, quiet: closed}, nil
}
