package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// logged has pfard hand over a log with a text.
func (o *opened) logged(text string) {
	o.t.Helper()
	o.viewed(attach.ViewLog, "notes", text)
}

// TestLog: the user who runs pfard sees the end of a server's log, and whether there are earlier lines.
func TestLog(t *testing.T) {
	o := openServers(t)
	o.logged("10:00 | one\n10:01 two\n")
	path := o.home + "log/notes"
	if a := o.do("GET", path, ""); a.code != 303 || a.h.Get("Location") != o.home+"servers" {
		t.Errorf("who does not run pfard: %d %s", a.code, a.text)
	}
	o.site.orders.allowed.Store(true)
	if page := o.do("GET", o.home+"server/notes", "").text; !strings.Contains(page, `href="`+path+`"`) {
		t.Errorf("the page of the server does not lead there: %s", page)
	}
	page := html.UnescapeString(o.page("log/notes"))
	if !strings.Contains(page, ">10:00 | one<") || !strings.Contains(page, ">10:01 two<") ||
		strings.Contains(page, "the end of the log") {
		t.Errorf("the log: %s", page)
	}
	var long strings.Builder
	for i := range 3 * maxLogLines {
		fmt.Fprintf(&long, "line %d\n", i)
	}
	for name, text := range map[string]string{
		"many lines": long.String(), "a long line": strings.Repeat("x", maxView) + "\nline 1199\n",
	} {
		o.logged(text)
		page := o.page("log/notes")
		if n := strings.Count(page, "text line"); n > maxLogLines || !strings.Contains(page, ">line 1199<") ||
			strings.Contains(page, ">line 7<") || !strings.Contains(page, "the end of the log") ||
			!strings.Contains(page, "pfar logs -n -1 notes") {
			t.Errorf("%s: %d lines: %.2000s", name, n, page)
		}
	}
	o.logged("")
	if page := o.page("log/notes"); !strings.Contains(page, "The log is empty") {
		t.Errorf("an empty log: %s", page)
	}
	o.views(map[string]any{"log notes": errors.New("it is a <b>pipe</b>")})
	if page := o.page("log/notes"); !strings.Contains(page, "the console cannot read the log: it is a <b>pipe</b>") ||
		strings.Contains(page, "The log is empty") {
		t.Errorf("when pfard refuses: %s", page)
	}
	o.site.orders.allowed.Store(false)
	now := reported()
	now.Journal = true
	o.site.runs.set(now)
	o.logged("of the journal\n")
	if page := o.do("GET", o.home+"server/notes", "").text; !strings.Contains(page, `href="`+path+`"`) {
		t.Errorf("a log in the journal: %s", page)
	}
	if page := o.page("log/notes"); !strings.Contains(page, ">of the journal<") {
		t.Errorf("the journal: %s", page)
	}
}

// TestHostileLog is TestHostileTexts for a log: the server chooses its lines.
func TestHostileLog(t *testing.T) {
	o := openServers(t)
	o.site.orders.allowed.Store(true)
	look := func(text string) []string {
		o.logged("10:00 | " + strings.NewReplacer("\n", " ").Replace(text) + "\n")
		a := o.do("GET", o.home+"log/notes", "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%.60q", text), a.text)
		return shape(t, a.text)
	}
	want := look("plain")
	for _, text := range loopbacktest.PayloadsOf("log", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
