package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	o.site.archive.asks = func() error {
		var r attach.Records
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
		go o.site.archive.answer(r, files)
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
		"notion.update  (it is sent)  not closed", "notion.search  by claude/default  ok, 2.0 KiB",
		"mail.send  by other  (secret to public)",
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
	if n := strings.Count(page, "/server=server"); n > maxOptions {
		t.Errorf("it offers %d servers", n)
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

// TestNoAudit: without files the page says so, and leaves no files open.
func TestNoAudit(t *testing.T) {
	o := openAudit(t)
	for name, asks := range map[string]func() error{
		"pfard has gone": func() error { return errors.New("broken pipe") },
		"pfard refuses":  func() error { o.site.archive.answer(attach.Records{Error: "no\x1b"}, nil); return nil },
		"a file is missing": func() error {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			o.site.archive.answer(attach.Records{Chains: []string{"a", "b"}}, []*os.File{f})
			return nil
		},
	} {
		o.site.archive.asks = asks
		if page := o.page("audit"); !strings.Contains(page, "Not everything is shown") ||
			!strings.Contains(page, "pfar audit") || strings.Contains(page, "\x1b") {
			t.Errorf("%s: %s", name, page)
		}
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	o.site.archive.answer(attach.Records{Chains: []string{"a"}}, []*os.File{f}) // nobody waits for it
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a file that nobody wants stays open: %v", err)
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
			for _, path := range []string{"audit", "record/" + allowedID, "record/" + deniedID} {
				a := o.do("GET", o.home+path, "")
				guarded(t, a.h)
				plainText(t, name, a.text)
				shapes = append(shapes, shape(t, strings.ReplaceAll(a.text, o.home, "/")))
			}
			return shapes
		}
		want := look("not plain, and no name")
		for _, text := range loopbacktest.Payloads {
			for i, got := range look(text) {
				if !slices.Equal(got, want[i]) {
					t.Errorf("%s, %.60q: page %d is %q, want %q", name, text, i, got, want[i])
				}
			}
		}
	}
}
