package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
)

// labelledSession has read strangers' text and private data, and its client came back after long.
func labelledSession() operator.Session {
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	raw := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	both := raw.Join(gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})
	return operator.Session{
		Client: "laptop", Handle: "default", Label: both, Created: at, Used: at, Silent: 4000, Frozen: "five denials",
		Reset: at, ResetBy: "alice",
		Sources: []operator.Source{
			{Server: "web", Tool: "fetch", Call: "c1", At: at, Label: raw},
			{Server: "files", Tool: "read", Call: "c2", At: at, Label: both},
		},
	}
}

func stained() operator.Stain {
	one := labelledSession()
	by := operator.Source{
		Client: "laptop", Handle: "default", Tool: "write", Call: "c3", At: one.Created, Label: one.Label,
	}
	return operator.Stain{
		Server: "notes", Label: one.Label, Places: []string{"/srv/shared"}, Sources: []operator.Source{by},
	}
}

func openSessions(t *testing.T) *opened {
	t.Helper()
	o := open(t)
	clean := operator.Session{Client: "laptop", Handle: "k7", Label: gate.Start}
	desk := operator.Session{Client: "desk", Handle: "default", Label: gate.Start}
	o.gate.all, o.gate.stains = []operator.Session{desk, labelledSession(), clean}, []operator.Stain{stained()}
	o.enter()
	return o
}

// confirm sends the form of a question's page.
func (o *opened) confirm(path, act string, headers ...string) answer {
	o.t.Helper()
	return o.do("POST", path, o.answering(path, act), headers...)
}

// answering is the form of the page of a question, as a browser sends it.
func (o *opened) answering(path, act string) string {
	o.t.Helper()
	page := o.do("GET", path, "").text
	turn, seen := field.FindStringSubmatch(page), seenField.FindStringSubmatch(page)
	if turn == nil || seen == nil {
		o.t.Fatalf("%s has no form", path)
	}
	return "act=" + act + "&turn=" + turn[2] + "&seen=" + seen[1]
}

var seenField = regexp.MustCompile(`name="seen" value="([^"]*)"`)

// TestSessions: the page says what each session has read and from where, and each act asks first, goes to the gateway
// as it is written there, and is told.
func TestSessions(t *testing.T) {
	o := openSessions(t)
	page := html.UnescapeString(o.do("GET", o.home+"sessions", "").text)
	for _, want := range []string{
		"strangers' text (web.fetch) and sensitive data (files.read)", "public raw: web.fetch at ", "call c2",
		"nothing private, and no text of strangers", "Frozen: five denials", "came back after 1h6m0s", "by alice",
		"Also in", "/srv/shared", "laptop/default with write at ", `aria-current="page">Sessions`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, no := range []string{"do/end/laptop/default", "do/reset/laptop/k7", "do/thaw/laptop/k7", "do/reset/desk"} {
		if strings.Contains(page, no) {
			t.Errorf("it offers %s", no)
		}
	}
	for path, want := range map[string][2]string{
		"new/laptop":           {`/sessions {"client":"laptop"}`, "laptop has the session k7"},
		"reset/laptop/default": {"/sessions/laptop/default/reset {}", "laptop/default has a clean label"},
		"thaw/laptop/default":  {"/sessions/laptop/default/thaw {}", "laptop/default may call again"},
		"end/laptop/k7":        {"/sessions/laptop/k7/end {}", "laptop/k7 has ended"},
		"clear/notes":          {"/stains/notes/clear {}", "The stain of notes is removed"},
	} {
		o.gate.answers = nil
		at, act := o.home+"do/"+path, strings.Split(path, "/")[0]
		if !strings.Contains(page, `href="`+at+`"`) {
			t.Errorf("no button leads to %s", path)
		}
		if q := o.do("GET", at, ""); q.code != 200 || strings.Contains(q.text, "<script>") || len(o.gate.got()) > 0 {
			t.Errorf("%s asks: %d %s, the gateway got %q", path, q.code, q.text, o.gate.got())
		}
		a := o.confirm(at, act)
		if a.code != 303 || a.h.Get("Location") != o.home+"sessions" || !slices.Equal(o.gate.got(), []string{want[0]}) {
			t.Errorf("%s: %d %s, the gateway got %q", path, a.code, a.text, o.gate.got())
		}
		if now := o.do("GET", o.home+"sessions", "").text; !strings.Contains(now, want[1]) {
			t.Errorf("%s is not told: %s", path, now)
		}
	}
}

// TestOrderOfAnotherState: what a session has read since the question is not forgotten with the answer.
func TestOrderOfAnotherState(t *testing.T) {
	o := openSessions(t)
	at := o.home + "do/reset/laptop/default"
	if q := o.do("GET", at, "").text; !strings.Contains(q, "strangers&#39; text (web.fetch)") {
		t.Errorf("the question does not say what is forgotten: %s", q)
	}
	form := o.answering(at, "reset")
	more := &o.gate.all[slices.IndexFunc(o.gate.all, func(s operator.Session) bool {
		return s.Handle == "default" &&
			s.Client == "laptop"
	})]
	more.Sources = append(more.Sources, operator.Source{Server: "mail", Tool: "read", Label: more.Label})
	if a := o.do("POST", at, form); a.code != 303 || len(o.gate.got()) > 0 {
		t.Errorf("%d, the gateway got %q", a.code, o.gate.got())
	}
	if now := o.do("GET", o.home+"sessions", "").text; !strings.Contains(now, "it has changed since you were asked") {
		t.Errorf("the page does not say so: %s", now)
	}
}

// TestOrdersAreRefused: only a page of the session sends an order, and only about a session that there is.
func TestOrdersAreRefused(t *testing.T) {
	o := openSessions(t)
	at := o.home + "do/new/laptop"
	for name, headers := range map[string][]string{
		"no cookie": {"Cookie", ""}, "no origin": {"Origin", ""}, "another origin": {"Origin", "https://evil.test"},
		"another site": {"Sec-Fetch-Site", "cross-site"}, "another name": {"Host", "evil.test"},
		"JSON": {"Content-Type", "application/json"}, "by a frame": {"Sec-Fetch-Dest", "iframe"},
	} {
		if a := o.confirm(at, "new", headers...); a.code < 400 {
			t.Errorf("%s: %d %s", name, a.code, a.text)
		}
	}
	for path, body := range map[string]string{
		"do/new/laptop": "act=new", "do/clear/notes": "act=clear&turn=wrong", "do/thaw/laptop/default": "act=thaw&turn=",
	} {
		if a := o.do("POST", o.home+path, body); a.code != 403 {
			t.Errorf("%s, %s: %d", path, body, a.code)
		}
	}
	if a := o.confirm(at, "reset"); a.code != 400 {
		t.Errorf("an act of another page: %d", a.code)
	}
	turn := field.FindStringSubmatch(o.do("GET", at, "").text)[2]
	for _, path := range []string{
		"new/nobody", "new/laptop%2Fdefault%2F..", "reset/laptop", "reset/laptop/other", "reset/..%2Fapprovals/x",
		"end/%2e%2e/default", "clear/other", "clear/..%2Fsessions", "clear/laptop/default",
	} {
		for _, method := range []string{"GET", "POST"} {
			act, _, _ := strings.Cut(path, "/")
			if a := o.do(method, o.home+"do/"+path, "act="+act+"&turn="+turn); a.code != 303 && a.code != 404 {
				t.Errorf("%s %s: %d %s", method, path, a.code, a.text)
			}
			if now := o.do("GET", o.home+"sessions", "").text; !strings.Contains(now, "<h2>Not done</h2>") {
				t.Errorf("%s %s is not told", method, path)
			}
		}
	}
	for _, path := range []string{"do/", "do/new", "do/new/", "do/drop/laptop", "do/approve/laptop"} {
		for _, method := range []string{"GET", "POST"} {
			if a := o.do(method, o.home+path, "act=new&turn="+turn); a.code != 404 {
				t.Errorf("%s %s: %d", method, path, a.code)
			}
		}
	}
	if got := o.gate.got(); len(got) > 0 {
		t.Errorf("the gateway got %q", got)
	}
}

// TestNoRights: who may not do a thing reads why, and that nothing was done.
func TestNoRights(t *testing.T) {
	o := openSessions(t)
	o.gate.refuse = "this is for the operator alone <b>"
	o.confirm(o.home+"do/new/laptop", "new")
	now := o.do("GET", o.home+"sessions", "").text
	if !strings.Contains(now, "Nothing was done: this is for the operator alone &lt;b&gt;") {
		t.Errorf("%s", now)
	}
	form := "act=new&turn=" + field.FindStringSubmatch(now)[2]
	o.site.desk = denied()
	if a := o.do("POST", o.home+"do/new/laptop", form); a.code != 303 {
		t.Errorf("%d %s", a.code, a.text)
	}
	now = o.do("GET", o.home+"sessions", "").text
	if !strings.Contains(now, "Nothing was done: ") || !strings.Contains(now, "Not everything is shown") ||
		strings.Contains(now, "No client is declared") {
		t.Errorf("%s", now)
	}
}

// sessionFills are the texts of sessions and stains that others can set.
var sessionFills = map[string]func(g *gateway, text string){
	"client":      func(g *gateway, text string) { g.all[1].Client = "laptop" + text },
	"handle":      func(g *gateway, text string) { g.all[1].Handle = "h" + text },
	"frozen":      func(g *gateway, text string) { g.all[1].Frozen = "f" + text },
	"who reset":   func(g *gateway, text string) { g.all[1].ResetBy = text },
	"server":      func(g *gateway, text string) { g.all[1].Sources[0].Server = text },
	"tool":        func(g *gateway, text string) { g.all[1].Sources[0].Tool = text },
	"call":        func(g *gateway, text string) { g.all[1].Sources[0].Call = text },
	"stained":     func(g *gateway, text string) { g.stains[0].Server = text },
	"place":       func(g *gateway, text string) { g.stains[0].Places[0] = "p" + text },
	"who wrote":   func(g *gateway, text string) { g.stains[0].Sources[0].Client = text },
	"where":       func(g *gateway, text string) { g.stains[0].Sources[0].Handle = text },
	"with a tool": func(g *gateway, text string) { g.stains[0].Sources[0].Tool = text },
	"in a call":   func(g *gateway, text string) { g.stains[0].Sources[0].Call = text },
}

// subjects are the names in the paths of questions.
var subjects = regexp.MustCompile(`(/do/[a-z]+)/[^"]*"`)

// TestHostileSessions is TestHostileTexts for the page of sessions and the questions. A name in the path of a question
// leads to that question and to nothing else.
func TestHostileSessions(t *testing.T) {
	for name, fill := range sessionFills {
		o := openSessions(t)
		look := func(path string) []string {
			a := o.do("GET", path, "")
			guarded(t, a.h)
			plainText(t, name, a.text)
			return shape(t, subjects.ReplaceAllString(a.text, `$1"`))
		}
		fill(o.gate, "plain")
		want := look(o.home + "sessions")
		ask := look(o.home + "do/new/laptop")
		for _, text := range loopbacktest.PayloadsOf(name, loopbacktest.Few) {
			o.gate.mu.Lock()
			fill(o.gate, text)
			o.gate.mu.Unlock()
			if got := look(o.home + "sessions"); !slices.Equal(got, want) {
				t.Errorf("%s, %.60q: the page is %q", name, text, got)
			}
			loopbacktest.Walk(t, o.do("GET", o.home+"sessions", "").text, func(n *html.Node) {
				for _, a := range n.Attr {
					if (a.Key == "href" || a.Key == "action") && !strings.HasPrefix(a.Val, o.home) {
						t.Errorf("%s, %.60q: it leads to %q", name, text, a.Val)
					}
				}
			})
			if name != "client" || len(text) > 1<<10 || !utf8.ValidString(text) { // JSON has no such text
				continue
			}
			if got := look(orderPath(o.site.sessions[0], "new", o.gate.all[1].Client)); !slices.Equal(got, ask) {
				t.Errorf("%s, %.60q: the question is %q", name, text, got)
			}
		}
	}
}

// flood is how many calls or sessions there are in place of a few, and far more than the gateway allows. The stand-in
// encodes them at each request, which takes long with the race detector and beside other work.
const flood = 1_000

// TestManySessions: of very many sessions the page shows those that have seen something, and counts the rest.
func TestManySessions(t *testing.T) {
	o := openSessions(t)
	o.gate.all = nil
	for range flood {
		o.gate.all = append(o.gate.all, operator.Session{Client: "laptop", Handle: operator.NewID(), Label: gate.Start})
	}
	o.gate.all = append(o.gate.all, labelledSession())
	text := o.do("GET", o.home+"sessions", "").text
	at := strings.Index(text, "do/reset/laptop/default")
	if at < 0 || at > strings.Index(text, "<details>") || strings.Count(text, "<h3>") != maxFirst+maxMore+1 ||
		!strings.Contains(text, fmt.Sprintf("Not listed: %d more of this client", flood+1-maxFirst-maxMore)) {
		t.Errorf("%d of %d bytes: %.3000s", at, len(text), text)
	}
}

// denied is a gateway's socket to which one may not connect.
func denied() desk {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return nil, fmt.Errorf("%w: connecting to its socket", control.ErrDenied)
	}
	return desk{&http.Client{Transport: &http.Transport{DialContext: dial}}}
}
