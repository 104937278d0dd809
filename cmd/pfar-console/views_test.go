package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// viewed has pfard hand over a text when it is asked for that view of a subject.
func (o *opened) viewed(what, subject, text string) {
	o.t.Helper()
	path := filepath.Join(o.t.TempDir(), "view")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.site.archive.asksView = func(v attach.View) error {
		if v.What != what || v.Subject != subject {
			o.t.Errorf("it asks for %+v", v)
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		go o.site.archive.answer(v.Number, archived{attach.Records{Question: v.Question}, []*os.File{f}})
		return nil
	}
}

// TestExplain: the page of a server leads to what pfar explain says of it, to whoever may open the console. A text that
// is too long is not shown as if it were whole.
func TestExplain(t *testing.T) {
	o := openServers(t)
	o.viewed(attach.ViewExplain, "notes", "notes runs node.\nIt sleeps.\n\nFiles:\n  - /srv <b>\n")
	path := o.home + "explain/notes"
	if page := o.do("GET", o.home+"server/notes", "").text; !strings.Contains(page, `href="`+path+`"`) {
		t.Errorf("the page of the server does not lead there: %s", page)
	}
	page := o.page("explain/notes")
	for _, want := range []string{
		`<p><span class="text">notes runs node.</span><span class="text">It sleeps.</span></p>`,
		`<p><span class="text">Files:</span><span class="text">  - /srv <b></span></p>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if strings.Contains(page, "longer text") {
		t.Errorf("a whole text: %s", page)
	}
	o.viewed(attach.ViewExplain, "notes", strings.Repeat("x", maxView)+"\nend\n")
	if page := o.page("explain/notes"); !strings.Contains(page, "to see all of it, run pfar explain notes") {
		t.Errorf("a text that is too long: %.2000s", page)
	}
	o.site.archive.asksView = func(v attach.View) error {
		go o.site.archive.answer(v.Number, archived{attach.Records{Error: "no such server: <b>"}, nil})
		return nil
	}
	if page := html.UnescapeString(o.page("explain/other")); !strings.Contains(page, "no such server: <b>") {
		t.Errorf("when pfard refuses: %s", page)
	}
}

// TestHostileExplain is TestHostileTexts for an explanation, which quotes a declaration.
func TestHostileExplain(t *testing.T) {
	o := openServers(t)
	look := func(text string) []string {
		o.viewed(attach.ViewExplain, "notes", "notes runs "+strings.ReplaceAll(text, "\n", " ")+".\n\nend\n")
		a := o.do("GET", o.home+"explain/notes", "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%.60q", text), a.text)
		return shape(t, a.text)
	}
	want := look("plain")
	for _, text := range loopbacktest.Payloads {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
