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
	Older   bool   // there are records before these
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

// maxAudit is how many lines the page of the audit has, and maxOptions how many values of one choice.
const (
	maxAudit   = 200
	maxOptions = 20
)

var errNoFilter = errors.New("not a filter")

// nameText is what a filter may have for a client or a server: others are recorded as strangers wrote them.
var nameText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

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

// pathOf is the path of the page with a filter.
func pathOf(one *session, f prose.Filter) string {
	path := "audit"
	for _, each := range filters {
		if v := *each.in(&f); v != "" {
			path += "/" + each.key + "=" + v
		}
	}
	return one.path(path)
}

// choicesOf offers the values that records have, and the present one.
func choicesOf(one *session, now prose.Filter, seen map[string][]string) (list []choice) {
	for _, each := range filters {
		c := choice{Name: each.name}
		at := func(value string) option {
			f := now
			*each.in(&f) = value
			words := value
			if value == "" {
				words = "any"
			}
			return option{Words: words, Path: pathOf(one, f), Here: *each.in(&now) == value}
		}
		values := seen[each.key]
		if here := *each.in(&now); here != "" && !slices.Contains(values, here) {
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

// noted keeps the values of one property, which the page offers.
func noted(list []string, value string) []string {
	if len(list) >= maxOptions || !named(value) || slices.Contains(list, value) {
		return list
	}
	return append(list, value)
}

// auditPage is the page of the audit.
func auditPage(ctx context.Context, a *archive, one *session, f prose.Filter) (content, error) {
	lines, seen := prose.Lines{Filter: f}, map[string][]string{}
	var last []prose.Line
	older := false
	all, err := a.read(ctx, func(e *audit.Entry) {
		l, _ := lines.Take(e)
		for _, value := range [][2]string{
			{"client", e.Client}, {"server", e.Server}, {"kind", kindOf(e)}, {"verdict", verdictOf(e)},
		} {
			seen[value[0]] = noted(seen[value[0]], value[1])
		}
		if l == nil {
			return
		}
		if last = append(last, *l); len(last) > 2*maxAudit {
			last, older = slices.Delete(last, 0, maxAudit), true
		}
	})
	last = append(last, lines.Unclosed()...)
	if over := len(last) - maxAudit; over > 0 {
		last, older = last[over:], true
	}
	b := recorded{Filters: choicesOf(one, f, seen), Older: older || !all}
	for _, l := range slices.Backward(last) {
		shown := line{
			At: moment(l.At), Word: visible.Reveal(l.Word), Text: visible.Reveal(l.Text), Bad: l.Tone == prose.Bad,
		}
		if audit.IsID(l.ID) {
			shown.Path = one.path("record/" + l.ID)
		}
		b.Lines = append(b.Lines, shown)
	}
	return content{title: "Audit", template: "audit", body: b}, err
}

func kindOf(e *audit.Entry) string {
	if e.Kind == audit.Open || e.Kind == audit.Close {
		return prose.Call
	}
	return string(e.Kind)
}

func verdictOf(e *audit.Entry) string {
	if e.Decision == nil {
		return ""
	}
	return e.Decision.Verdict.String()
}

// story is one call, as its records have it.
type story struct {
	ID   string
	Rows []wording.Row
}

var errNoRecord error = &ask.Refusal{Reason: "the newest records have no such call: run pfar explain with its ID"}

// maxStory bounds the records of one call on its page.
const maxStory = 100

// recordPage is the page of one call.
func recordPage(ctx context.Context, a *archive, id string) (content, error) {
	var found []*audit.Entry
	_, err := a.read(ctx, func(e *audit.Entry) {
		if e.ID == id && len(found) < maxStory {
			found = append(found, e)
		}
	})
	if err != nil || len(found) == 0 {
		if err == nil {
			err = errNoRecord
		}
		return content{}, err
	}
	b := story{ID: visible.Reveal(id)}
	for _, r := range prose.Story(found, moment) {
		row := wording.Row{Name: visible.Reveal(r.Name), Text: visible.Reveal(r.Text)}
		if last := len(b.Rows) - 1; row.Name == "" && last >= 0 { // it goes on with the row before
			b.Rows[last].Text += "\n" + row.Text
			continue
		}
		b.Rows = append(b.Rows, row)
	}
	return content{title: "Record of a call", template: "record", body: b}, nil
}
