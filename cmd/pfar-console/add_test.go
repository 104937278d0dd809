package main

import (
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
)

func offers() []attach.Offer {
	return []attach.Offer{
		{Name: "crm", Title: "CRM", Summary: "Your customers", Runs: "npm:crm@1", Reaches: []string{"api.crm.example"},
			Secrets: []string{"CRM_TOKEN: Make one."}, Page: true},
		{Name: "files", Title: "Files", Summary: "A folder", Runs: "npm:files@2"},
		{Name: "notes", Title: "Notes", Summary: "What you write down", Runs: "npm:notes@3", Page: true},
	}
}

// TestAdd: the page shows the catalogue. Who runs pfard has a button for each service that a one-time page can set up
// and that is not declared; the next page has the link of that page, once.
func TestAdd(t *testing.T) {
	o := openServers(t)
	path := o.home + "add"
	if page := o.do("GET", path, "").text; !strings.Contains(page, "pfard has not said yet") {
		t.Errorf("without a catalogue: %s", page)
	}
	o.site.known.Store(&attach.Known{Offers: offers()})
	page := o.do("GET", path, "").text
	for _, want := range []string{
		"CRM: Your customers", "npm:crm@1", "api.crm.example", "CRM_TOKEN: Make one.", "pfar add crm", "pfar add files",
		`href="` + o.home + `server/notes"`, `aria-current="page">Add`,
	} {
		if !strings.Contains(html.UnescapeString(page), want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, `value="add"`) {
		t.Errorf("a user who may not add services has a button: %s", page)
	}
	turn := field.FindStringSubmatch(page)[2]
	form := "act=add&turn=" + turn
	asked := make(chan attach.Order, 9)
	o.site.orders.sends = func(o attach.Order) error { asked <- o; return nil }
	o.do("POST", o.home+"add/crm", form)
	if page := o.do("GET", path, "").text; !strings.Contains(page, "only the user who runs pfard may do this") {
		t.Errorf("it is not refused: %s", page)
	}
	o.site.orders.allowed.Store(true)
	page = o.do("GET", path, "").text
	if n := strings.Count(page, `value="add"`); n != 1 || !strings.Contains(page, `action="`+o.home+`add/crm"`) {
		t.Errorf("%d buttons: %s", n, page)
	}
	const link = "http://127.0.0.1:19301/ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for answer, want := range map[attach.Ordered]string{
		{Link: link}:                           `href="` + link + `"`,
		{Error: "another <b>set-up</b> is on"}: "Nothing was done: another <b>set-up</b> is on",
		{}:                                     "Nothing was done: pfard opened no one-time page",
	} {
		go func() {
			got := <-asked
			if got.Act != attach.OrderAdd || got.Server != "crm" {
				answer = attach.Ordered{Error: "wrong order"}
			}
			answer.Question = got.Question
			o.site.orders.answer(answer.Number, answer)
		}()
		if a := o.do("POST", o.home+"add/crm", form); a.code != 303 || a.h.Get("Location") != path {
			t.Errorf("%+v: %d %s", answer, a.code, a.text)
		}
		if page := html.UnescapeString(o.do("GET", path, "").text); !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
	if page := o.do("GET", path, "").text; strings.Contains(page, link) {
		t.Errorf("the link is told twice: %s", page)
	}
	for form, code := range map[string]int{
		"act=start&turn=" + turn: 400, "act=add&turn=other": 403, "act=add&act=add&turn=" + turn: 400,
	} {
		if a := o.do("POST", o.home+"add/crm", form); a.code != code || len(asked) > 0 {
			t.Errorf("%s: %d, want %d", form, a.code, code)
		}
	}
	for path, code := range map[string]int{"add/..": 404, "add/": 404, "add/crm": 405} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
}
