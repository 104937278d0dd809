package main

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/chores"
)

// TestAllow: who runs pfard lets a server reach a host that it was refused, after a question, and no other host. If
// what the server may reach has changed meanwhile, nothing is done.
func TestAllow(t *testing.T) {
	o := openServers(t)
	given := o.orders()
	const host = "cdn.example.com"
	at := o.home + "allow/notes/" + url.PathEscape(host)
	notice := func() string { return html.UnescapeString(o.do("GET", o.home+"wants", "").text) }
	if a := o.do("GET", at, ""); a.code != 303 || strings.Contains(notice(), at) {
		t.Errorf("who may order nothing is asked: %d %s", a.code, a.text)
	}
	o.views(map[string]any{"lesson notes": chores.Learning{}})
	o.site.orders.allowed.Store(true)
	if page := notice(); !strings.Contains(page, `href="`+at+`"`) {
		t.Errorf("no button: %s", page)
	}
	asked := o.do("GET", at, "").text
	page := html.UnescapeString(asked)
	for _, want := range []string{"Let notes reach " + host + "?", "/etc/pfar/mcp.d/notes.hcl"} {
		if !strings.Contains(page, want) {
			t.Errorf("the question has no %q: %s", want, page)
		}
	}
	turn := field.FindStringSubmatch(asked)[2]
	form := func(seen string) string { return "act=allow&turn=" + turn + "&seen=" + seen }
	seen := seenOfReview.FindStringSubmatch(asked)[1]
	for path, code := range map[string]int{
		"allow/notes/": 404, "allow/": 404, "allow/../x": 404, "allow/notes/evil.example": 303, "allow/mail/" + host: 303,
	} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	for path, body := range map[string]string{
		at: form(strings.Repeat("0", 64)), o.home + "allow/notes/evil.example": form(seen),
		o.home + "allow/mail/" + host: form(seen),
	} {
		o.do("POST", path, body)
		if page := notice(); !strings.Contains(page, "Nothing was done") || len(given) > 0 {
			t.Errorf("%s: %s", path, page)
		}
	}
	if a := o.do("POST", at, "act=start&turn="+turn+"&seen="+seen); a.code != 400 || len(given) > 0 {
		t.Errorf("another act: %d", a.code)
	}
	changed := reported()
	changed.Servers[1].Domains = []string{"api.example.com"}
	o.site.runs.set(changed)
	if o.do("POST", at, form(seen)); !strings.Contains(notice(), "it has changed since you were asked") || len(given) > 0 {
		t.Error("it is done although the server may reach something else by now")
	}
	o.site.runs.set(reported())
	if o.do("POST", at, form(seen)); !strings.Contains(notice(), "notes may reach "+host) {
		t.Errorf("%s", notice())
	}
	if got := <-given; got != (attach.Order{Act: attach.OrderAllow, Server: "notes", Host: host}) {
		t.Errorf("pfard gets %+v", got)
	}
	gone := reported()
	gone.Servers[1].Refusals = []egress.Refusal{}
	o.site.runs.set(gone)
	if o.do("POST", at, form(seen)); !strings.Contains(notice(), "does not want this host any more") || len(given) > 0 {
		t.Error("it is done although the server does not want the host")
	}
}
