package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// gateway stands in for the operator's socket.
type gateway struct {
	mu      sync.Mutex
	calls   []operator.Shown
	listed  []byte // calls in JSON; nil: they are encoded at each request
	past    []operator.Past
	all     []operator.Session
	stains  []operator.Stain
	facts   []operator.ToolFacts
	notices []operator.Notice
	pins    []operator.ServerPins
	answers []string // that came: "approve ID BODY"
	refuse  string   // with what it refuses each answer
	changed chan struct{}
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	say := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.URL.Path == "/approvals/watch" {
		g.mu.Unlock()
		defer g.mu.Lock()
		for {
			fmt.Fprintln(w, `{"kind":"pending"}`)
			w.(http.Flusher).Flush()
			select {
			case <-g.changed:
			case <-r.Context().Done():
				return
			}
		}
	}
	switch {
	case r.URL.Path == "/approvals" && g.listed != nil:
		_, _ = w.Write(g.listed)
		return
	case r.URL.Path == "/approvals":
		say(g.calls)
		return
	case r.URL.Path == "/approvals/history":
		say(g.past)
		return
	case r.URL.Path == "/sessions" && r.Method == http.MethodGet:
		say(g.all)
		return
	case r.URL.Path == "/facts":
		say(g.facts)
		return
	case r.URL.Path == "/notices":
		say(g.notices)
		return
	case r.URL.Path == "/pins":
		say(g.pins)
		return
	case parts[0] == "pins" && r.Method == http.MethodGet:
		for _, p := range g.pins {
			if p.Server == parts[1] {
				say(p)
				return
			}
		}
	case r.URL.Path == "/stains":
		say(g.stains)
		return
	case r.Method == http.MethodPost && g.refuse != "":
		w.WriteHeader(http.StatusConflict)
		say(map[string]string{"error": g.refuse})
		return
	case r.Method == http.MethodPost && parts[0] != "approvals":
		b, _ := io.ReadAll(r.Body)
		g.answers = append(g.answers, r.URL.EscapedPath()+" "+string(b))
		var names struct{ Names []string }
		_ = json.Unmarshal(b, &names) // another act has none
		say(map[string]any{"client": "laptop", "handle": "k7", "result": "done", "accepted": names.Names})
		return
	}
	for i := range g.calls {
		if len(parts) < 2 || g.calls[i].ID != parts[1] {
			continue
		}
		if r.Method == http.MethodPost {
			b, _ := io.ReadAll(r.Body)
			g.answers = append(g.answers, parts[2]+" "+string(b))
			say(map[string]string{"result": parts[2]})
		} else {
			say(g.calls[i])
		}
		return
	}
	w.WriteHeader(http.StatusNotFound)
	say(map[string]string{"error": "no call of this id waits for an approval"})
}

func (g *gateway) got() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.answers)
}

// tempting is a call as the gate leaves it to a person.
func tempting() operator.Shown {
	s := operator.Shown{ID: operator.NewID(), Digest: strings.Repeat("ab", 32), State: operator.Pending, Left: 240}
	s.Client, s.Session, s.Server, s.Name, s.Method = "desk", "default", "mail", "send_mail", "tools/call"
	s.Arguments = json.RawMessage(`{"to":"x@evil.test","body":"first\nsecond"}`)
	s.Facts.Audience, s.Facts.From.Effect, s.Facts.From.Audience = gate.Public, "owner: mail.hcl", "owner: mail.hcl"
	s.Decision.Reason, s.Decision.Rule, s.Decision.Once = "private data could leave", "sink", true
	s.Decision.Data = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	s.Findings = []string{"words: looks like a payload"}
	s.Sources = []operator.Source{{Server: "web", Tool: "fetch", Call: "abc", Label: s.Decision.Data}}
	s.Grants = []operator.GrantOffer{{GrantTerms: operator.UsualGrant}, {Why: "it only writes"}}
	s.Grants[1].Public = true
	return s
}

// opened is a site with its gateway, and a browser before it.
type opened struct {
	t    testing.TB
	gate *gateway
	site *site
	base string
	now  time.Time

	cookie, home string
	dir          trail.Dir // of the audit
}

func open(t testing.TB, calls ...operator.Shown) *opened {
	t.Helper()
	o := &opened{t: t, gate: &gateway{calls: calls, changed: make(chan struct{}, 1)}, now: time.Now()}
	desk := httptest.NewServer(o.gate)
	t.Cleanup(desk.Close)
	to := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("tcp", desk.Listener.Addr().String())
	}}
	l, err := net.Listen("tcp4", "127.0.0.1:0") // there are more tests than ports for pages
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	o.site = newSite(port, &http.Client{Transport: to}, func() time.Time { return o.now })
	o.base = fmt.Sprintf("http://127.0.0.1:%d", port)
	o.views(nil)
	h := loopback.Server(o.site)
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	return o
}

// answer is what came of a request.
type answer struct {
	code int
	h    http.Header
	text string
}

// do sends a request as a browser with the cookie does for the site's own page, but for the headers that are named.
func (o *opened) do(method, path, body string, headers ...string) answer {
	o.t.Helper()
	headers = append([]string{"Cookie", o.cookie}, headers...)
	code, h, text := loopbacktest.Ask(o.t, o.base, method, path, body, headers...)
	return answer{code, h, text}
}

// enter uses a link.
func (o *opened) enter() {
	o.t.Helper()
	nonce := page.NewNonce()
	o.site.invite(nonce)
	a := o.do("GET", page.Path(nonce), "")
	if a.code != 303 {
		o.t.Fatalf("the link: %d %s", a.code, a.text)
	}
	o.home = a.h.Get("Location")
	o.cookie, _, _ = strings.Cut(a.h.Get("Set-Cookie"), ";")
}

var field = regexp.MustCompile(`name="(turn|digest)" value="([^"]+)"`)

// form is what the page of a call sends.
func (o *opened) form(id, act string) string {
	o.t.Helper()
	a := o.do("GET", o.home+"call/"+id, "")
	values := map[string]string{}
	for _, m := range field.FindAllStringSubmatch(a.text, -1) {
		values[m[1]] = m[2]
	}
	return "turn=" + values["turn"] + "&digest=" + values["digest"] + "&act=" + act
}

// TestAnswers: what a button says comes to the gateway, with the digest of what was shown, and the next page says so.
func TestAnswers(t *testing.T) {
	call := tempting()
	o := open(t, call)
	o.enter()
	if a := o.do("GET", o.home, ""); !strings.Contains(a.text, "call/"+call.ID) ||
		!strings.Contains(a.text, "desk wants to") {
		t.Fatalf("%s", a.text)
	}
	shown := o.do("GET", o.home+"call/"+call.ID, "").text
	for _, want := range []string{
		"x@evil.test", "second", "looks like a payload", "web.fetch at", "private data and strangers", call.Digest,
		"up to 20 such calls more, of 4096 bytes in all, within 30m0s", "it only writes", "carries",
	} {
		if !strings.Contains(html.UnescapeString(shown), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if i, j := strings.Index(shown, call.Digest[:60]), strings.Index(shown, `value="approve"`); i < 0 || j < i {
		t.Error("the buttons are before the end of the call")
	}
	for act, want := range map[string]string{
		"approve": `approve {"digest":"` + call.Digest + `"}`,
		"grant":   `approve {"digest":"` + call.Digest + `","grant":{"seconds":1800,"calls":20,"bytes":4096}}`,
		"deny":    `deny {"reason":"no, thanks"}`,
	} {
		o.gate.answers = nil
		a := o.do("POST", o.home+"call/"+call.ID, o.form(call.ID, act)+"&reason=no%2C+thanks")
		if a.code != 303 || a.h.Get("Location") != o.home || !slices.Equal(o.gate.got(), []string{want}) {
			t.Errorf("%s: %d %s, the gateway got %q", act, a.code, a.text, o.gate.got())
		}
		if a := o.do("GET", o.home, ""); !strings.Contains(a.text, "<h2>Done</h2>") || !strings.Contains(a.text, call.ID) {
			t.Errorf("%s: %s", act, a.text)
		}
		if a := o.do("GET", o.home, ""); strings.Contains(a.text, "<h2>Done</h2>") {
			t.Errorf("it says so twice")
		}
	}
	o.gate.answers = nil
	if a := o.do("POST", o.home+"call/"+call.ID, o.form(call.ID, "grant-reads")); a.code != 303 || len(o.gate.got()) > 0 {
		t.Errorf("a grant that is not offered: %d %s, %q", a.code, a.text, o.gate.got())
	}
	o.gate.refuse = "refused: it has been approved already, by alice"
	o.do("POST", o.home+"call/"+call.ID, o.form(call.ID, "approve"))
	if a := o.do("GET", o.home, ""); !strings.Contains(a.text, "approved already, by alice") ||
		!strings.Contains(a.text, "<h2>Not done</h2>") {
		t.Errorf("the second answer: %s", a.text)
	}
}

// TestTooLong: what nobody reads on a page is not approved there, whatever is sent.
func TestTooLong(t *testing.T) {
	call := tempting()
	call.Arguments, _ = json.Marshal(map[string]string{"body": strings.Repeat("x", 70<<10)})
	o := open(t, call)
	o.enter()
	if shown := o.do("GET", o.home+"call/"+call.ID, "").text; strings.Contains(shown, `value="approve"`) ||
		!strings.Contains(shown, "--digest") || !strings.Contains(shown, `value="deny"`) {
		t.Errorf("%.3000s", shown[max(0, len(shown)-3000):])
	}
	o.do("POST", o.home+"call/"+call.ID, o.form(call.ID, "approve"))
	if got := o.gate.got(); len(got) > 0 {
		t.Errorf("the gateway got %q", got)
	}
}

// TestAnsweredAlready: the page of a call that waits no more has no buttons, and says who answered.
func TestAnsweredAlready(t *testing.T) {
	call := tempting()
	call.State, call.By = operator.Used, &operator.Approver{Name: "alice"}
	o := open(t, call)
	o.gate.past = []operator.Past{{Server: "mail", Name: "send_mail", Client: "desk", State: "used", By: call.By}}
	o.enter()
	if a := o.do("GET", o.home+"call/"+call.ID, ""); strings.Contains(a.text, `name="digest"`) ||
		!strings.Contains(a.text, "This call is used, by") {
		t.Errorf("%s", a.text)
	}
	if a := o.do("GET", o.home, ""); !strings.Contains(a.text, "used: mail.send_mail, for desk") {
		t.Errorf("%s", a.text)
	}
	if a := o.do("GET", o.home+"call/"+operator.NewID(), ""); a.code != 303 {
		t.Errorf("an unknown call: %d", a.code)
	}
}

// TestBuried: very many calls of one client hide no other client's, and the page has a bound.
func TestBuried(t *testing.T) {
	var calls []operator.Shown
	for range flood {
		calls = append(calls, tempting())
	}
	other := tempting()
	other.Client = "laptop"
	o := open(t, append(calls, other)...)
	o.enter()
	text := o.do("GET", o.home, "").text
	left := fmt.Sprintf("Not listed: %d more of this client", flood-maxFirst-maxMore)
	folded := 0
	loopbacktest.Walk(t, text, func(n *html.Node) {
		for p := n; n.Data == "a" && p != nil; p = p.Parent {
			if p.Data == "details" {
				folded++
			}
		}
	})
	if folded != maxMore || !strings.Contains(text, "60 more of this client") ||
		!strings.Contains(text, left) || !strings.Contains(text, other.ID) ||
		strings.Index(text, other.ID) < strings.Index(text, calls[0].ID) || len(text) > 128<<10 {
		t.Errorf("%d are folded, %d bytes", folded, len(text))
	}
}

// buried is a gateway in which that many calls of one client wait, and one of another.
func buried(t testing.TB, n int) (o *opened, other operator.Shown) {
	t.Helper()
	other = tempting()
	other.Client = "laptop"
	calls := append(slices.Repeat([]operator.Shown{tempting()}, n-1), other)
	text, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	o = open(t, other)
	o.gate.listed = text
	o.enter()
	return o, other
}

// tenThousand is how many calls a person is to get past in time.
const tenThousand = 10_000

// TestTenThousand: ten thousand calls of one client hide no other's, which a person can open and answer, and the page
// is no longer than one of a hundred.
func TestTenThousand(t *testing.T) {
	o, other := buried(t, tenThousand)
	text := o.do("GET", o.home, "").text
	at := strings.Index(text, other.ID)
	left := fmt.Sprintf("Not listed: %d more of this client", tenThousand-1-maxOfClient)
	if at < 0 || !strings.Contains(text, left) || len(text) > 64<<10 ||
		strings.LastIndex(text[:at], "<details>") > strings.LastIndex(text[:at], "</details>") {
		t.Errorf("%d bytes, the other client's call is at %d: %.2000s", len(text), at, text)
	}
	if a := o.do("GET", o.home+"call/"+other.ID, ""); a.code != 200 || !strings.Contains(a.text, `value="approve"`) {
		t.Errorf("its page: %d %s", a.code, a.text)
	}
}

// BenchmarkFlood fails if the page takes more than 100 ms at p50 while as many calls wait as the gateway lets wait of
// all clients, and while very many do.
func BenchmarkFlood(b *testing.B) {
	for _, n := range []int{128, tenThousand} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o, other := buried(b, n)
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if text := o.do("GET", o.home, "").text; !strings.Contains(text, other.ID) {
					b.Fatal("the other client's call is not there")
				}
				took = append(took, time.Since(start))
			}
			slices.Sort(took)
			p50 := took[len(took)/2]
			b.ReportMetric(float64(p50.Microseconds())/1000, "ms/page")
			if p50 > 100*time.Millisecond {
				b.Errorf("a page takes %v", p50)
			}
		})
	}
}

// TestLink: a link works once and in time, begins a session that nobody has chosen, and is not used up by what only
// looks.
func TestLink(t *testing.T) {
	o := open(t)
	nonce := page.NewNonce()
	o.site.invite(nonce)
	for name, headers := range map[string][]string{
		"a prefetch": {"Sec-Purpose", "prefetch"}, "a frame": {"Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate"},
		"an image": {"Sec-Fetch-Dest", "image"}, "a rebound name": {"Host", "evil.test"},
	} {
		if a := o.do("GET", page.Path(nonce), "", headers...); a.code == 303 {
			t.Errorf("%s: %d", name, a.code)
		}
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS", "PUT"} {
		if a := o.do(method, page.Path(nonce), ""); a.code != 404 {
			t.Errorf("%s: %d", method, a.code)
		}
	}
	const chosen = cookie + "=CHOSENBYSOMEBODYELSE"
	a := o.do("GET", page.Path(nonce), "", "Cookie", chosen)
	set := a.h.Get("Set-Cookie")
	if a.code != 303 || strings.Contains(set, "CHOSEN") {
		t.Fatalf("%d %s", a.code, set)
	}
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=" + a.h.Get("Location")} {
		if !strings.Contains(set, want) {
			t.Errorf("the cookie is %q", set)
		}
	}
	if strings.Contains(set, "Domain") || strings.Contains(set, "Expires") || strings.Contains(set, "Max-Age") {
		t.Errorf("the cookie is %q", set)
	}
	home := a.h.Get("Location")
	if b := o.do("GET", page.Path(nonce), ""); b.code != 404 {
		t.Errorf("the link works again: %d", b.code)
	}
	if b := o.do("GET", home, "", "Cookie", chosen); b.code != 404 {
		t.Errorf("a chosen cookie: %d", b.code)
	}
	if b := o.do("GET", home, "", "Cookie", chosen+"; "+set); b.code != 404 {
		t.Errorf("two cookies: %d", b.code)
	}
	late := page.NewNonce()
	o.site.invite(late)
	o.now = o.now.Add(page.LinkTime)
	if b := o.do("GET", page.Path(late), ""); b.code != 404 {
		t.Errorf("a link works after its time: %d", b.code)
	}
	o.now = o.now.Add(idleTime - page.LinkTime)
	if b := o.do("GET", home, "", "Cookie", set); b.code != 404 {
		t.Errorf("a session is there after %s: %d", idleTime, b.code)
	}
}

// TestSessionEnds: by a button; a page that loads itself keeps no session alive, and a person does.
func TestSessionEnds(t *testing.T) {
	o := open(t)
	o.enter()
	o.now = o.now.Add(idleTime - time.Minute)
	if a := o.do("GET", o.home, ""); a.code != 200 {
		t.Fatalf("%d", a.code)
	}
	o.now = o.now.Add(idleTime - time.Minute)
	if a := o.do("GET", o.home+"?live", ""); a.code != 200 {
		t.Fatalf("%d", a.code)
	}
	o.now = o.now.Add(time.Minute)
	if a := o.do("GET", o.home, ""); a.code != 404 {
		t.Errorf("a page that loads itself keeps the session alive")
	}
	o.enter()
	a := o.do("GET", o.home, "")
	turn := field.FindStringSubmatch(a.text)[2]
	if a := o.do("POST", o.home+"leave", "act=leave&turn=wrong"); a.code != 403 {
		t.Errorf("signing out with a wrong form: %d", a.code)
	}
	if a := o.do("POST", o.home+"leave", "act=leave&turn="+turn); a.code != 200 {
		t.Errorf("signing out: %d %s", a.code, a.text)
	}
	if a := o.do("GET", o.home, ""); a.code != 404 {
		t.Errorf("after signing out: %d", a.code)
	}
}

// TestRefuses: whatever is not a page's own request of a session answers nothing, and learns nothing.
func TestRefuses(t *testing.T) {
	call := tempting()
	o := open(t, call)
	o.enter()
	port := strings.TrimPrefix(o.base, "http://127.0.0.1:")
	at := o.home + "call/" + call.ID
	other := open(t)
	other.enter()
	type headers = []string
	for name, c := range map[string]struct {
		method, path, body string
		headers            headers
		code               int
	}{
		"nothing":               {"GET", "/", "", nil, 404},
		"another link":          {"GET", "/" + page.NewNonce(), "", nil, 404},
		"favicon":               {"GET", "/favicon.ico", "", nil, 404},
		"no cookie":             {"GET", o.home, "", headers{"Cookie", ""}, 404},
		"another site's cookie": {"GET", o.home, "", headers{"Cookie", other.cookie}, 404},
		"another handle":        {"GET", other.home, "", nil, 404},
		"no handle":             {"GET", "/c/", "", nil, 404},
		"a query":               {"GET", o.home + "?x=1", "", nil, 404},
		"no such page":          {"GET", o.home + "vault", "", nil, 404},
		"no id":                 {"GET", o.home + "call/..%2f..%2fsessions", "", nil, 404},
		"events, no cookie":     {"GET", o.home + "events", "", headers{"Cookie", ""}, 404},
		"events, another site":  {"GET", o.home + "events", "", headers{"Sec-Fetch-Site", "cross-site"}, 503},
		"rebound name":          {"GET", o.home, "", headers{"Host", "evil.test:" + port}, 421},
		"no port":               {"GET", o.home, "", headers{"Host", "127.0.0.1"}, 421},
		"in a frame":            {"GET", o.home, "", headers{"Sec-Fetch-Dest", "iframe"}, 403},
		"by fetch":              {"GET", at, "", headers{"Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors"}, 403},
		"post by a rebound name": {"POST", at, "form",
			headers{"Host", "evil.test:" + port, "Origin", "http://evil.test:" + port}, 421},
		"post, no cookie":       {"POST", at, "form", headers{"Cookie", ""}, 404},
		"no origin":             {"POST", at, "form", headers{"Origin", ""}, 403},
		"origin null":           {"POST", at, "form", headers{"Origin", "null"}, 403},
		"another origin":        {"POST", at, "form", headers{"Origin", "https://evil.test"}, 403},
		"another port's origin": {"POST", at, "form", headers{"Origin", "http://127.0.0.1:1"}, 403},
		"the other name":        {"POST", at, "form", headers{"Origin", "http://localhost:" + port}, 403},
		"cross-site":            {"POST", at, "form", headers{"Sec-Fetch-Site", "cross-site"}, 403},
		"same-site":             {"POST", at, "form", headers{"Sec-Fetch-Site", "same-site"}, 403},
		"by nobody":             {"POST", at, "form", headers{"Sec-Fetch-Site", "none"}, 403},
		"put":                   {"PUT", at, "form", nil, 405},
		"delete":                {"DELETE", at, "", nil, 405},
		"head":                  {"HEAD", o.home, "", nil, 405},
		"options":               {"OPTIONS", at, "", headers{"Access-Control-Request-Method", "POST"}, 405},
		"post of the list":      {"POST", o.home, "form", nil, 405},
		"JSON":                  {"POST", at, `{"act":"approve"}`, headers{"Content-Type", "application/json"}, 400},
		"plain text":            {"POST", at, "form", headers{"Content-Type", "text/plain"}, 400},
		"compressed":            {"POST", at, "form", headers{"Content-Encoding", "gzip"}, 400},
		"no turn":               {"POST", at, "act=approve&digest=x", nil, 403},
		"another turn":          {"POST", at, "act=approve&digest=x&turn=AAAA", nil, 403},
		"two acts":              {"POST", at, "form&act=deny", nil, 400},
		"another field":         {"POST", at, "form&grant=all", nil, 400},
		"no act":                {"POST", at, "bare", nil, 400},
		"too large":             {"POST", at, "reason=" + strings.Repeat("x", maxForm), nil, 413},
		"by a query":            {"POST", at + "?act=approve", "form", nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			body := c.body
			if rest, ok := strings.CutPrefix(body, "form"); ok {
				body = o.form(call.ID, "approve") + rest
			} else if body == "bare" {
				body = strings.TrimSuffix(o.form(call.ID, ""), "&act=")
			}
			a := o.do(c.method, c.path, body, c.headers...)
			if a.code != c.code {
				t.Errorf("%d %s, want %d", a.code, a.text, c.code)
			}
			for _, secret := range []string{"evil.test\"", "mail", call.Digest, o.cookie, o.home} {
				if strings.Contains(a.text, secret) || strings.Contains(fmt.Sprint(a.h), secret) {
					t.Errorf("it tells %q: %v %s", secret, a.h, a.text)
				}
			}
			guarded(t, a.h)
		})
	}
	if got := o.gate.got(); len(got) > 0 {
		t.Errorf("the gateway got %q", got)
	}
}

func guarded(t *testing.T, h http.Header) {
	t.Helper()
	loopbacktest.Guarded(t, h, "script-src 'sha256-", "require-trusted-types-for 'script'", "trusted-types 'none'")
}

var seen = regexp.MustCompile(` data-seen="([^"]+)"`)

// shape lists the elements of a page, without the attribute that differs between versions of the page.
func shape(t *testing.T, text string) []string {
	t.Helper()
	return loopbacktest.Shape(t, seen.ReplaceAllString(text, ""))
}

// fills are the texts of a call that a server, a client, a declaration or a model can set.
var fills = map[string]func(s *operator.Shown, text string){
	"client":   func(s *operator.Shown, text string) { s.Client = text },
	"session":  func(s *operator.Shown, text string) { s.Session = text },
	"server":   func(s *operator.Shown, text string) { s.Server = text },
	"tool":     func(s *operator.Shown, text string) { s.Name = text },
	"reason":   func(s *operator.Shown, text string) { s.Decision.Reason = text },
	"rule":     func(s *operator.Shown, text string) { s.Decision.Rule = text },
	"effect":   func(s *operator.Shown, text string) { s.Facts.From.Effect = text },
	"finding":  func(s *operator.Shown, text string) { s.Findings[0] = text },
	"source":   func(s *operator.Shown, text string) { s.Sources[0].Server = text },
	"from":     func(s *operator.Shown, text string) { s.Sources[0].Tool = text },
	"masked":   func(s *operator.Shown, text string) { s.Masked = []string{text} },
	"no grant": func(s *operator.Shown, text string) { s.Grants[1].Why = text },
	"argument": func(s *operator.Shown, text string) {
		s.Arguments, _ = json.Marshal(map[string]string{"to": "y" + strings.ReplaceAll(text, "\n", " ")})
	},
	"name of an argument": func(s *operator.Shown, text string) {
		s.Arguments, _ = json.Marshal(map[string]string{"x" + text: "y"})
	},
}

// TestHostileTexts: whatever stands in a text, the pages have the elements that they have with a harmless one, but for
// rows that warn of it.
func TestHostileTexts(t *testing.T) {
	for name, fill := range fills {
		call := tempting()
		call.Sources[0].At = time.Now()
		fill(&call, "plain")
		o := open(t, call)
		o.enter()
		look := func(path string) (elements []string) {
			a := o.do("GET", path, "")
			guarded(t, a.h)
			if a.code != 200 {
				t.Fatalf("%d %s", a.code, a.text)
			}
			plainText(t, name, a.text)
			quiet := regexp.MustCompile(`(?s)<dt class="warning">.*?</dd>|<p class="warning">.*?</p>`).
				ReplaceAllString(a.text, "")
			return shape(t, quiet)
		}
		list, one := look(o.home), look(o.home+"call/"+call.ID)
		for _, text := range loopbacktest.PayloadsOf(name, loopbacktest.Few) {
			fill(&o.gate.calls[0], text)
			if got := look(o.home); !slices.Equal(got, list) {
				t.Errorf("%s, %.60q: the list is %q", name, text, got)
			}
			if got := look(o.home + "call/" + call.ID); len(text) < 30<<10 && !slices.Equal(got, one) &&
				!strings.Contains(strings.Join(got, " "), "line") {
				t.Errorf("%s, %.60q: the call is %q, want %q", name, text, got, one)
			}
		}
	}
}

// plainText wants nothing in a page that hides or reorders text.
func plainText(t *testing.T, name, text string) {
	t.Helper()
	for _, bad := range []string{"\x00", "\x1b", "\u202e", "\u2066", "\ufeff", "\u200b", "\u2028", "\b"} {
		if strings.Contains(text, bad) {
			t.Errorf("%s: the page has %q", name, bad)
		}
	}
}

// TestHostileHistory is that for what has been answered, and for what the gateway says of an act.
func TestHostileHistory(t *testing.T) {
	o := open(t)
	o.enter()
	look := func(text string) []string {
		by := &operator.Approver{Name: text}
		o.gate.mu.Lock()
		o.gate.past = []operator.Past{{Server: text, Name: text, Client: text, State: text, Reason: text, By: by}}
		o.gate.mu.Unlock()
		o.site.mu.Lock()
		o.site.sessions[0].notice = notice{Words: text, Bad: true}
		o.site.mu.Unlock()
		return shape(t, o.do("GET", o.home, "").text)
	}
	plain := look("plain")
	for _, text := range loopbacktest.PayloadsOf("notice", loopbacktest.Many) {
		if got := look(text); !slices.Equal(got, plain) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}

// TestEvents: a page hears that something else waits than it shows, and nothing of what; there are so many streams.
func TestEvents(t *testing.T) {
	o := open(t, tempting())
	o.enter()
	text := o.do("GET", o.home, "").text
	seen := seen.FindStringSubmatch(text)[1]
	r, _ := http.NewRequestWithContext(t.Context(), "GET", o.base+o.home+"events", nil)
	r.Header.Set("Cookie", o.cookie)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next := func() string {
		t.Helper()
		b := make([]byte, 200)
		n, err := resp.Body.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if got := next(); got != "retry: 2000\ndata: "+seen+"\n\n" {
		t.Errorf("the first event is %q, the page has %q", got, seen)
	}
	o.gate.mu.Lock()
	o.gate.calls = append(o.gate.calls, tempting())
	o.gate.mu.Unlock()
	o.gate.changed <- struct{}{}
	if got := next(); strings.Contains(got, seen) || !strings.HasPrefix(got, "retry: 2000\ndata: ") {
		t.Errorf("after a change comes %q", got)
	}
	o.site.mu.Lock()
	o.site.streams = o.site.most.streams
	o.site.mu.Unlock()
	if a := o.do("GET", o.home+"events", ""); a.code != 503 {
		t.Errorf("one stream too many: %d", a.code)
	}
}

// TestWithoutTheGateway: the pages say so, and an answer whose fate is not known is not called done.
func TestWithoutTheGateway(t *testing.T) {
	call := tempting()
	o := open(t, call)
	o.enter()
	form := o.form(call.ID, "deny")
	nobody := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nothing answers <b>") }
	o.site.desk = desk{&http.Client{Transport: &http.Transport{DialContext: nobody}}}
	if a := o.do("POST", o.home+"call/"+call.ID, form); a.code != 303 {
		t.Errorf("%d %s", a.code, a.text)
	}
	a := o.do("GET", o.home, "")
	if !strings.Contains(a.text, "does not know whether") || !strings.Contains(a.text, "The gateway does not answer") ||
		strings.Contains(a.text, "No call waits") || strings.Contains(a.text, "answers <b>") {
		t.Errorf("%s", a.text)
	}
}
