package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
)

// says has pfard and the gateway say everything that the pages Add, Clients and Health show, each with a text.
func (o *opened) says(text string) {
	now := reported()
	now.Version, now.Endpoint = "0.1"+text, "http://127.0.0.1:7417/mcp"+text
	now.Socket = "/run/pfar/gateway.sock" + text
	now.Notes, now.Leftovers = []string{"the port is taken" + text}, []string{"old" + text}
	now.Servers[0].Launcher, now.Servers[0].Unknown = "0.0.9"+text, "nothing is known"+text
	now.Diagnostics = []control.Diagnostic{{File: "a.hcl", Text: "Error: it is wrong" + text}}
	now.SetUps = []control.Flow{{Server: "wiki" + text, Detail: "waiting for TOKEN" + text}}
	o.site.runs.set(now)
	known := attach.Known{Offers: offers(), Clients: []attach.Client{
		{
			Name: "desk" + text, File: "/etc/pfar/clients.d/desk.hcl" + text, Identity: "1 token" + text,
			Servers: "notes" + text, Tools: "some" + text, Profile: "everyday" + text, Relax: "a desk" + text,
			HasToken: true,
		},
		{Name: "default", Servers: "all", Profile: "strict"},
		{Name: "lost" + text, Off: true},
	}, Connects: attach.Connects{Pfar: "/usr/bin/pfar" + text, Run: "/run/pfar" + text}}
	for i := range known.Offers {
		f := &known.Offers[i]
		f.Title, f.Summary, f.Runs = f.Title+text, f.Summary+text, f.Runs+text
		f.Reaches, f.Secrets = append(f.Reaches, "a.example"+text), append(f.Secrets, "TOKEN"+text)
	}
	o.site.known.Store(&known)
	o.gate.mu.Lock()
	defer o.gate.mu.Unlock()
	o.gate.notices = []operator.Notice{
		{Name: "phone", Host: "ntfy.example"},
		{Name: "hook" + text, Host: "x.example" + text, Failed: time.Now(), Why: "401" + text},
	}
}

// TestHealth: the page shows problems of the machine, mistakes in files, and notices that do not arrive.
func TestHealth(t *testing.T) {
	o := openServers(t)
	if page := o.do("GET", o.home+"health", "").text; !strings.Contains(page, "pfar has nothing to note") {
		t.Errorf("when all is well: %s", page)
	}
	o.says("")
	page := html.UnescapeString(o.do("GET", o.home+"health", "").text)
	for _, want := range []string{
		"0.1", "http://127.0.0.1:7417/mcp", "the port is taken", "wiki: waiting for TOKEN; to go on: pfar add wiki",
		"Error: it is wrong",
		"runs under pfar 0.0.9, and pfar is 0.1", "nothing is known of the tools of",
		"undeclared servers left something behind: old",
		`the notice "hook" has not reached x.example since`, `href="` + o.home + `checks"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "phone") {
		t.Errorf("it names a notice that arrives: %s", page)
	}
	o.site.runs = newRunning()
	if page := o.do("GET", o.home+"health", "").text; !strings.Contains(page, "pfard has not said yet") ||
		strings.Contains(page, "nothing to note") {
		t.Errorf("before pfard has said anything: %s", page)
	}
}

// TestClients: the page shows who may use what, and the commands for a client's configuration and token. A client that
// is built in has none.
func TestClients(t *testing.T) {
	o := openServers(t)
	if page := o.do("GET", o.home+"clients", "").text; !strings.Contains(page, "pfard has not said yet") {
		t.Errorf("before pfard has named them: %s", page)
	}
	o.says("")
	page := html.UnescapeString(o.do("GET", o.home+"clients", "").text)
	for _, want := range []string{
		"http://127.0.0.1:7417/mcp", "/run/pfar/gateway.sock", "1 token", "everyday", "a desk",
		"/etc/pfar/clients.d/desk.hcl",
		"pfar client config desk", "pfar client rotate desk", "pfar refuses this client",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "config default</pre>") || strings.Count(page, "pfar refuses this client") != 1 {
		t.Errorf("the page: %s", page)
	}
}

// TestDeclare: the user who runs pfard declares a client, and the next page shows its token, once.
func TestDeclare(t *testing.T) {
	o := openServers(t)
	o.says("")
	path := o.home + "clients"
	page := o.do("GET", path, "").text
	turn := field.FindStringSubmatch(page)[2]
	form := "act=declare&name=laptop&servers=notes++mail&turn=" + turn
	asked := make(chan attach.Order, 9)
	o.site.orders.sends = func(o attach.Order) error { asked <- o; return nil }
	if o.do("POST", path, form); strings.Contains(page, `value="declare"`) || len(asked) > 0 {
		t.Errorf("a user who may not declare clients: %d orders, %s", len(asked), page)
	}
	if page := o.page("clients"); !strings.Contains(page, "only the user who runs pfard may do this") {
		t.Errorf("it is not refused: %s", page)
	}
	o.site.orders.allowed.Store(true)
	if page := o.page("clients"); !strings.Contains(page, `value="declare"`) {
		t.Errorf("the page has no form: %s", page)
	}
	const token = "pfar_0123456789abcdef"
	for answer, want := range map[attach.Ordered]string{
		{Token: token}:                         ">" + token + "<",
		{Error: "client <b>laptop</b> exists"}: "Nothing was done: client <b>laptop</b> exists",
		{}:                                     "Nothing was done: pfard gave no token",
	} {
		go func() {
			got := <-asked
			if got.Act != attach.OrderClient || got.Client != "laptop" || got.Servers != "notes  mail" {
				answer = attach.Ordered{Error: "wrong order"}
			}
			answer.Question = got.Question
			o.site.orders.answer(answer.Number, answer)
		}()
		if a := o.do("POST", path, form); a.code != 303 || a.h.Get("Location") != path || strings.Contains(a.text, token) {
			t.Errorf("%+v: %d %s", answer, a.code, a.text)
		}
		if page := o.page("clients"); !strings.Contains(page, want) || strings.Contains(page, "data-reload") ==
			(answer.Token != "") && strings.Contains(page, "data-events") == (answer.Token != "") {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
	if page := o.page("clients"); strings.Contains(page, token) {
		t.Errorf("the token is shown twice: %s", page)
	}
	for form, code := range map[string]int{
		"act=start&turn=" + turn: 400, form + "&name=other": 400, strings.TrimSuffix(form, turn) + "x": 403,
	} {
		if a := o.do("POST", path, form); a.code != code || len(asked) > 0 {
			t.Errorf("%s: %d, want %d", form, a.code, code)
		}
	}
}

// TestHostileAddClientsHealth is TestHostileTexts for the pages Add, Clients and Health.
func TestHostileAddClientsHealth(t *testing.T) {
	o := openServers(t)
	look := func(path, text string) []string {
		a := o.do("GET", o.home+path, "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%s, %.60q", path, text), a.text)
		return shape(t, a.text)
	}
	for _, path := range []string{"add", "clients", "health"} {
		o.says("plain")
		want := look(path, "plain")
		for _, text := range loopbacktest.PayloadsOf(path, loopbacktest.Many) {
			o.says(text)
			if got := look(path, text); !slices.Equal(got, want) {
				t.Errorf("%s, %.60q: the page is %q", path, text, got)
			}
		}
	}
}
