package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/page"
)

// sent is what pfard was handed.
type sent struct {
	mu   sync.Mutex
	all  []string // act and value
	fail error
}

func (s *sent) send(a attach.Acted, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.all = append(s.all, strings.TrimPrefix(a.Key+": ", ": ")+string(a.Act)+" "+string(value))
	return nil
}

func (s *sent) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func task() page.Task {
	return page.Task{
		Nonce: page.NewNonce(), Title: "Notion", Server: "notion", Asker: "desk",
		Program: "npm:@notionhq/notion-mcp-server@2.5.2", Sees: []string{"/home/a"}, Reaches: []string{"api.notion.com"},
		Holds: []string{"NOTION_TOKEN"},
		State: page.State{
			Phase:    page.Waiting,
			Words:    "API token is invalid.",
			Left:     2,
			Deadline: time.Now().Add(10 * time.Minute),
			Wanted: &page.Wanted{
				Name: "NOTION_TOKEN", Where: "Create an integration.",
				URL: "https://www.notion.so/profile/integrations", Scopes: []string{"read"},
			},
		},
	}
}

// opened is a page that really listens.
type opened struct {
	*site
	*sent
	base string
}

func open(t *testing.T, task page.Task) *opened {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0") // there are more tests than ports for pages
	if err != nil {
		t.Fatal(err)
	}
	o := &opened{sent: new(sent)}
	port := l.Addr().(*net.TCPAddr).Port
	o.site = newSite(task.Clean(), port, o.sent.send)
	o.base = fmt.Sprintf("http://127.0.0.1:%d", port)
	h := loopback.Server(o.site)
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	return o
}

func (o *opened) do(t *testing.T, method, path, body string, headers ...string) (code int, h http.Header, text string) {
	t.Helper()
	return loopbacktest.Ask(t, o.base, method, path, body, headers...)
}

func (o *opened) form(value string) string {
	o.site.mu.Lock()
	defer o.site.mu.Unlock()
	return url.Values{"turn": {o.turn}, "act": {"enter"}, "value": {value}}.Encode()
}

// TestEnter: what a person enters reaches pfard once, and the page shows what comes of it.
func TestEnter(t *testing.T) {
	o := open(t, task())
	path := o.path
	code, h, text := o.do(t, "GET", path, "")
	if code != 200 || !strings.Contains(text, `type="password"`) || strings.Contains(text, "http-equiv") {
		t.Fatalf("%d %v %s", code, h, text)
	}
	for _, says := range []string{
		"Notion", "desk", "api.notion.com", "/home/a", "NOTION_TOKEN", "API token is invalid.", "npm:@notionhq", "2 more",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("the page does not say %q", says)
		}
	}
	first := o.form(" ntn_1 \r\n")
	code, h, _ = o.do(t, "POST", path, first,
		"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document")
	if code != http.StatusSeeOther || h.Get("Location") != path {
		t.Fatalf("entered: %d %v", code, h)
	}
	code, _, text = o.do(t, "GET", path, "")
	if code != 200 || !strings.Contains(text, `http-equiv="refresh"`) || strings.Contains(text, "<form") {
		t.Errorf("at work: %d %s", code, text)
	}
	if code, _, text = o.do(t, "POST", path, o.form("ntn_2")); code != http.StatusGone {
		t.Errorf("while it is at work: %d %s", code, text)
	}
	o.becomes(page.State{Phase: page.Waiting, Words: "no", Left: 1, Wanted: o.task.State.Wanted})
	if code, _, text = o.do(t, "POST", path, first); code != http.StatusConflict {
		t.Errorf("the first form once more: %d %s", code, text)
	}
	if code, _, _ = o.do(t, "POST", path, o.form("ntn_3")); code != http.StatusSeeOther {
		t.Errorf("a second value: %d", code)
	}
	o.becomes(page.State{Phase: page.Waiting, Deadline: o.now().Add(-time.Second)})
	if code, _, _ = o.do(t, "POST", path, o.form("")); code != http.StatusGone {
		t.Errorf("after the deadline: %d", code)
	}
	o.becomes(page.State{Phase: page.Done, Tools: 1, Tested: true})
	if _, _, text = o.do(t, "GET", path, ""); !strings.Contains(text, "with 1 tool") ||
		strings.Contains(text, "tested it yet") {
		t.Errorf("done: %s", text)
	}
	select {
	case <-o.shown:
	default:
		t.Error("the end has been shown, and nobody is told")
	}
	if code, _, _ = o.do(t, "POST", path, o.form("ntn_4")); code != http.StatusGone {
		t.Errorf("after the end: %d", code)
	}
	o.becomes(page.State{Phase: page.Waiting})
	if !o.finished() {
		t.Error("a page that has ended waits again")
	}
	if got := o.got(); !slices.Equal(got, []string{"enter ntn_1", "enter ntn_3"}) {
		t.Errorf("pfard got %q", got)
	}
}

// TestActs: what there is beside a value.
func TestActs(t *testing.T) {
	for name, c := range map[string]struct {
		wanted *page.Wanted
		act    string
		value  string
		code   int
		sent   string
	}{
		"yes":                {nil, "enter", "", 303, "enter "},
		"yes, with a value":  {nil, "enter", "x", 303, "enter "},
		"empty":              {&page.Wanted{Name: "T"}, "enter", " ", 400, ""},
		"skip":               {&page.Wanted{Name: "T", Optional: true}, "skip", "x", 303, "skip "},
		"skip what must be":  {&page.Wanted{Name: "T"}, "skip", "", 403, ""},
		"skip nothing":       {nil, "skip", "", 403, ""},
		"sign in":            {&page.Wanted{Key: "t", Name: "T", SignIn: true}, "sign-in", "x", 303, "t: sign-in "},
		"no sign-in offered": {&page.Wanted{Name: "T"}, "sign-in", "", 403, ""},
		"sign in for a yes":  {nil, "sign-in", "", 403, ""},
		"give up nothing":    {&page.Wanted{Name: "T", SignIn: true}, "give-up", "", 403, ""},
		"cancel":             {&page.Wanted{Name: "T"}, "cancel", "x", 303, "cancel "},
		"another act":        {nil, "delete", "", 400, ""},
		"no act":             {nil, "", "", 400, ""},
		"control characters": {&page.Wanted{Name: "T"}, "enter", "a\x00b", 400, ""},
		"a line break":       {&page.Wanted{Name: "T"}, "enter", "a\nb", 400, ""},
		"no UTF-8":           {&page.Wanted{Name: "T"}, "enter", "a\xffb", 400, ""},
		"the longest": {&page.Wanted{Name: "T"}, "enter", strings.Repeat("%", page.MaxValue), 303,
			"enter " + strings.Repeat("%", page.MaxValue)},
		"too long": {&page.Wanted{Name: "T"}, "enter", strings.Repeat("x", page.MaxValue+1), 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := task()
			k.State.Wanted = c.wanted
			o := open(t, k)
			body := url.Values{"turn": {o.turn}, "act": {c.act}, "value": {c.value}}.Encode()
			code, _, text := o.do(t, "POST", o.path, body)
			if code != c.code || len(c.value) > 1 && strings.Contains(text, c.value) {
				t.Errorf("%d %.200s", code, text)
			}
			if got := strings.Join(o.got(), "|"); got != c.sent {
				t.Errorf("pfard got %.200q", got)
			}
		})
	}
}

// TestSignIn: the page begins a sign-in once, shows what the provider wants of the person, and goes on by itself. It
// takes no value meanwhile.
func TestSignIn(t *testing.T) {
	k := task()
	k.State.Words, k.State.Wanted.Key, k.State.Wanted.SignIn = "", "notion_token", true
	o := open(t, k)
	form := func(act string) string {
		o.site.mu.Lock()
		defer o.site.mu.Unlock()
		return url.Values{"turn": {o.turn}, "act": {act}}.Encode()
	}
	post := func(body string, want int, headers ...string) {
		t.Helper()
		if code, h, text := o.do(t, "POST", o.path, body, headers...); code != want {
			t.Errorf("%q: %d %s, want %d", body, code, text, want)
		} else {
			guarded(t, h)
		}
	}
	if _, _, text := o.do(t, "GET", o.path, ""); !strings.Contains(text, `value="sign-in"`) {
		t.Fatalf("no button: %s", text)
	}
	first := form("sign-in")
	post(first, 403, "Origin", "https://evil.test")
	post(first, 403, "Sec-Fetch-Site", "cross-site")
	post("act=sign-in&turn=AAAA", 409)
	post(first, 303)
	post(first, 410) // it is at work
	device := page.Device{URL: "https://login.test/device", Complete: "https://login.test/device?c=A", Code: "ABCD-<b>",
		Until: time.Now().Add(5 * time.Minute)}
	signing := k.State
	signing.Phase, signing.Device = page.SigningIn, &device
	o.becomes(signing.Clean())
	post(first, 409)
	_, h, text := o.do(t, "GET", o.path, "")
	guarded(t, h)
	for _, want := range []string{
		`<a href="https://login.test/device" target="_blank" rel="noopener noreferrer">https://login.test/device</a>`,
		"ABCD-&lt;b&gt;", `http-equiv="refresh" content="5"`, device.Until.Local().Format("15:04"), `value="give-up"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q: %s", want, text)
		}
	}
	if strings.Contains(text, "password") || strings.Contains(text, "<script") {
		t.Errorf("the page asks for a value: %s", text)
	}
	post(form("enter")+"&value=ntn_hunter2", 403)
	post(form("sign-in"), 403)
	post(form("skip"), 403)
	post(form("give-up"), 303)
	o.becomes(k.State)
	post(form("enter")+"&value=ntn_1", 303)
	want := []string{"notion_token: sign-in ", "notion_token: give-up ", "notion_token: enter ntn_1"}
	if got := o.got(); !slices.Equal(got, want) {
		t.Errorf("pfard got %q", got)
	}
}

// TestAnotherSecret: a form for one secret is not taken for another, which the page asks for by now.
func TestAnotherSecret(t *testing.T) {
	k := task()
	k.State.Wanted.Key = "first"
	o := open(t, k)
	late := o.form("of-the-first")
	again := k.State
	again.Words = "no"
	o.becomes(again) // the same secret: a person may be typing
	if code, _, text := o.do(t, "GET", o.path, ""); code != 200 || !strings.Contains(late, o.turn) {
		t.Fatalf("%d %s", code, text)
	}
	for _, next := range []*page.Wanted{{Key: "second", Name: "SECOND"}, nil} {
		s := k.State
		s.Wanted = next
		o.becomes(s)
		if code, _, text := o.do(t, "POST", o.path, late); code != http.StatusConflict ||
			!strings.Contains(text, "nothing was stored") {
			t.Errorf("%d %s", code, text)
		}
		late = o.form("of-the-second")
	}
	if got := o.got(); len(got) > 0 {
		t.Errorf("pfard got %q", got)
	}
}

// TestRefuses: whatever is not the page's own request stores nothing, and learns nothing of the page.
func TestRefuses(t *testing.T) {
	o := open(t, task())
	port := strings.TrimPrefix(o.base, "http://127.0.0.1:")
	type headers = []string
	for name, c := range map[string]struct {
		method, path, body string
		headers            headers
		code               int
	}{
		"no nonce":              {"GET", "/", "", nil, 404},
		"another nonce":         {"GET", "/" + page.NewNonce(), "", nil, 404},
		"a shorter nonce":       {"GET", o.path[:len(o.path)-1], "", nil, 404},
		"a longer one":          {"GET", o.path + "/", "", nil, 404},
		"in other case":         {"GET", strings.ToLower(o.path), "", nil, 404},
		"encoded":               {"GET", "/%" + fmt.Sprintf("%02X", o.path[1]) + o.path[2:], "", nil, 404},
		"with a query":          {"GET", o.path + "?x=1", "", nil, 404},
		"favicon":               {"GET", "/favicon.ico", "", nil, 404},
		"post to another nonce": {"POST", "/" + page.NewNonce(), "form", nil, 404},
		"rebound name":          {"GET", o.path, "", headers{"Host", "evil.test:" + port}, 421},
		"rebound name, no port": {"GET", o.path, "", headers{"Host", "127.0.0.1"}, 421},
		"another port":          {"GET", o.path, "", headers{"Host", "127.0.0.1:1"}, 421},
		"trailing dot":          {"GET", o.path, "", headers{"Host", "localhost.:" + port}, 421},
		"user in the name":      {"GET", o.path, "", headers{"Host", "localhost@evil.test:" + port}, 421},
		"post by a rebound name": {"POST", o.path, "form",
			headers{"Host", "evil.test:" + port, "Origin", "http://evil.test:" + port}, 421},
		"in a frame":  {"GET", o.path, "", headers{"Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate"}, 403},
		"as an image": {"GET", o.path, "", headers{"Sec-Fetch-Dest", "image", "Sec-Fetch-Mode", "no-cors"}, 403},
		"by fetch":    {"GET", o.path, "", headers{"Sec-Fetch-Dest", "empty", "Sec-Fetch-Mode", "cors"}, 403},
		"two destinations": {"GET", o.path, "",
			headers{"Sec-Fetch-Dest", "document", "Sec-Fetch-Dest", "document"}, 403},
		"no origin":             {"POST", o.path, "form", headers{"Origin", ""}, 403},
		"origin null":           {"POST", o.path, "form", headers{"Origin", "null"}, 403},
		"another origin":        {"POST", o.path, "form", headers{"Origin", "https://evil.test"}, 403},
		"another port's origin": {"POST", o.path, "form", headers{"Origin", "http://127.0.0.1:1"}, 403},
		"origin by https": {"POST", o.path, "form",
			headers{"Origin", strings.Replace(o.base, "http", "https", 1)}, 403},
		"the other name": {"POST", o.path, "form", headers{"Origin", "http://localhost:" + port}, 403},
		"cross-site":     {"POST", o.path, "form", headers{"Sec-Fetch-Site", "cross-site"}, 403},
		"same-site":      {"POST", o.path, "form", headers{"Sec-Fetch-Site", "same-site"}, 403},
		"by nobody":      {"POST", o.path, "form", headers{"Sec-Fetch-Site", "none"}, 403},
		"put":            {"PUT", o.path, "form", nil, 405},
		"delete":         {"DELETE", o.path, "", nil, 405},
		"head":           {"HEAD", o.path, "", nil, 405},
		"options":        {"OPTIONS", o.path, "", headers{"Access-Control-Request-Method", "POST"}, 405},
		"put of no page": {"PUT", "/x", "", nil, 404},
		"JSON":           {"POST", o.path, `{"act":"enter"}`, headers{"Content-Type", "application/json"}, 400},
		"plain text":     {"POST", o.path, "form", headers{"Content-Type", "text/plain"}, 400},
		"multipart":      {"POST", o.path, "form", headers{"Content-Type", "multipart/form-data; boundary=x"}, 400},
		"compressed":     {"POST", o.path, "form", headers{"Content-Encoding", "gzip"}, 400},
		"no turn":        {"POST", o.path, "act=enter&value=x", nil, 409},
		"another turn":   {"POST", o.path, "act=enter&value=x&turn=AAAA", nil, 409},
		"two values":     {"POST", o.path, "form&value=y", nil, 400},
		"another field":  {"POST", o.path, "form&key=notion_token", nil, 400},
		"broken":         {"POST", o.path, "form&%zz", nil, 400},
		"too large":      {"POST", o.path, "value=" + strings.Repeat("x", maxBody), nil, 413},
	} {
		t.Run(name, func(t *testing.T) {
			body := strings.Replace(c.body, "form", o.form("ntn_stolen"), 1)
			if !strings.HasPrefix(c.body, "form") {
				body = c.body
			}
			code, h, text := o.do(t, c.method, c.path, body, c.headers...)
			if code != c.code {
				t.Errorf("%d %s, want %d", code, text, c.code)
			}
			for _, secret := range []string{o.turn, o.path[1:], "Notion", "notion", "stolen"} {
				if strings.Contains(text, secret) || strings.Contains(fmt.Sprint(h), secret) {
					t.Errorf("it tells %q: %v %s", secret, h, text)
				}
			}
			guarded(t, h)
		})
	}
	if got := o.got(); len(got) > 0 {
		t.Errorf("pfard got %q", got)
	}
	if code, _, _ := o.do(t, "GET", o.path, "", "Host", "localhost:"+port); code != 200 {
		t.Errorf("by the name localhost: %d", code)
	}
	o.fail = errors.New("gone")
	if code, _, text := o.do(t, "POST", o.path, o.form("ntn_x")); code != 503 ||
		!strings.Contains(text, "nothing was stored") {
		t.Errorf("without pfard: %d %s", code, text)
	}
}

// guarded wants the headers that each answer has. The page runs nothing, and nobody signs in.
func guarded(t *testing.T, h http.Header) {
	t.Helper()
	loopbacktest.Guarded(t, h)
	if strings.Contains(h.Get("Content-Security-Policy"), "script-src") || h.Get("Set-Cookie") != "" {
		t.Errorf("%v", h)
	}
}

// TestStyleHash: the policy allows the style that is in the page, and no other style is.
func TestStyleHash(t *testing.T) {
	o := open(t, task())
	_, h, text := o.do(t, "GET", o.path, "")
	guarded(t, h)
	var found []string
	loopbacktest.Walk(t, text, func(n *html.Node) {
		if n.Data == "style" {
			found = append(found, n.FirstChild.Data)
		}
		for _, a := range n.Attr {
			if a.Key == "style" || strings.HasPrefix(a.Key, "on") || a.Key == "src" {
				t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
			}
		}
	})
	if len(found) != 1 || !strings.Contains(h.Get("Content-Security-Policy"), loopback.Digest(found[0])) {
		t.Errorf("%d styles, policy %q", len(found), h.Get("Content-Security-Policy"))
	}
}

// TestHostileTexts: whatever stands in a text, the page has the elements that it has with harmless ones.
func TestHostileTexts(t *testing.T) {
	fill := func(k page.Task, field int, text string) page.Task {
		switch field {
		case 0:
			k.Title = text
		case 1:
			k.Server = text
		case 2:
			k.Asker = text
		case 3:
			k.Program = text
		case 4:
			k.Sees = []string{text}
		case 5:
			k.Reaches = []string{text}
		case 6:
			k.Holds = []string{text}
		case 7:
			k.State.Words = text
		case 8:
			k.State.Wanted.Name = text
		case 9:
			k.State.Wanted.Where = text
		case 10:
			k.State.Wanted.URL = text
		case 11:
			k.State.Wanted.Scopes = []string{text}
		}
		return k
	}
	const fields, urlField = 12, 10
	show := func(k page.Task) (http.Header, string) {
		o := open(t, k)
		code, h, text := o.do(t, "GET", o.path, "")
		if code != 200 {
			t.Fatalf("%d %s", code, text)
		}
		return h, text
	}
	_, plain := show(task())
	_, noLink := show(fill(task(), urlField, ""))
	want, without := loopbacktest.Shape(t, plain), loopbacktest.Shape(t, noLink)
	for field := range fields {
		for _, p := range loopbacktest.PayloadsOf(fmt.Sprint("field ", field), loopbacktest.Many) {
			h, text := show(fill(task(), field, p))
			guarded(t, h)
			got := loopbacktest.Shape(t, text)
			if !slices.Equal(got, want) && !(field == urlField && slices.Equal(got, without)) {
				t.Errorf("%.60q in field %d changes the page: %q", p, field, got)
			}
			for _, bad := range []string{"\x00", "\u202e", "\u2066", "\ufeff"} {
				if strings.Contains(text, bad) {
					t.Errorf("%.60q in field %d: the page has %q", p, field, bad)
				}
			}
		}
	}
	for field := range 3 {
		signing := func(text string) string {
			d := page.Device{URL: "https://a.test/d", Complete: "https://a.test/d?c", Code: "A-B"}
			if text != "" {
				*[]*string{&d.URL, &d.Complete, &d.Code}[field] = text
			}
			k := task()
			k.State = page.State{Phase: page.SigningIn, Device: &d}
			_, page := show(k)
			return page
		}
		want, without := loopbacktest.Shape(t, signing("")), loopbacktest.Shape(t, signing("javascript:x"))
		for _, p := range loopbacktest.PayloadsOf(fmt.Sprint("sign-in ", field), loopbacktest.Many) {
			if got := loopbacktest.Shape(t, signing(p)); !slices.Equal(got, want) && !slices.Equal(got, without) {
				t.Errorf("%.60q in field %d changes the page of a sign-in: %q", p, field, got)
			}
		}
	}
	for _, state := range []page.Phase{page.Working, page.Done, page.Failed} {
		k := task()
		k.State = page.State{Phase: state, Words: "plain"}
		_, plain := show(k)
		for _, p := range loopbacktest.PayloadsOf(string(state), loopbacktest.Many) {
			k.State.Words = p
			if _, text := show(k); !slices.Equal(loopbacktest.Shape(t, text), loopbacktest.Shape(t, plain)) {
				t.Errorf("%.60q changes the page %s", p, state)
			}
		}
	}
}

// TestLimits: nobody can hold the page's connections for long, or fill its memory.
func TestLimits(t *testing.T) {
	h := loopback.Server(nil)
	if h.ReadHeaderTimeout <= 0 || h.ReadHeaderTimeout > 10*time.Second ||
		h.ReadTimeout <= 0 || h.ReadTimeout > 30*time.Second ||
		h.WriteTimeout <= 0 || h.WriteTimeout > 30*time.Second ||
		h.IdleTimeout <= 0 ||
		h.MaxHeaderBytes > 16<<10 ||
		h.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", h)
	}
	if loopback.MaxConns < 6 || loopback.MaxConns > 64 || maxBody > 128<<10 {
		t.Errorf("%d connections, %d bytes", loopback.MaxConns, maxBody)
	}
	o := open(t, task())
	c, err := net.Dial("tcp", strings.TrimPrefix(o.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	long := strings.Repeat("x", 64<<10)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n", o.path, o.names[0], long)
	if line, err := bufio.NewReader(c).ReadString('\n'); err == nil && !strings.Contains(line, " 431 ") {
		t.Errorf("a large head: %q", line)
	}
}

// TestListensOnLoopback: there is no other address, and a port that is taken is said.
func TestListensOnLoopback(t *testing.T) {
	l, err := loopback.Listen(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() || !egress.IsPagePort(uint16(at.Port)) {
		t.Errorf("it listens on %v", at)
	}
	const words = "another program has the port"
	if _, err := loopback.Listen(uint16(at.Port)); err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("a taken port: %v", err)
	}
}

// FuzzForm: no body is taken that is not the page's form.
func FuzzForm(f *testing.F) {
	f.Add("act=enter&turn=T&value=x")
	f.Add("act=enter&act=skip")
	f.Add("%zz;=&value=%00")
	f.Fuzz(func(t *testing.T, body string) {
		r, err := http.NewRequest("POST", "http://127.0.0.1/", strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		a, err := read(nil, r)
		if err != nil {
			w := httptest.NewRecorder()
			loopback.Unreadable(w, "", err, errLarge, errControl)
			if words := w.Body.String(); len(body) > 40 && strings.Contains(words, body) {
				t.Errorf("the error quotes the form: %s", words)
			}
			return
		}
		known := []page.Act{page.Enter, page.Skip, page.Cancel, page.SignIn, page.GiveUp}
		if !slices.Contains(known, a.act) || len(a.value) > page.MaxValue ||
			strings.ContainsAny(string(a.value), "\x00\n\r") {
			t.Errorf("%q is %+v", body, a)
		}
	})
}
