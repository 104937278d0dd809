package main

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units/attach"
)

// orders returns the forms of a page for an act, and sends one and returns the page after it.
func (r *remote) orders(at string) (form func(act string) url.Values, send func(url.Values) string) {
	r.t.Helper()
	page := r.visits(http.MethodGet, r.home+at, nil)
	turn, seen := fieldOf(r.t, page, turnField), fieldOf(r.t, page, seenField)
	form = func(act string) url.Values { return url.Values{"turn": {turn}, "act": {act}, "seen": {seen}} }
	send = func(f url.Values) string {
		r.t.Helper()
		if w := r.visits(http.MethodPost, r.home+at, f); w.Code != http.StatusSeeOther {
			r.t.Errorf("%v: %d %s", f, w.Code, w.Body)
		}
		return html.UnescapeString(r.visits(http.MethodGet, r.home, nil).Body.String())
	}
	return form, send
}

// TestSignedOrders: who may change has the buttons that start and stop servers and allow hosts. pfard gets such an
// order with her signature over exactly that, by a nonce of pfard's.
func TestSignedOrders(t *testing.T) {
	r := newRemote(t)
	r.site.runs.set(reported())
	r.knows(passkey.Change)
	r.signIn()
	const server, allow = "server/notes", "allow/notes/cdn.example.com"
	form, send := r.orders(server)
	changed := r.signs(server, form("stop"), r.alice)
	changed.Set("act", "restart")
	for name, f := range map[string]url.Values{
		"no signature":        form("stop"),
		"a stranger's":        r.signs(server, form("stop"), passkeytest.New(t, away)),
		"one for another act": changed,
		"a nonce of one's own": func() url.Values {
			f := r.signs(server, form("stop"), r.alice)
			f.Set("nonce", operatorNonce())
			return f
		}(),
	} {
		if page := send(f); !strings.Contains(page, "Nothing was done") {
			t.Errorf("%s: %s", name, page)
		}
	}
	if len(r.ordered) > 0 {
		t.Fatalf("without her signature is ordered %+v", r.ordered)
	}
	good := r.signs(server, form("stop"), r.alice)
	if page := send(good); !strings.Contains(page, "notes is stopping.") {
		t.Errorf("signed: %s", page)
	}
	if page := send(good); !strings.Contains(page, "Nothing was done") {
		t.Errorf("signed once, and sent twice: %s", page)
	}
	if page := r.visits(http.MethodGet, r.home+"wants", nil).Body.String(); !strings.Contains(page, r.home+allow) ||
		strings.Contains(page, r.home+"enter") {
		t.Errorf("the page has not the right buttons: %s", page)
	}
	form, send = r.orders(allow)
	if page := send(r.signs(allow, form("allow"), r.alice)); !strings.Contains(page, "notes may reach cdn.example.com") {
		t.Errorf("a host: %s", page)
	}
	want := []attach.Order{
		{Act: attach.OrderStop, Server: "notes"},
		{Act: attach.OrderAllow, Server: "notes", Host: "cdn.example.com"},
	}
	for i, o := range r.ordered {
		if o.Question, o.Proof = (attach.Question{}), nil; i >= len(want) || o != want[i] {
			t.Errorf("pfard gets %+v", o)
		}
	}
	if len(r.ordered) != len(want) || len(r.nonces) > 0 {
		t.Errorf("pfard gets %d orders, and the gateway gave %d nonces", len(r.ordered), len(r.nonces))
	}
}

// TestOrdersOfRoles: nobody but who may change is shown a button. What is done on the machine alone is neither shown
// nor signed.
func TestOrdersOfRoles(t *testing.T) {
	r := newRemote(t)
	now := reported()
	now.Servers[0].Owed = signInDue(true)
	r.site.runs.set(now)
	r.knows(passkey.Look)
	r.signIn()
	const allow = "allow/notes/cdn.example.com"
	unsigned := func(at string, form url.Values) {
		t.Helper()
		form.Set("turn", fieldOf(t, r.visits(http.MethodGet, r.home, nil), turnField))
		asked := r.visits(http.MethodPost, r.home+"sign/"+at, form, func(q *http.Request) {
			q.Header.Set("Sec-Fetch-Dest", "empty")
			q.Header.Set("Sec-Fetch-Mode", "cors")
		})
		if asked.Code != http.StatusOK || strings.Contains(asked.Body.String(), "options") {
			t.Errorf("%s is to be signed: %d %s", at, asked.Code, asked.Body)
		}
		r.visits(http.MethodPost, r.home+at, form)
	}
	for _, role := range []passkey.Role{passkey.Look, passkey.Approve} {
		r.knows(role)
		for _, at := range []string{"server/notes", "server/mail", "wants"} {
			page := r.visits(http.MethodGet, r.home+at, nil).Body.String()
			for _, button := range []string{
				`value="start"`, `value="stop"`, `value="restart"`, `value="enter"`, r.home + "allow/",
			} {
				if strings.Contains(page, button) {
					t.Errorf("%s: %s has %s", role, at, button)
				}
			}
		}
		unsigned("server/notes", url.Values{"act": {attach.OrderRestart}, "seen": {"up"}})
		unsigned(allow, url.Values{"act": {attach.OrderAllow}})
		if w := r.visits(http.MethodGet, r.home+allow, nil); w.Code != http.StatusSeeOther {
			t.Errorf("%s is asked about a host: %d %s", role, w.Code, w.Body)
		}
		page := html.UnescapeString(r.visits(http.MethodGet, r.home+"wants", nil).Body.String())
		if !strings.Contains(page, "this needs the role change") {
			t.Errorf("%s is not told why: %s", role, page)
		}
	}
	r.knows(passkey.Change)
	if w := r.visits(http.MethodGet, r.home+"wants", nil).Body.String(); strings.Contains(w, `value="enter"`) ||
		!strings.Contains(w, "pfar login acme") {
		t.Errorf("the sign-in of a server, for another machine: %s", w)
	}
	page := r.visits(http.MethodGet, r.home+"server/notes", nil)
	for _, local := range []string{r.home + "log/", r.home + "learn/"} {
		if strings.Contains(page.Body.String(), local) {
			t.Errorf("the page leads to %s", local)
		}
	}
	for _, at := range []string{
		"learn/notes", "import/cursor", "learned/notes/cdn.example.com", "allow/notes/evil.example",
	} {
		if w := r.visits(http.MethodGet, r.home+at, nil); w.Code != http.StatusSeeOther {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
	}
	for at, form := range map[string]url.Values{
		"enter/mail": {"act": {attach.OrderSecrets}},
		"add/notion": {"act": {attach.OrderAdd}},
		"clients":    {"act": {attach.OrderClient}, "name": {"x"}, "servers": {"*"}},

		"learn/notes":   {"act": {attach.OrderLearn}},
		"import/cursor": {"act": {attach.OrderImport}, "seen": {strings.Repeat("ab", 32)}},
	} {
		unsigned(at, form)
		if now := r.visits(http.MethodGet, r.home, nil).Body.String(); !strings.Contains(now, passkey.ErrElsewhere.Error()) {
			t.Errorf("%s: %s", at, now)
		}
	}
	if len(r.ordered)+len(r.given) > 0 {
		t.Errorf("pfard gets %+v", r.ordered)
	}
}
