package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
)

// reported is what pfard says: one server waits for a secret, and one that runs was refused a host.
func reported() *control.Report {
	notes := control.Server{
		Name: "notes", State: control.Running, Detail: "2 tools", Tools: 2, File: "/etc/pfar/mcp.d/notes.hcl",
		Description: "what I write down", Label: "internal", Reach: control.Reach{URL: "https://notes.example/mcp"},
	}
	refused := egress.Refusal{Host: "cdn.example.com:443", Reason: egress.NameNotDeclared}
	notes.LastRefusal, notes.Refused, notes.Refusals = refused.String(), refused, []egress.Refusal{refused}
	mail := control.Server{Name: "mail", State: control.Waiting, Detail: "for credentials: mail_token"}
	mail.Wait = units.Wait{
		For: units.WaitCredentials, Remedy: units.ToDo(units.StoreSecret, "mail_token"), Words: "credentials: mail_token",
	}
	return &control.Report{Servers: []control.Server{mail, notes}}
}

func openServers(t *testing.T) *opened {
	t.Helper()
	o := open(t)
	f := operator.ToolFacts{Server: "notes", Tool: "search", Pin: "reviewed"}
	f.Facts.Output = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	f.Facts.Audience, f.Facts.Effect = gate.Internal, gate.Irreversible
	f.Facts.From = gate.From{
		Confidentiality: "owner: a", Integrity: "service: b", Audience: "policy: c", Effect: "worst: d",
	}
	other := f
	other.Server, other.Tool = "other", "hidden_tool"
	o.gate.facts = []operator.ToolFacts{f, other}
	o.gate.pins = []operator.ServerPins{{Server: "notes", Held: make([]operator.Held, 2)}}
	o.site.runs.set(reported())
	o.enter()
	return o
}

// TestServers: the pages show the state of each server, the command for each thing that it wants, and the facts of each
// tool.
func TestServers(t *testing.T) {
	o := openServers(t)
	list := o.do("GET", o.home+"servers", "").text
	for _, want := range []string{
		"State: running", "State: waiting", "credentials: mail_token: pfar vault set mail_token",
		"to reach cdn.example.com:443: pfar allow notes cdn.example.com",
		"2 definitions to accept: pfar pins accept notes", "last refusal", `href="` + o.home + `server/notes"`,
	} {
		if !strings.Contains(html.UnescapeString(list), want) {
			t.Errorf("the list has no %q: %s", want, list)
		}
	}
	page := html.UnescapeString(o.do("GET", o.home+"server/notes", "").text)
	for _, want := range []string{
		"what I write down", "https://notes.example/mcp", "search", "sensitive (owner: a)", "raw (service: b)",
		"internal (policy: c)", "irreversible (worst: d)", "reviewed", "pfar allow notes cdn.example.com",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q: %s", want, page)
		}
	}
	if strings.Contains(page, "hidden_tool") || strings.Contains(page, "mail_token") {
		t.Errorf("the page is about another server, too: %s", page)
	}
	for path, code := range map[string]int{"server/other": 303, "server/..": 404, "server/": 404, "server/a%2Fb": 404} {
		if a := o.do("GET", o.home+path, ""); a.code != code {
			t.Errorf("%s: %d, want %d", path, a.code, code)
		}
	}
	if a := o.do("POST", o.home+"servers", "act=stop"); a.code != 405 {
		t.Errorf("a form to a page that has none: %d", a.code)
	}
}

// TestServersChange: the page hears at once that pfard says something else, and says so if it has said nothing yet.
func TestServersChange(t *testing.T) {
	o := openServers(t)
	before := seen.FindStringSubmatch(o.do("GET", o.home+"servers", "").text)[1]
	r, _ := http.NewRequestWithContext(t.Context(), "GET", o.base+o.home+"events?servers", nil)
	r.Header.Set("Cookie", o.cookie)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next := func() string {
		b := make([]byte, 200)
		n, _ := resp.Body.Read(b)
		return string(b[:n])
	}
	if first := next(); !strings.Contains(first, before) {
		t.Errorf("the first event is %q, the page has %q", first, before)
	}
	o.site.runs.set(&control.Report{})
	if now := next(); now == "" || strings.Contains(now, before) {
		t.Errorf("after a change comes %q", now)
	}
	if now := o.do("GET", o.home+"servers", "").text; !strings.Contains(now, "No server is declared") {
		t.Errorf("%s", now)
	}
	silent := open(t)
	silent.enter()
	if now := silent.do("GET", silent.home+"servers", "").text; !strings.Contains(now, "pfard has not said yet") ||
		strings.Contains(now, "No server is declared") {
		t.Errorf("before pfard has said anything: %s", now)
	}
}

// orders has pfard carry out every order, and returns those that it gets, without their numbers.
func (o *opened) orders() chan attach.Order {
	given := make(chan attach.Order, 9)
	o.site.orders.sends = func(order attach.Order) error {
		go o.site.orders.answer(order.Number, attach.Ordered{})
		order.Question = attach.Question{}
		given <- order
		return nil
	}
	return given
}

// TestTurns: who runs pfard has buttons that start and stop a server. They do so only if the server is still up, or
// still down, as the page has shown it.
func TestTurns(t *testing.T) {
	o := openServers(t)
	given := o.orders()
	turn := field.FindStringSubmatch(o.do("GET", o.home+"servers", "").text)[2]
	press := func(server, act, seen, want string) {
		t.Helper()
		o.do("POST", o.home+"server/"+server, "act="+act+"&seen="+seen+"&turn="+turn)
		if page := html.UnescapeString(o.do("GET", o.home+"servers", "").text); !strings.Contains(page, want) {
			t.Errorf("%s %s: no %q in %s", act, server, want, page)
		}
	}
	buttons := func(server string) (list []string) {
		for _, act := range []string{attach.OrderStart, attach.OrderRestart, attach.OrderStop} {
			if strings.Contains(o.do("GET", o.home+"server/"+server, "").text, `value="`+act+`"`) {
				list = append(list, act)
			}
		}
		return list
	}
	if list := buttons("notes"); len(list) > 0 {
		t.Errorf("who may order nothing has %q", list)
	}
	press("notes", attach.OrderStop, "up", "Nothing was done: only the user who runs pfard")
	o.site.orders.allowed.Store(true)
	for server, want := range map[string][]string{
		"notes": {attach.OrderRestart, attach.OrderStop}, "mail": {attach.OrderStart, attach.OrderStop},
	} {
		if list := buttons(server); !slices.Equal(list, want) {
			t.Errorf("%s has %q", server, list)
		}
	}
	press("notes", attach.OrderStop, "down", "Nothing was done: it has changed since you were asked")
	press("mail", attach.OrderRestart, "between", "Nothing was done: it has changed")
	press("mail", attach.OrderStart, "up", "Nothing was done: it has changed")
	press("nobody", attach.OrderStart, "", "Nothing was done: it has changed")
	press("nobody", attach.OrderStart, "down", "Nothing was done: it has changed")
	for _, body := range []string{"act=enter&seen=up", "act=remove&seen=up", "seen=up"} {
		if a := o.do("POST", o.home+"server/notes", body+"&turn="+turn); a.code != 400 {
			t.Errorf("%s: %d", body, a.code)
		}
	}
	if a := o.do("POST", o.home+"server/notes", "act=stop&seen=up&turn=other"); a.code != 403 || len(given) > 0 {
		t.Errorf("the form of another page: %d, and %d orders", a.code, len(given))
	}
	press("notes", attach.OrderStop, "up", "notes is stopping.")
	press("notes", attach.OrderRestart, "up", "notes is stopping, and starts again.")
	press("mail", attach.OrderStart, "between", "mail is starting.")
	for _, want := range []attach.Order{
		{Act: attach.OrderStop, Server: "notes"}, {Act: attach.OrderRestart, Server: "notes"},
		{Act: attach.OrderStart, Server: "mail"},
	} {
		if got := <-given; got != want {
			t.Errorf("pfard gets %+v, want %+v", got, want)
		}
	}
}

// TestNoticeStays: a notice stays for a while on a page that loads again by itself, and not on the next one.
func TestNoticeStays(t *testing.T) {
	o := openServers(t)
	said := func(path string) bool {
		t.Helper()
		return strings.Contains(o.do("GET", o.home+path, "").text, "mail is starting.")
	}
	one := o.site.sessions[0]
	for _, test := range []struct {
		paths []string
		later time.Duration // that the last page comes
		want  []bool
	}{
		{[]string{"servers", "servers?live", "servers?live"}, 0, []bool{true, true, true}},
		{[]string{"servers", "servers?live", "servers"}, 0, []bool{true, true, false}},
		{[]string{"servers", "servers", "servers?live"}, 0, []bool{true, false, false}},
		{[]string{"servers", "servers?live"}, noticeTime, []bool{true, false}},
		{[]string{"servers"}, noticeTime, []bool{true}},
	} {
		o.site.say(one, notice{Words: "mail is starting."})
		for i, path := range test.paths {
			if i == len(test.paths)-1 {
				o.now = o.now.Add(test.later)
			}
			if is := said(path); is != test.want[i] {
				t.Errorf("%q, page %d: said %t", test.paths, i, is)
			}
		}
	}
}

// serverFills are the texts of servers that others can set. A name that pfard takes has letters, digits and dashes.
var serverFills = map[string]func(o *opened, s *control.Server, text string){
	"state":   func(_ *opened, s *control.Server, text string) { s.State = control.State(text) },
	"detail":  func(_ *opened, s *control.Server, text string) { s.Detail = text },
	"about":   func(_ *opened, s *control.Server, text string) { s.Description = text },
	"label":   func(_ *opened, s *control.Server, text string) { s.Label = text },
	"refusal": func(_ *opened, s *control.Server, text string) { s.LastRefusal = text },
	"file":    func(_ *opened, s *control.Server, text string) { s.File = text },
	"url":     func(_ *opened, s *control.Server, text string) { s.URL = text },
	"remedy": func(_ *opened, s *control.Server, text string) {
		s.Verification.Remedy = units.ToDo(units.StoreSecret, text)
	},
	"tool":        func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Tool = text },
	"pin":         func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Pin = text },
	"output":      func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Facts.From.Confidentiality = text },
	"written by":  func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Facts.From.Integrity = text },
	"audience":    func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Facts.From.Audience = text },
	"effect":      func(o *opened, _ *control.Server, text string) { o.gate.facts[0].Facts.From.Effect = text },
	"wanted host": func(_ *opened, s *control.Server, text string) { s.Refusals[0].Host = text + ".x/example:443" },
}

// TestHostileServers is TestHostileTexts for the pages of servers.
func TestHostileServers(t *testing.T) {
	for name, fill := range serverFills {
		o := openServers(t)
		set := func(text string) {
			now := reported()
			now.Servers[1].Verification = control.Verification{Result: units.Invalid, Remedy: units.ToDo(units.StoreSecret, "x")}
			o.gate.mu.Lock()
			fill(o, &now.Servers[1], text)
			o.gate.mu.Unlock()
			o.site.runs.set(now)
		}
		look := func(path string) []string {
			a := o.do("GET", path, "")
			guarded(t, a.h)
			plainText(t, name, a.text)
			return shape(t, a.text)
		}
		set("plain")
		list, one := look(o.home+"servers"), look(o.home+"server/notes")
		for _, text := range loopbacktest.PayloadsOf(name, loopbacktest.Few) {
			set(text)
			if got := look(o.home + "servers"); !slices.Equal(got, list) {
				t.Errorf("%s, %.60q: the list is %q", name, text, got)
			}
			if got := look(o.home + "server/notes"); !slices.Equal(got, one) {
				t.Errorf("%s, %.60q: the page is %q", name, text, got)
			}
		}
	}
}
