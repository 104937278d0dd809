package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
)

// views has pfard answer each view with a text, with the JSON of a value or with a file, by "WHAT SUBJECT", and refuse
// all others. Of servers that are not named it says that they stand still.
func (o *opened) views(all map[string]any) {
	o.site.archive.asksView = func(v attach.View) error {
		r := attach.Records{Question: v.Question}
		value, known := all[strings.TrimSpace(v.What+" "+v.Subject)]
		if !known && v.What == attach.ViewUsage {
			value, known = attach.Usage{}, true
		}
		if file, given := value.(func() *os.File); given {
			go o.site.archive.answer(v.Number, archived{r, []*os.File{file()}})
			return nil
		}
		if err, refused := value.(error); refused || !known {
			if r.Error = "pfard has no such view"; refused {
				r.Error = err.Error()
			}
			go o.site.archive.answer(v.Number, archived{r, nil})
			return nil
		}
		text, given := value.(string)
		if !given {
			b, err := json.Marshal(value)
			if err != nil {
				return err
			}
			text = string(b)
		}
		f, err := units.Sealed("view", []byte(text))
		if err != nil {
			return err
		}
		go o.site.archive.answer(v.Number, archived{r, []*os.File{f}})
		return nil
	}
}

// viewed has pfard hand over a text when it is asked for that view of a subject.
func (o *opened) viewed(what, subject, text string) {
	o.views(map[string]any{strings.TrimSpace(what + " " + subject): text})
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
	o.views(map[string]any{"explain other": errors.New("no such server: <b>")})
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
	for _, text := range loopbacktest.PayloadsOf("explain", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
