package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/clientfile"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/health"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// loneConsole is the process of a console. Its pfard and its gateway are the test.
type loneConsole struct {
	t       testing.TB
	conn    *attach.Conn
	listens chan attach.Listens // the answers to invitations

	mu       sync.Mutex
	audit    trail.Dir
	views    map[string]string // by attach.View.What
	calls    []operator.Shown
	past     []operator.Past
	sessions []operator.Session
	stains   []operator.Stain
	facts    []operator.ToolFacts
	notices  []operator.Notice
	pins     operator.ServerPins
	posts    int
}

func startConsole(t testing.TB) *loneConsole {
	t.Helper()
	k := &loneConsole{t: t, listens: make(chan attach.Listens, 9)}
	socket := filepath.Join(directory(t, ""), "operator.sock")
	l, err := net.Listen("unix", socket)
	check(t, err)
	gateway := &http.Server{Handler: k}
	go gateway.Serve(l)
	t.Cleanup(func() { gateway.Close() })
	ours, theirs, err := attach.Pair("theirs")
	check(t, err)
	c := exec.Command(program(t, "pfar-console"), "--operator", socket)
	c.ExtraFiles = []*os.File{theirs}
	c.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=" + units.FDPage}
	c.Stderr = &output{}
	check(t, c.Start())
	theirs.Close()
	k.conn = ours
	t.Cleanup(func() {
		k.conn.Close()
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("pfar-console: %v\n%s", err, c.Stderr)
		}
	})
	if m, _, err := k.conn.Receive(); err != nil || m.Hello == nil || !m.Hello.Console {
		t.Fatalf("%+v, %v", m, err)
	}
	check(t, k.conn.Send(attach.Message{Welcome: &attach.Welcome{}}))
	go k.talk()
	return k
}

// talk answers as pfard until the console has ended.
func (k *loneConsole) talk() {
	defer close(k.listens)
	for {
		m, _, err := k.conn.Receive()
		if err != nil {
			return
		}
		if m.Listens != nil {
			k.listens <- *m.Listens
		}
		if m.Audit != nil {
			k.handAudit(*m.Audit)
		}
		if m.View != nil {
			k.handView(*m.View)
		}
	}
}

// handAudit hands over the audit.
func (k *loneConsole) handAudit(q attach.Question) {
	k.mu.Lock()
	paths, err := k.audit.Files("gateway")
	k.mu.Unlock()
	r := attach.Records{Chains: []string{"gateway"}}
	var files []*os.File
	if err != nil || len(paths) != 1 {
		r = attach.Records{Error: fmt.Sprint(paths, err)}
	} else if f, err := os.Open(paths[0]); err == nil {
		files = append(files, f)
	}
	defer attach.CloseAll(files)
	r.Question = q
	if err := k.conn.Send(attach.Message{PageTalk: attach.PageTalk{Records: &r}}, files...); err != nil {
		k.t.Error(err)
	}
}

// handView hands over a view.
func (k *loneConsole) handView(v attach.View) {
	k.mu.Lock()
	text := k.views[v.What]
	k.mu.Unlock()
	open := units.Sealed
	if v.What == attach.ViewBridge {
		open = bridgeOf
	}
	file, err := open("view", []byte(text))
	if err != nil {
		k.t.Error(err)
		return
	}
	defer file.Close()
	r := attach.Records{Question: v.Question}
	if err := k.conn.Send(attach.Message{PageTalk: attach.PageTalk{Records: &r}}, file); err != nil {
		k.t.Error(err)
	}
}

// viewsOf are texts of a server and of the machine with a text in them.
func viewsOf(n int, text string) map[string]string {
	line := strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
	found := health.Checks{At: time.Now()}
	for range n {
		found.Findings = append(found.Findings, health.Finding{
			Check: "node" + text, Detail: "not there" + text, Remedy: "apt install nodejs" + text,
		})
	}
	checks, _ := json.Marshal(found) // strings and a time
	views := choresOf(n, text)
	views[attach.ViewLog] = strings.Repeat("2026-08-01T12:00:00.123Z | "+line+"\n", n)
	views[attach.ViewExplain] = strings.Repeat("notes runs "+line+".\n\nFiles:\n  - "+line+"\n\n", n)
	views[attach.ViewChecks] = string(checks)
	views[attach.ViewVerify] = verifiedOf(n, text)
	views[attach.ViewUsage], views[attach.ViewBridge] = usageOf(n, text)
	return views
}

// records writes an audit with n calls.
func (k *loneConsole) records(n int, text string) trail.Dir {
	k.t.Helper()
	dir := trail.Dir{Path: filepath.Join(k.t.TempDir(), "audit"), Group: -1}
	check(k.t, dir.Make())
	f, _, err := dir.Open("gateway", time.Now())
	check(k.t, err)
	log := trail.New(trail.Options{Writer: "gateway"})
	check(k.t, log.Use(f))
	for range n {
		facts := gate.Worst
		check(k.t, log.Append(&audit.Record{
			Kind: audit.Open, ID: audit.NewID(), Client: "desk" + text, Session: "default" + text, Server: "mail" + text,
			Tool: "send_mail" + text, Method: "tools/call", Outcome: "denied" + text, Facts: &facts,
			Arguments: &audit.Arguments{Bytes: 17, SHA256: audit.Zero, Text: text},
			Findings:  []audit.Finding{{Inspector: "words" + text, Kind: "payload" + text, Detail: text}},
			Before:    &audit.Label{Label: gate.Start, Sources: []string{"web.fetch" + text}},
			Decision: &gate.Decision{
				Verdict: gate.Deny, Reason: "private data could leave" + text, Rule: "sink" + text, Profile: "strict",
				Fired: []string{"sink" + text, "owner: mail.hcl" + text},
			},
		}))
	}
	check(k.t, log.End())
	return dir
}

// link is another link.
func (k *loneConsole) link() string {
	k.t.Helper()
	nonce := page.NewNonce()
	check(k.t, k.conn.Send(attach.Message{PageTalk: attach.PageTalk{Invite: &attach.Invite{Nonce: nonce, Orders: true}}}))
	at := <-k.listens
	if at.Port == 0 {
		k.t.Fatalf("%+v", at)
	}
	return page.Link(nonce, at.Port)
}

// ServeHTTP is the gateway.
func (k *loneConsole) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/approvals/watch" {
		<-r.Context().Done()
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.Method == http.MethodPost {
		k.posts++
	}
	var v any = k.calls
	switch {
	case r.URL.Path == "/approvals/history":
		v = k.past
	case r.URL.Path == "/sessions":
		v = k.sessions
	case r.URL.Path == "/facts":
		v = k.facts
	case r.URL.Path == "/notices":
		v = k.notices
	case r.URL.Path == "/pins":
		v = []operator.ServerPins{k.pins}
	case r.URL.Path == "/pins/notes":
		v = k.pins
	case r.URL.Path == "/stains":
		v = k.stains
	case len(k.calls) > 0 && r.URL.Path == "/approvals/"+k.calls[0].ID:
		v = k.calls[0]
	}
	_ = json.NewEncoder(w).Encode(v)
}

// has makes calls wait, and adds sessions and servers. text stands wherever a server, a client, a declaration or a
// model can put a text.
func (k *loneConsole) has(n int, text string) {
	k.reports(n, text)
	records := k.records(n, text)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.audit, k.views = records, viewsOf(n, text)
	k.calls, k.past, k.sessions, k.stains, k.facts, k.notices = nil, nil, nil, nil, nil, nil
	label := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	k.pins = operator.ServerPins{Server: "notes", Drift: []string{"version 1 -> 2" + text}}
	for i := range n {
		c := operator.Shown{ID: operator.NewID(), Digest: strings.Repeat("ab", 32), State: operator.Pending, Left: 240}
		c.Client, c.Session, c.Server, c.Name = "desk"+text, "default"+text, "mail"+text, "send_mail"+text
		if i%9 == 8 {
			c.Client = "laptop"
		}
		c.Method, c.Masked, c.Silent = "tools/call", []string{"key" + text}, 4000
		c.Arguments, _ = json.Marshal(map[string]string{
			"to": "x@evil.test" + text, "body": "first\n" + text + "\nlast", "x" + text: "y",
		})
		c.Facts.From.Effect, c.Facts.From.Audience = "owner: mail.hcl"+text, "owner: mail.hcl"+text
		c.Decision.Reason, c.Decision.Rule, c.Decision.Data = "private data could leave"+text, "sink"+text, label
		c.Decision.Once, c.Findings = true, []string{"words: looks like a payload" + text}
		c.Sources = []operator.Source{{Server: "web" + text, Tool: "fetch" + text, Call: "abc", Label: label}}
		c.Grants = []operator.GrantOffer{{GrantTerms: operator.UsualGrant}, {Why: "it only writes" + text}}
		k.calls = append(k.calls, c)
		k.past = append(k.past, operator.Past{
			Server: c.Server, Name: c.Name, Client: c.Client, State: "used", Reason: text,
			By: &operator.Approver{Name: "alice"},
		})
		at := operator.Source{
			Client: c.Client, Handle: c.Session, Server: "web" + text, Tool: "fetch" + text, Call: "abc" + text,
			At: time.Now(), Label: label,
		}
		k.sessions = append(k.sessions, operator.Session{
			Client: c.Client, Handle: fmt.Sprint("k", i, text), Label: label, Created: at.At, Used: at.At, Silent: 4000,
			Frozen: "five denials" + text, Reset: at.At, ResetBy: "alice" + text, Sources: []operator.Source{at},
		})
		facts := operator.ToolFacts{Server: "notes", Tool: "search" + text, Facts: c.Facts, Pin: "reviewed" + text}
		k.facts = append(k.facts, facts)
		k.notices = append(k.notices, operator.Notice{Name: "hook" + text, Host: "x.example", Failed: at.At, Why: text})
		line := strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
		k.pins.Held = append(k.pins.Held, operator.Held{
			Kind: "tool", Title: "search" + text, State: "changed", Digest: strings.Repeat("ab", 32), Suspicious: "words" + text,
			Results: "typed values alone" + text,
			Diff:    "--- accepted\n+++ offered\n@@ -1 +1 @@\n-old" + line + "\n+new" + line + "\n",
		})
		k.stains = append(k.stains, operator.Stain{
			Server: fmt.Sprint("notes", i, text), Label: label, Places: []string{"/srv" + text},
			Sources: []operator.Source{at},
		})
	}
}

// reports has pfard say that servers run, and what the catalogue has.
func (k *loneConsole) reports(n int, text string) {
	k.t.Helper()
	refused := egress.Refusal{Host: "cdn.example.com:443", Reason: egress.NameNotDeclared}
	now := control.Report{
		Version: "1" + text, Endpoint: "http://127.0.0.1:7417/mcp" + text, PortFault: text,
		Notes:       []string{"a note" + text},
		Diagnostics: []control.Diagnostic{{File: "a.hcl" + text, Summary: "wrong" + text, Text: "Error: wrong" + text}},
		Undeclared:  control.Undeclared{SetUps: []control.Flow{{Server: "wiki" + text, Detail: "waiting" + text}}},
	}
	for i := range n {
		s := control.Server{
			Name: "notes", State: control.Running, Detail: "2 tools" + text, Tools: 2, File: "notes.hcl" + text,
			Description: "what I write down" + text, Label: "internal" + text, Since: time.Now(),
		}
		if i > 0 {
			s.Name, s.State = fmt.Sprint("mail", i), control.Failed
		}
		s.LastRefusal, s.Refused, s.Refusals = refused.String()+text, refused, []egress.Refusal{refused}
		now.Servers = append(now.Servers, s)
	}
	k.hands(now, attach.PageTalk{Report: true})
	offers := []attach.Offer{
		{Name: "wiki", Title: "Wiki" + text, Summary: "pages" + text, Runs: "npm:wiki" + text, Page: true},
	}
	clients := []attach.Client{
		{Name: "desk", File: "desk.hcl" + text, Relax: text, Profile: "strict" + text, HasToken: true},
	}
	for i := range n {
		clients = append(clients, attach.Client{
			Name: fmt.Sprint("laptop", i), Servers: "mail" + text, Identity: text, Off: true,
		})
		offers = append(offers, attach.Offer{
			Name: fmt.Sprint("mail", i), Title: "Mail" + text,
			Reaches: []string{"mail.example" + text}, Secrets: []string{text},
		})
	}
	known := attach.Known{Offers: offers, Clients: clients, Programs: []string{"cursor"}}
	known.Connects = attach.Connects{Pfar: "/usr/bin/pfar" + text, Run: "/run/pfar" + text}
	k.hands(known, attach.PageTalk{Known: true})
}

// hands sends the console a value as pfard does.
func (k *loneConsole) hands(value any, says attach.PageTalk) {
	k.t.Helper()
	b, err := json.Marshal(value)
	check(k.t, err)
	file, err := units.Sealed("console", b)
	check(k.t, err)
	defer file.Close()
	check(k.t, k.conn.Send(attach.Message{PageTalk: says}, file))
}

// TestConsoleLooks is TestPageLooks for the operator's pages. axe-core finds nothing serious in them. With -short the
// pages have little text, and text that is as wide as can be.
func TestConsoleLooks(t *testing.T) {
	t.Parallel()
	k, s := startConsole(t), surf(t, 0)
	dir := os.Getenv(screenshotsVariable)
	modules, err := npmClients()
	check(t, err)
	axe, err := os.ReadFile(filepath.Join(modules, "node_modules", "axe-core", "axe.min.js"))
	check(t, err)
	s.does(nil, `await page.goto(args.link);`, map[string]any{"link": k.link()})
	const open = `
await steady(() => page.locator("details").evaluateAll(
	(all, open) => all.forEach((e) => { e.open = open; }), args.open));`
	s.does(nil, `kept.axe = args.axe;`, map[string]any{"axe": string(axe)})
	const examined = `
return await steady(async () => {
	if (!await page.evaluate(() => Boolean(globalThis.axe))) await page.evaluate(kept.axe);
	return await page.evaluate(async () => (await axe.run(document)).violations
		.filter((v) => v.impact === "serious" || v.impact === "critical")
		.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join("; ")));
});`
	for _, c := range []struct {
		name, text string
		n          int
	}{
		{"none", "", 0}, {"few", "", 3}, {"many", "", 12},
		{"long", strings.Repeat(" word", 200) + strings.Repeat("W", 400), 2}, {"wide", strings.Repeat("W", 400), 2},
	} {
		if testing.Short() && c.name != "few" && c.name != "wide" {
			continue // the others would show the same
		}
		shown := c.name == "many" || testing.Short() && c.name == "wide"
		k.has(c.n, c.text)
		pages := slices.DeleteFunc(slices.Clone(consolePages), func(p consolePage) bool { return c.n == 0 && p.on != "" })
		walk(s, pages, open, map[string]any{"open": shown}, func(name string, _ any) {
			for _, width := range []int{360, 1600} {
				for _, scheme := range []string{"light", "dark"} {
					path := ""
					if dir != "" {
						path = filepath.Join(dir, fmt.Sprintf("console-%s-%s-%d-%s.png", name, c.name, width, scheme))
					}
					var wrong, found []string
					s.does(&wrong, looked, map[string]any{"scheme": scheme, "width": width, "path": path})
					first, last := width == 360 && scheme == "light", width == 1600 && scheme == "dark"
					if first || shown && (last || !testing.Short()) {
						s.does(&found, examined, nil)
					}
					if wrong = append(wrong, found...); len(wrong) > 0 {
						t.Errorf("%s, %s, %d wide, %s: %.2000q", name, c.name, width, scheme, wrong)
					}
				}
			}
		})
	}
	var found []string // axe finds what is wrong
	s.does(nil, `await page.goto("about:blank"); await page.setContent("<p><img src=x>");`, nil)
	if s.does(&found, examined, nil); len(found) == 0 {
		t.Error("axe finds nothing in a page without a language and with an image that has no text")
	}
}

// TestConsoleHostile: whatever text stands in a call, in a real browser nothing of it runs, loads or answers.
func TestConsoleHostile(t *testing.T) {
	t.Parallel()
	k, s := startConsole(t), surf(t, 0)
	s.does(nil, `
kept.ran = [];
page.on("dialog", (d) => { kept.ran.push(d.message()); d.dismiss(); });
page.on("request", (r) => { if (!r.url().startsWith(new URL(args.link).origin)) kept.ran.push(r.url()); });
await page.goto(args.link);`, map[string]any{"link": k.link()})
	type state struct {
		Ran     []string
		Buttons []string
		Wide    bool
	}
	buttons := map[string]string{
		"waiting": "leave", "call": "leave deny approve grant", "sessions": "leave", "question": "leave new",
		"servers": "leave", "server": "leave restart stop learn",
		"lesson": "leave learn", "import": "leave import", "wants": "leave", "review": "leave accept",
		"allow": "leave allow", "audit": "leave", "add": "leave add", "clients": "leave declare", "health": "leave",
		"record": "leave", "explain": "leave", "log": "leave", "checks": "leave",
		"verify": "leave", "follow": "leave",
	}
	buttons["clients"] += strings.Repeat(" copy", len(clientfile.Names()))
	const look = `
await page.mouse.move(200, 200);
return await steady(async () => ({
	Ran: kept.ran, Buttons: await page.locator("button").evaluateAll((all) => all.map((b) => b.value)),
	Wide: await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth),
}));`
	for i, text := range loopbacktest.PayloadsOf("console", loopbacktest.Loaded) {
		text = text[:min(len(text), 1<<10)] // or nobody could approve the call on the page
		k.has(1, text)
		pages := consolePages
		// With -short the first is on all pages, and each other one on a third of them. That no payload changes the shape
		// of a page is held by pfar-console's own tests, for each field.
		if n := i * sectionOfPages % len(consolePages); testing.Short() && i > 0 {
			pages = pages[n : n+sectionOfPages]
		}
		walk(s, pages, look, nil, func(name string, now state) {
			if len(now.Ran) > 0 || strings.Join(now.Buttons, " ") != buttons[name] || now.Wide {
				t.Fatalf("%s, %.60q: %+v", name, text, now)
			}
		})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.posts > 0 {
		t.Errorf("%d answers came", k.posts)
	}
	var ran []string // the look finds what runs
	s.does(&ran, `await page.goto("about:blank"); await page.evaluate(() => alert("x")); return kept.ran;`, nil)
	if len(ran) != 1 {
		t.Errorf("of a script that runs it says %q", ran)
	}
}
