package main

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-console/entrance"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// TestLinkToACall: the link of a notice leads through the sign-in to the one call, and to nothing before it. It tells
// nobody whether there is that call.
func TestLinkToACall(t *testing.T) {
	r := newRemote(t)
	call := tempting()
	r.gateway.calls = append(r.gateway.calls, call)
	at := "/call/" + call.ID
	w := r.visits(http.MethodGet, at, nil)
	text := w.Body.String()
	if w.Code != http.StatusOK || !strings.Contains(text, `action="`+at+`"`) || strings.Contains(text, "x@evil.test") ||
		len(w.Result().Cookies()) != 0 {
		t.Fatalf("before the sign-in: %d %s", w.Code, text)
	}
	other := "/call/" + operator.NewID()
	if w := r.visits(http.MethodGet, other, nil); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `action="`+other+`"`) {
		t.Errorf("the link of a call that there is not: %d %s", w.Code, w.Body)
	}
	form := func() url.Values {
		text, challenge := r.challenge(at)
		return url.Values{"challenge": {text}, "proof": {string(r.alice.Sign(challenge))}, "act": {"go"}}
	}
	bad := form()
	bad.Set("proof", "{}")
	if w := r.visits(http.MethodPost, at, bad); len(w.Result().Cookies()) != 0 ||
		!strings.Contains(w.Body.String(), `action="`+at+`"`) {
		t.Errorf("a passkey that is none: %d %s", w.Code, w.Body)
	}
	w = r.visits(http.MethodPost, at, form())
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || len(cookies) != 1 {
		t.Fatalf("signing in: %d %s", w.Code, w.Body)
	}
	r.cookie, r.home = cookies[0], cookies[0].Path
	if to := w.Header().Get("Location"); to != r.home+"call/"+call.ID {
		t.Fatalf("the sign-in leads to %s", to)
	}
	if w := r.visits(http.MethodGet, w.Header().Get("Location"), nil); !strings.Contains(w.Body.String(), "x@evil.test") {
		t.Errorf("the call's page: %d %s", w.Code, w.Body)
	}
	if got := r.gateway.got(); len(got) != 0 {
		t.Errorf("a link answers a call: %q", got)
	}
	r.knows("")
	if w := r.visits(http.MethodGet, r.home+"call/"+call.ID, nil); w.Code != http.StatusSeeOther ||
		w.Header().Get("Location") != at {
		t.Errorf("after the session: %d, to %s", w.Code, w.Header().Get("Location"))
	}
}

// TestLinksLeadNowhereElse: a link has the id of a call and nothing else, and no other address leads to the sign-in.
func TestLinksLeadNowhereElse(t *testing.T) {
	r := newRemote(t)
	id := operator.NewID()
	for _, path := range []string{
		"/call/", "/call/" + id + "/", "/call/" + id + "x", "/call/" + strings.ToUpper(id), "/call/" + id + "?to=//evil.test",
		"/call/" + id + "/../../evil", "/call//evil.test", "/call/https://evil.test", "/call/%2f%2fevil.test",
		"/call/" + id + "%0d%0aSet-Cookie:%20a=b", "/call/%22%3E%3Cscript%3E", "//evil.test/call/" + id, "/calls/" + id,
		"/Call/" + id, "/call/" + strings.Repeat("-", len(id)), "/call/" + strings.Repeat("a", len(id)),
		"/sign-in/" + id, "/sign-in?call=" + id, "/?call=" + id,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := r.visits(method, path, url.Values{"act": {"go"}})
			if w.Code != http.StatusNotFound || w.Header().Get("Location") != "" || strings.Contains(w.Body.String(), "evil") {
				t.Errorf("%s %s: %d %s %s", method, path, w.Code, w.Header().Get("Location"), w.Body)
			}
		}
	}
	at := "/call/" + id
	text, challenge := r.challenge(at)
	good := url.Values{"challenge": {text}, "proof": {string(r.alice.Sign(challenge))}, "act": {"go"}}
	for name, change := range map[string]func(*http.Request){
		"another page's form": func(q *http.Request) { q.Header.Set("Origin", "https://evil.example") },
		"another site's":      func(q *http.Request) { q.Header.Set("Sec-Fetch-Site", "cross-site") },
		"a script":            func(q *http.Request) { q.Header.Set("Sec-Fetch-Dest", "empty") },
		"another name":        func(q *http.Request) { q.Host = "evil.example:7443" },
		"no TLS":              func(q *http.Request) { q.TLS = nil },
	} {
		if w := r.visits(http.MethodPost, at, good, change); len(w.Result().Cookies()) != 0 || w.Code < 400 {
			t.Errorf("%s signs in: %d", name, w.Code)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"a frame":      func(q *http.Request) { q.Header.Set("Sec-Fetch-Dest", "iframe") },
		"another name": func(q *http.Request) { q.Host = "evil.example:7443" },
	} {
		if w := r.visits(http.MethodGet, at, nil, change); w.Code < 400 {
			t.Errorf("%s shows the sign-in: %d", name, w.Code)
		}
	}
	for rest, want := range map[string]string{
		"call/" + id: passkey.CallPath + id, "": "/", "wants": "/", "call/": "/", "call/x": "/", "/evil.test": "/",
		"/evil.test/call/" + id: "/", "call/" + id + "/x": "/",
	} {
		if got := entrance.PathTo(rest); got != want {
			t.Errorf("%q leads to %s, want %s", rest, got, want)
		}
	}
}

// TestNoLinksOnLoopback: the pages for the user of this machine have no address that leads to a sign-in.
func TestNoLinksOnLoopback(t *testing.T) {
	call := tempting()
	o := open(t, call)
	o.enter()
	if a := o.do("GET", "/call/"+call.ID, ""); a.code != http.StatusNotFound || strings.Contains(a.text, call.Digest) {
		t.Errorf("%d %s", a.code, a.text)
	}
}

// TestLinkFromAFile: a browser that comes from another page, such as the file of pfar console, gets a page that leads
// on, as it would follow a redirect without its cookie. Who has come in is told, once.
func TestLinkFromAFile(t *testing.T) {
	o := open(t)
	var used []string
	o.site.links.used = func(nonce string) { used = append(used, nonce) }
	nonce, late := page.NewNonce(), page.NewNonce()
	o.site.invite(nonce)
	o.site.invite(late)
	a := o.do("GET", page.Path(nonce), "", "Sec-Fetch-Site", "cross-site")
	cookie, _, _ := strings.Cut(a.h.Get("Set-Cookie"), ";")
	refresh := regexp.MustCompile(`http-equiv="refresh" content="0; url=(/c/[A-Z0-9]+/)"`).FindStringSubmatch(a.text)
	if a.code != 200 || refresh == nil || !strings.Contains(a.text, `href="`+refresh[1]+`"`) ||
		strings.Contains(a.text, "<script") || strings.Contains(a.text, nonce) {
		t.Fatalf("%d %s", a.code, a.text)
	}
	guarded(t, a.h)
	if b := o.do("GET", refresh[1], "", "Cookie", cookie); b.code != 200 {
		t.Errorf("the page behind it: %d", b.code)
	}
	for _, path := range []string{page.Path(nonce), page.Path(page.NewNonce())} {
		if b := o.do("GET", path, "", "Sec-Fetch-Site", "cross-site"); b.code != 404 || b.h.Get("Set-Cookie") != "" {
			t.Errorf("a link that is none: %d", b.code)
		}
	}
	o.now = o.now.Add(page.LinkTime)
	if b := o.do("GET", page.Path(late), "", "Sec-Fetch-Site", "cross-site"); b.code != 404 {
		t.Errorf("too late: %d", b.code)
	}
	if !slices.Equal(used, []string{nonce}) {
		t.Errorf("%d links were used", len(used))
	}
}
