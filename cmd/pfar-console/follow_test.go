package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
)

// adds writes another record of a denied call into the audit, of a server.
func (o *opened) adds(n int, server string) {
	o.t.Helper()
	path := filepath.Join(o.dir.Path, "gateway-000001.jsonl")
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		o.t.Fatal(err)
	}
	defer f.Close()
	const record = `{"seq":%d,"prev":"%s","time":"2026-05-01T13:%02[1]d:00Z","writer":"gateway","kind":"open",` +
		`"id":"1ng41j%[1]dxxxxxxxxxxxx","client":"other","server":"%[3]s","tool":"tool%[1]d","outcome":"denied",` +
		`"decision":{"verdict":"deny","reason":"secret to public"}}` + "\n"
	if _, err := fmt.Fprintf(f, record, n, audit.Zero, server); err != nil {
		o.t.Fatal(err)
	}
}

// TestFollow: the page of the audit leads to one that loads itself again when a record comes that fits its filter. That
// page has a link that reads the records anew without script, keeps its filter, and leads back.
func TestFollow(t *testing.T) {
	o := openAudit(t, records()...)
	for path, code := range map[string]int{
		"audit/follow/": 404, "audit/follow/follow": 404, "audit/verdict=deny/follow": 404, "audit/followed": 404,
		"audit/follow/x=y": 404, "audit/follow/verdict=maybe": 404, "audit/Follow": 404, "audit//follow": 404,
	} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	link := func(path string) string { return `href="` + o.home + path + `"` }
	const reload = `data-reload="yes"`
	still := o.page("audit/verdict=deny")
	if strings.Contains(still, reload) || !strings.Contains(still, link("audit/follow/verdict=deny")) {
		t.Errorf("a page that does not follow: %s", still)
	}
	const at = "audit/follow/server=mail"
	page := o.page(at)
	for _, want := range []string{
		reload, `data-events="` + o.home + "events?" + at + `"`, link(at), link("audit/server=mail"),
		link("audit/follow/verdict=deny/server=mail"), link("audit/follow"), "mail.send", `aria-current="page">Audit`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "notion.search") || !strings.Contains(o.page("audit/follow"), "notion.search") {
		t.Errorf("the filter does not hold: %s", page)
	}
	before := seen.FindStringSubmatch(page)[1]
	o.adds(21, "notion")
	if now := o.page(at); seen.FindStringSubmatch(now)[1] != before || strings.Contains(now, "tool21") {
		t.Errorf("a record that does not fit changes the page: %s", now)
	}
	o.adds(22, "mail")
	if now := o.page(at); seen.FindStringSubmatch(now)[1] == before || !strings.Contains(now, "mail.tool22") {
		t.Errorf("a record that fits does not: %s", now)
	}
}
