package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

const (
	allowedID = "1ng41j3na7z4yvfrjpp"
	deniedID  = "1ng41j4bbbbbbbbbbbb"
	openID    = "1ng41j5cccccccccccc"
)

// chain writes records as one writer, a second apart.
func chain(t *testing.T, dir trail.Dir, writer string, records ...audit.Record) {
	t.Helper()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	l := trail.New(trail.Options{Writer: writer, Now: func() time.Time { return now }})
	f, _, err := dir.Open(writer, now)
	if err == nil {
		err = l.Use(f)
	}
	for _, r := range records {
		now = now.Add(time.Second)
		if err == nil {
			err = l.Append(&r)
		}
	}
	if err := errors.Join(err, l.End()); err != nil {
		t.Fatal(err)
	}
}

// records are three calls: one was allowed, one was denied, and one has not ended.
func records() []audit.Record {
	worst := gate.Worst
	return []audit.Record{
		{
			Kind: audit.Open, ID: allowedID, Client: "claude", Session: "default", Server: "notion", Tool: "search",
			Method: "tools/call", Facts: &worst, Arguments: &audit.Arguments{Bytes: 17, Text: `{"query":"roadmap"}`},
			Before: &audit.Label{Label: gate.Start},
			Decision: &gate.Decision{
				Verdict: gate.Allow, Reason: "nothing leaves", Rule: "strict.hcl:7", Profile: "strict",
				Fired: []string{"strict.hcl:7", "owner: notion.hcl"},
			},
		},
		{
			Kind: audit.Open, ID: deniedID, Client: "other", Server: "mail", Tool: "send", Outcome: "denied",
			Decision: &gate.Decision{Verdict: gate.Deny, Reason: "secret to public", Rule: "strict.hcl:9"},
			Findings: []audit.Finding{{Inspector: "patterns", Kind: "token", Detail: "ghp_"}},
		},
		{Kind: audit.Close, ID: allowedID, Outcome: "ok", Bytes: 2048, Latency: 3 * time.Millisecond},
		{
			Kind: audit.Open, ID: openID, Server: "notion", Tool: "update",
			Decision: &gate.Decision{Verdict: gate.Ask, Reason: "it is sent"},
		},
	}
}

// openAudit is a console that gets the files of an audit with these records of the gateway and one of pfard.
func openAudit(t *testing.T, list ...audit.Record) *opened {
	t.Helper()
	dir := trail.Dir{Path: filepath.Join(t.TempDir(), "audit"), Group: -1}
	if err := dir.Make(); err != nil {
		t.Fatal(err)
	}
	chain(t, dir, "gateway", list...)
	chain(t, dir, "pfard", audit.Record{Kind: audit.Vault, Method: "deliver", Server: "notion", Subject: "notion_token"})
	o := open(t)
	o.dir = dir
	o.site.archive.asks = func(q attach.Question) error {
		r := attach.Records{Question: q}
		var files []*os.File
		for _, name := range []string{"gateway", "pfard"} {
			paths, err := dir.Files(name)
			if err != nil {
				return err
			}
			for _, path := range paths {
				f, err := os.Open(path)
				if err != nil {
					return err
				}
				files, r.Chains = append(files, f), append(r.Chains, name)
			}
		}
		go o.site.archive.answer(q.Number, archived{r, files})
		return nil
	}
	o.enter()
	return o
}

// page returns a page as a person reads it.
func (o *opened) page(path string) string {
	o.t.Helper()
	a := o.do("GET", o.home+path, "")
	if a.code != 200 {
		o.t.Fatalf("%s: %d %s", path, a.code, a.text)
	}
	guarded(o.t.(*testing.T), a.h)
	return html.UnescapeString(a.text)
}

// TestAudit: the page shows the records, newest first, and all that one call left. A filter leaves out the others.
func TestAudit(t *testing.T) {
	o := openAudit(t, records()...)
	all := o.page("audit")
	last := -1
	for _, want := range []string{
		"notion.update  (it is sent)  not closed", "mail.send  by other  (secret to public)",
		"notion.search  by claude/default  ok, 2.0 KiB",
	} {
		at := strings.Index(all, want)
		if at <= last {
			t.Errorf("%q is at %d, behind %d: %s", want, at, last, all)
		}
		last = at
	}
	for _, want := range []string{"deliver  notion  notion_token", "pfar audit verify", o.home + "record/" + deniedID} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %s", want, all)
		}
	}
	if strings.Contains(all, "older records") {
		t.Errorf("all are there: %s", all)
	}
	for path, want := range map[string]map[string]bool{
		"verdict=deny":                           {"mail.send": true, "notion.search": false, "notion_token": false},
		"server=notion":                          {"notion.search": true, "notion_token": true, "mail.send": false},
		"verdict=allow/client=claude":            {"notion.search": true, "mail.send": false},
		"kind=vault/server=notion":               {"notion_token": true, "notion.search": false},
		"verdict=allow/client=other/server=mail": {"No record fits": true, "mail.send": false},
	} {
		page := o.page("audit/" + path)
		for text, is := range want {
			if strings.Contains(page, text) != is {
				t.Errorf("%s: %q is there: %t: %s", path, text, !is, page)
			}
		}
		for part := range strings.SplitSeq(path, "/") {
			_, value, _ := strings.Cut(part, "=")
			if !strings.Contains(page, `aria-current="true">`+value+"<") {
				t.Errorf("%s: the filter %s is not marked: %s", path, value, page)
			}
		}
	}
	story := o.page("record/" + allowedID)
	for _, want := range []string{
		`client "claude", session "default"`, "allow: nothing leaves", "strict.hcl:7 (profile strict)",
		"also: owner: notion.hcl", `{"query":"roadmap"}`, "ok, 2.0 KiB, 3ms",
	} {
		if !strings.Contains(story, want) {
			t.Errorf("the story has no %q: %s", want, story)
		}
	}
	if strings.Contains(story, "mail") {
		t.Errorf("the story is about another call, too: %s", story)
	}
	for path, code := range map[string]int{
		"record/1ng41j9dddddddddddd": 303, "record/x": 404, "record/": 404, "audit/": 404, "audit/verdict=maybe": 404,
		"audit/server=a%2Fb": 404, "audit/server=": 404, "audit/server=a/verdict=deny": 404, "audit/x=y": 404,
		"audit/verdict=deny/verdict=allow": 404,
	} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
}

// TestAuditOfMany: a page has a bounded number of lines, the newest, and says that there are others.
func TestAuditOfMany(t *testing.T) {
	var many []audit.Record
	for i := range 3*maxAudit + 7 {
		r := records()[1]
		r.Tool = fmt.Sprintf("tool%d", i)
		r.Server = fmt.Sprintf("server%d", i)
		many = append(many, r)
	}
	o := openAudit(t, many...)
	page := o.page("audit")
	if n := strings.Count(page, "all about this call"); n > maxAudit || n < maxAudit-1 ||
		!strings.Contains(page, fmt.Sprintf("tool%d ", 3*maxAudit+6)) || strings.Contains(page, "tool7 ") ||
		!strings.Contains(page, "There are older records") {
		t.Errorf("it has %d calls: %s", n, page)
	}
	if n := strings.Count(page, "/server=server"); n != maxOptions ||
		!strings.Contains(page, fmt.Sprintf("/server=server%d\"", 3*maxAudit+6)) {
		t.Errorf("it offers %d servers, and not the newest", n)
	}
	for _, at := range regexp.MustCompile(`href="([^"]*/audit/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		if a := o.do("GET", at[1], ""); a.code != 200 {
			t.Errorf("%s: %d", at[1], a.code)
		}
	}
}

// TestAuditIsCut: of a file that is too long the page reads the end, from the first whole record on.
func TestAuditIsCut(t *testing.T) {
	o := openAudit(t, records()...)
	path := filepath.Join(o.dir.Path, "gateway-000001.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Collect(strings.Lines(string(text)))
	denied := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, deniedID) })
	long := strings.Join(lines[:denied], "") + strings.Repeat(lines[denied], maxRead/len(lines[denied])+1)
	if err := os.WriteFile(path, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	page := o.page("audit/client=other")
	if !strings.Contains(page, "There are older records") || !strings.Contains(page, "mail.send") {
		t.Errorf("the page: %.2000s", page)
	}
	if page := o.page("audit"); strings.Contains(page, "notion.search") {
		t.Error("it has read all of it")
	}
}

// descriptors counts the files of an audit, and those that stand for them, that this process has open.
func descriptors(t *testing.T, dir string) (n int) {
	t.Helper()
	list, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range list {
		if at, err := os.Readlink(fd); err == nil && (strings.HasPrefix(at, dir) || at == os.DevNull) {
			n++
		}
	}
	return n
}

// TestNoAudit: without files the page says why, and no file stays open, whatever pfard hands over and when.
func TestNoAudit(t *testing.T) {
	o := openAudit(t, records()...)
	hands := o.site.archive.asks
	opened := func() []*os.File {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		return []*os.File{f}
	}
	o.page("audit") // the first page may open files that stay open
	before := descriptors(t, o.dir.Path)
	for range 3 {
		o.page("audit")
	}
	if after := descriptors(t, o.dir.Path); after > before {
		t.Errorf("reading leaves %d files open", after-before)
	}
	for _, test := range []struct {
		name, want string
		asks       func(attach.Question) error
	}{
		{"pfard has gone", "pfard does not answer", func(attach.Question) error { return errors.New("broken pipe") }},
		{"pfard refuses", "the disk is full", func(q attach.Question) error {
			o.site.archive.answer(q.Number, archived{attach.Records{Error: "the disk is full\x1b"}, nil})
			return nil
		}},
		{"a file is missing", "files are missing", func(q attach.Question) error {
			o.site.archive.answer(q.Number, archived{attach.Records{Chains: []string{"a", "b"}}, opened()})
			return nil
		}},
	} {
		o.site.archive.asks = test.asks
		page := o.page("audit")
		if !strings.Contains(page, "Not everything is shown") || !strings.Contains(page, test.want) ||
			!strings.Contains(page, "run pfar audit") || strings.Contains(page, "\x1b") ||
			strings.Contains(page, "No record fits") || strings.Contains(page, "Nothing has been recorded") {
			t.Errorf("%s: %s", test.name, page)
		}
	}
	o.site.archive.answer(1<<40, archived{attach.Records{Chains: []string{"a"}}, opened()}) // nobody has asked that
	var late attach.Question
	ctx, cancel := context.WithCancel(t.Context())
	o.site.archive.asks = func(q attach.Question) error { late = q; cancel(); return nil }
	if _, err := o.site.archive.open(ctx); err == nil {
		t.Error("an answer that has not come")
	}
	o.site.archive.asks = func(q attach.Question) error {
		o.site.archive.answer(late.Number, archived{attach.Records{Chains: []string{"a"}}, opened()})
		return hands(q)
	}
	if page := o.page("audit"); !strings.Contains(page, "notion.search") {
		t.Errorf("the answer to an earlier question is taken: %s", page)
	}
	o.site.archive.reads <- struct{}{} // another page is reading
	o.site.archive.asks = func(attach.Question) error { t.Error("two pages read at a time"); return nil }
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := o.site.archive.read(ctx, nil); err == nil || !strings.Contains(err.Error(), "another page reads files") {
		t.Errorf("while another page reads: %v", err)
	}
	if after := descriptors(t, o.dir.Path); after > before {
		t.Errorf("%d files stay open", after-before)
	}
}

// TestUnclosed: a call that has not ended stands where it began, and pushes out nothing newer.
func TestUnclosed(t *testing.T) {
	list := []audit.Record{records()[3]}
	for i := range maxAudit {
		r := records()[1]
		r.Tool = fmt.Sprintf("tool%d", i)
		list = append(list, r)
	}
	page := openAudit(t, list...).page("audit")
	if strings.Contains(page, "notion.update") || !strings.Contains(page, fmt.Sprintf("tool%d ", maxAudit-1)) {
		t.Errorf("the oldest call is there, or the newest is not: %s", page)
	}
}

// TestLongStory: of many records of one call the first and the last are shown, and the page says that some are missing.
func TestLongStory(t *testing.T) {
	list := []audit.Record{records()[0]}
	for i := range 2 * maxStory {
		list = append(list, audit.Record{Kind: audit.Retry, ID: allowedID, Reason: fmt.Sprintf("try%d", i)})
	}
	page := openAudit(t, append(list, records()[2])...).page("record/" + allowedID)
	for _, want := range []string{"Not all of this call is shown", "pfar explain " + allowedID, "try0", "ok, 2.0 KiB"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if strings.Contains(page, "under way") || strings.Contains(page, fmt.Sprintf("try%d<", maxStory)) {
		t.Errorf("%s", page)
	}
}

// TestHugeRecords: a gateway that was taken over writes what pfar never would. The pages stay small, and leave out what
// is too long.
func TestHugeRecords(t *testing.T) {
	o := openAudit(t, records()...)
	path := filepath.Join(o.dir.Path, "gateway-000001.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw := func(id, more string) string {
		return `{"seq":9,"prev":"` + audit.Zero + `","time":"2026-05-01T13:00:00Z","writer":"gateway","kind":"open","id":"` +
			id + `","outcome":"denied",` + more + "}\n"
	}
	const long, many, wide = "1ng41j6dddddddddddd", "1ng41j7eeeeeeeeeeee", "1ng41j8ffffffffffff"
	huge := string(text) + raw(many, `"findings":[`+strings.Repeat("{},", maxRecord/4)+`{}]`) +
		raw(wide, `"reason":"`+strings.Repeat("'", maxRecord-1<<10)+`"`) +
		raw(long, `"reason":"`+strings.Repeat("x", maxRecord)+`"`)
	if err := os.WriteFile(path, []byte(huge), 0o600); err != nil {
		t.Fatal(err)
	}
	page := o.page("audit")
	if !strings.Contains(page, "record/"+many) || !strings.Contains(page, "record/"+wide) ||
		strings.Contains(page, long) || len(page) > 64<<10 {
		t.Errorf("%d bytes: %.3000s", len(page), page)
	}
	if page := o.page("record/" + many); !strings.Contains(page, "Not all of this call is shown") || len(page) > 64<<10 {
		t.Errorf("%d bytes", len(page))
	}
}

// hostile sets the texts of records that a server, a client, a declaration, a model or a gateway that was taken over
// can set.
var hostile = map[string]func(r []audit.Record, text string){
	"texts": func(r []audit.Record, text string) {
		r[0].Client, r[0].Session, r[0].Server, r[0].Tool, r[0].Method = text, text, text, text, text
		r[0].Arguments.Text, r[0].Decision.Reason, r[0].Decision.Fired[1] = text, text, "also "+text
		r[2].Outcome, r[2].Approver, r[1].Findings[0].Detail = "ok "+text, text, text
	},
	"kind": func(r []audit.Record, text string) { r[3].Kind = audit.Kind(text) },
}

// TestHostileAudit is TestHostileTexts for the pages of the audit.
func TestHostileAudit(t *testing.T) {
	for name, fill := range hostile {
		look := func(text string) (shapes [][]string) {
			list := records()
			fill(list, text)
			o := openAudit(t, list...)
			for _, path := range []string{"audit", "audit/follow", "record/" + allowedID, "record/" + deniedID} {
				a := o.do("GET", o.home+path, "")
				guarded(t, a.h)
				plainText(t, name, a.text)
				shapes = append(shapes, shape(t, strings.ReplaceAll(a.text, o.home, "/")))
			}
			return shapes
		}
		want := look("not plain, and no name")
		for _, text := range loopbacktest.PayloadsOf(name, loopbacktest.Few) {
			for i, got := range look(text) {
				if !slices.Equal(got, want[i]) {
					t.Errorf("%s, %.60q: page %d is %q, want %q", name, text, i, got, want[i])
				}
			}
		}
	}
}
