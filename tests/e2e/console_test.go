package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/control"
)

// console is the link that the operator gets.
func (s *stage) console() string {
	s.t.Helper()
	return decode[struct{ Link string }](s, "console").Link
}

// TestConsole: a call of a real client waits; a person opens the link in a real browser, reads the call whole, approves
// it, and it goes on. Another call arrives by itself and is denied. Records of a server appear by themselves on the
// page of the audit. The link works once, no client's token opens the page, and after a logout there is none.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := newStage(t, "strict")
	if os.Getuid() == 0 { // TestAsOrdinaryUser has the rest
		if said := s.operate(6, "console"); !strings.Contains(said, "root has no console") {
			t.Error(said)
		}
		return
	}
	a := s.tempted(false)
	body := "body-" + rest()
	c := a.insist("mail__send_mail", mail(body))
	w := s.awaitPending(a)
	link := s.console()
	b := surf(t, 0)
	now := b.looks(`await page.goto(args.link);`, map[string]any{"link": link})
	if !strings.Contains(now.Text, a.name()) || !strings.Contains(now.Text, "x@evil.test") {
		t.Errorf("the list: %s", now.Text)
	}
	now = b.looks(`await page.click("ul.calls a");`, nil)
	for _, want := range []string{body, "x@evil.test", w.Digest, "tracker.read_issue", "Approve this call, once"} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the call has no %q: %s", want, now.Text)
		}
	}
	s.got(body, 0)
	now = b.looks(`await page.click("button[value=approve]"); await page.waitForSelector("text=Approved, once");`, nil)
	c.says(t, ran)
	s.got(body, 1)
	if strings.Contains(link, now.URL) || strings.Contains(now.URL, strings.Split(link, "/")[3]) {
		t.Errorf("the browser is at %s, the link was %s", now.URL, link)
	}

	second := "body-" + rest()
	c = a.insist("mail__send_mail", mail(second))
	s.awaitPending(a)
	b.looks(`
await page.waitForSelector("ul.calls a", { timeout: args.soon });
await page.click("ul.calls a");
await page.fill("#reason", "not on a Saturday");
await page.keyboard.press("Enter");
await page.waitForSelector("text=Denied: ");`, map[string]any{"soon": soon.Milliseconds()})
	c.says(t, "the operator denied it: not on a Saturday")
	s.got(second, 0)
	s.follows(b)

	for name, ask := range map[string]func(*http.Request){
		"again":      func(*http.Request) {},
		"by a token": func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+a.token) },
	} {
		r, err := http.NewRequest("GET", link, nil)
		check(t, err)
		ask(r)
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("the link %s: %s", name, resp.Status)
		}
	}
	s.operate(0, "console", "logout")
	if resp, err := http.Get(link); err == nil {
		t.Errorf("after a logout: %s", resp.Status)
	}
	s.search(t, strings.Split(link, "/")[3])
}

// follows has the browser follow the records of one server. A record of it appears while the person does nothing, and
// one of another server does not.
func (s *stage) follows(b *surfer) {
	s.t.Helper()
	var before, now []string
	const read = `return await steady(() => page.locator("ul.calls li").allInnerTexts());`
	b.does(&before, `
await page.click("text=Audit");
await page.click("text=Follow new records");
await page.click("p.choice[aria-label=Server] >> text=tracker");
await page.waitForSelector("p.choice[aria-label=Server] a[aria-current]:has-text('tracker')");
await page.waitForSelector("text=Stop following");`+read, nil)
	s.agent(false).call("notes__list_allowed_directories", map[string]any{})
	s.agent(false).call("tracker__read_issue", map[string]any{})
	b.does(&now, `await page.locator("ul.calls li").nth(args.n).waitFor({ timeout: args.soon });`+read,
		map[string]any{"n": len(before), "soon": soon.Milliseconds()})
	of := func(l string) bool { return !strings.Contains(l, "tracker") }
	if len(before) == 0 || len(now) != len(before)+1 || !strings.Contains(now[0], "tracker.read_issue") ||
		slices.ContainsFunc(now, of) {
		s.t.Errorf("before two calls the page has %q, then %q", before, now)
	}
}

// visit opens a link in a new browser: a page that is open loads itself again when something changes, and that could
// come between.
func (s *stage) visit(steps string) (*surfer, sight) {
	s.t.Helper()
	b := surf(s.t, 0)
	return b, b.looks(`await page.goto(args.link);`+steps, map[string]any{"link": s.console()})
}

// TestConsoleIsKilled: if the page's process is killed in the middle of an answer, the call is approved once or not at
// all, and the next page says which.
func TestConsoleIsKilled(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	a := s.tempted(false)
	rounds := 4
	if testing.Short() {
		rounds = 2 // one of each: while the answer is under way, and when the browser has it
	}
	for round := range rounds {
		body := "body-" + rest()
		c := a.insist("mail__send_mail", mail(body))
		w := s.awaitPending(a)
		b, _ := s.visit(`await page.click("ul.calls a");`)
		pid := s.child("--operator")
		sent, begun := make(chan error, 1), make(chan struct{})
		late := round%2 == 1 // when the browser has its answer; else somewhere in between
		go func() {
			if late {
				<-begun
			}
			sent <- syscall.Kill(pid, syscall.SIGKILL)
		}()
		b.looks(`
const sent = args.late ? page.waitForResponse((r) => r.request().method() === "POST") : null;
await page.click("button[value=approve]", { noWaitAfter: true }).catch(() => {});
await sent;`, map[string]any{"late": late})
		close(begun)
		check(t, <-sent)
		state := ""
		for _, past := range decode[[]waiting](s, "approvals", "history") {
			if past.ID == w.ID {
				state = past.State
			}
		}
		b.leave()
		b, now := s.visit("")
		if state == "pending" {
			now = b.looks(`
await page.click("ul.calls a");
await page.click("button[value=approve]");
await page.waitForSelector("text=Approved, once");`, nil)
		}
		if !strings.Contains(now.Text, "mail.send_mail") {
			t.Errorf("the call is %s, and the page says %s", state, now.Text)
		}
		c.says(t, ran)
		s.got(body, 1)
		b.leave()
		t.Log("the call was " + state)
	}
}

// TestConsoleSessions: the page shows what a real session reads, as it reads it. Its buttons make a clean session,
// reset one and remove a stain, each after a question and under the person's name; without rights nothing is done, and
// the page says so. Without script it does the same.
func TestConsoleSessions(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	a := s.patient(false)
	b, now := s.visit(`await page.click("text=Sessions");`)
	if !strings.Contains(now.Text, a.name()) || strings.Contains(now.Text, "strangers' text (") {
		t.Errorf("before it has read anything: %s", now.Text)
	}
	a.call("tracker__read_issue", map[string]any{})
	b.looks(`await page.waitForSelector("text=strangers' text (tracker.read_issue)");`, nil)
	c := a.send("shared__write_file", map[string]any{"path": s.sharedFile(a), "content": plan})
	s.operate(0, "approvals", "approve", s.awaitPending(a).ID, "--yes")
	c.says(t, "uccess")
	b.looks(`await page.waitForSelector("text=with write_file at");`, nil)
	b.leave()

	b, _ = s.visit(`await page.click("text=Sessions");`)
	act := func(button, answer, told string) {
		t.Helper()
		now := b.looks(`
await page.click(args.button);
await page.click(args.answer);
await page.waitForSelector("text=Done");`, map[string]any{"button": button, "answer": answer})
		if !strings.Contains(now.Text, told) {
			t.Errorf("%s: %s", button, now.Text)
		}
	}
	name := a.name() + "/default"
	to := func(act, subject string) string { return `a[href$="/do/` + act + "/" + subject + `"]` }
	act(to("new", a.name()), "button[value=new]", a.name()+" has the session ")
	act(to("reset", name), "button[value=reset]", name+" has a clean label")
	if got := s.label(name); got != gate.Start.String() {
		t.Errorf("after a reset it is %s", got)
	}
	act(to("clear", "shared"), "button[value=clear]", "The stain of shared is removed")
	if out := s.operate(0, "sessions", "stains"); !strings.Contains(out, "no server is stained") {
		t.Error(out)
	}
	mine := 0
	for _, one := range decode[[]struct{ Client, Handle string }](s, "sessions") {
		if one.Client == a.name() {
			mine++
		}
	}
	if mine != 2 {
		t.Errorf("the client has %d sessions", mine)
	}
	b.does(&now.Text, `
const plain = await (await context.browser().newContext({ javaScriptEnabled: false })).newPage();
plain.setDefaultTimeout(args.soon);
await plain.goto(args.link);
for (const at of ["text=Sessions", args.button, "button[value=new]"]) await plain.click(at);
return await plain.textContent("body");`, map[string]any{
		"link": s.console(), "button": to("new", a.name()), "soon": soon.Milliseconds(),
	})
	if !strings.Contains(now.Text, a.name()+" has the session ") {
		t.Errorf("without script: %s", now.Text)
	}
	var done []string
	for _, r := range s.records(nil) {
		if r.Kind == audit.Session && r.Approver != "" {
			done = append(done, r.Method)
		}
	}
	for _, want := range []string{"new-session", "reset-session", "clear-stain"} {
		if !slices.Contains(done, want) {
			t.Errorf("the audit has no %q of this user: %q", want, done)
		}
	}
	socket := filepath.Join(s.run, "operator.sock")
	b.looks(`await page.click(args.button);`, map[string]any{"button": to("new", a.name())})
	check(t, os.Chmod(socket, 0))
	now = b.looks(`await page.click("button[value=new]"); await page.waitForSelector("text=Not done");`, nil)
	check(t, os.Chmod(socket, 0o600))
	if !strings.Contains(now.Text, "Nothing was done: ") {
		t.Errorf("without rights: %s", now.Text)
	}
	if n := strings.Count(s.operate(0, "sessions"), a.name()+"/"); n != 3 {
		t.Errorf("the client has %d sessions", n)
	}
}

// TestConsoleServers: the pages show real servers as pfard knows them, and their tools as the gate does; a server that
// stops changes the page that is open.
func TestConsoleServers(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	s.patient(false).call("tracker__read_issue", map[string]any{})
	b, now := s.visit(`await page.click("text=Servers"); await page.click('a[href$="/server/tracker"]');`)
	for _, want := range []string{
		"State: running", "read_issue", "written by", "audience", "reviewed", "memory", "of one processor", "processes",
		"Open connections", "None.",
	} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the page of a server has no %q: %s", want, now.Text)
		}
	}
	now = b.looks(`
await page.click("text=What it can see and reach");
await page.waitForSelector("text=It may use");`, nil)
	flat := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	said, _, ok := strings.Cut(s.operate(0, "explain", "tracker"), "The gate goes by these facts")
	if !ok || !strings.Contains(flat(now.Text), flat(said)) {
		t.Errorf("in words the page says %s, pfar explain %s", now.Text, said)
	}
	now = b.looks(`
await page.click("text=Health"); await page.click("text=Checks of this machine");
await page.waitForSelector("text=Checked 2", { timeout: args.soon });`, map[string]any{"soon": soon.Milliseconds()})
	for _, want := range []string{"bubblewrap", "user namespace limit", "endpoint", "pass"} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the checks have no %q: %s", want, now.Text)
		}
	}
	b.looks(`await page.click("text=Servers"); await page.waitForSelector("text=State: running");`, nil)
	s.operate(0, "stop", "tracker")
	b.looks(`await page.waitForSelector("text=State: stopped");`, nil)
	b.looks(`
await page.click("main h2 a:has-text('tracker')");
await page.click("button[value=start]");
await page.waitForSelector("text=tracker is starting.");`, nil)
	s.awaitRunning("tracker")
	b.looks(`
await page.click("text=Servers"); await page.click("main h2 a:has-text('tracker')");
await page.click("button[value=stop]");
await page.waitForSelector("text=tracker is stopping.");`, nil)
	s.await("the tracker stopped", soon, func(r control.Report) bool {
		return server(r, "tracker").State == control.Stopped
	})
	now = b.looks(`await page.waitForSelector("text=State: stopped", { timeout: args.soon });`,
		map[string]any{"soon": soon.Milliseconds()})
	if strings.Contains(now.Text, "Open connections") || strings.Contains(now.Text, "memory") {
		t.Errorf("a server that stands still: %s", now.Text)
	}
}

// TestConsoleWants: the page leads to the definitions of a server that are held, with all that is in them, and a yes
// there lets clients have them.
func TestConsoleWants(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	p := start(t, map[string]string{
		"held.hcl":   "pins = \"hold\"\n" + declare(program(t, "echo"), nil, ""),
		"lacks.hcl":  "auth = { TOKEN = \"vault:token_of_lacks\" }\n" + declare(program(t, "echo"), nil, ""),
		"serves.hcl": declare(program(t, "echo"), nil, ""),
		"asks.hcl":   declare(program(t, "clients"), nil, ""),
	})
	s := &stage{pfar: p}
	p.awaitRunning("held", "serves", "asks")
	if names := p.client("/mcp/held").names(); len(names) > 0 {
		t.Errorf("a client has %q", names)
	}
	b, now := s.visit(`await page.click("text=Wants");`)
	for _, want := range []string{
		"pfar vault set token_of_lacks", "Review 8 held definitions", "Review 8 unreviewed definitions",
	} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the page has no %q: %s", want, now.Text)
		}
	}
	now = b.looks(`await page.click('a[href$="/review/held"]'); await page.waitForSelector("button[value=accept]");`, nil)
	for _, want := range []string{"new, digest ", `"inputSchema"`, "Accept 8 definitions"} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the definitions have no %q: %s", want, now.Text)
		}
	}
	now = b.looks(`await page.click("button[value=accept]"); await page.waitForSelector("text=Done");`, nil)
	if !strings.Contains(now.Text, "Accepted: 8 definitions of held") || strings.Contains(now.Text, "Review 8 held") {
		t.Errorf("after a yes: %s", now.Text)
	}
	if names := p.client("/mcp/held").names(); len(names) != 8 {
		t.Errorf("a client has %q", names)
	}
	p.client("/mcp").must("asks__run", map[string]any{"argv": []string{"go", "http", "https://cdn.example.com/"}})
	now = b.looks(`
await page.click("text=Wants");
while (!(await page.$("text=Allow cdn.example.com"))) await page.reload();
await page.click("text=Allow cdn.example.com");`, nil)
	if want := "Let asks reach cdn.example.com?"; !strings.Contains(now.Text, want) {
		t.Errorf("no %q: %s", want, now.Text)
	}
	now = b.looks(`
await page.click("button[value=allow]");
await page.waitForSelector("section.good, section.bad");`, nil)
	if !strings.Contains(now.Text, "asks may reach cdn.example.com") {
		t.Errorf("after a yes: %s", now.Text)
	}
	if text, err := os.ReadFile(p.path("asks.hcl")); err != nil || !strings.Contains(string(text), "cdn.example.com") {
		t.Errorf("the declaration: %s %v", text, err)
	}
	p.await("asks may reach the host", soon, func(r control.Report) bool {
		return slices.Contains(server(r, "asks").Domains, "cdn.example.com")
	})
	var link string
	b.does(&link, `
await page.click("button[value=enter]");
await page.waitForSelector("text=Open the one-time page");
return await page.getAttribute("text=Open the one-time page", "href");`, nil)
	b.opens(link)
	b.enters("entered-by-hand-7", "Connected")
	p.awaitRunning("lacks")
	now = b.looks(`await page.goto(args.link); await page.click("text=Wants");`, map[string]any{"link": s.console()})
	if strings.Contains(now.Text, "token_of_lacks") {
		t.Errorf("it wants the secret still: %s", now.Text)
	}
}

// TestConsoleAdds: a person adds a service of the catalogue at the console. Its one-time page asks for the secret, and
// the server runs.
func TestConsoleAdds(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	p := start(t, nil)
	p.ping()
	s := &stage{pfar: p}
	b, now := s.visit(`
await page.click("nav >> text=Add");
while (!(await page.$("text=Ping: Says what it is told"))) await page.reload();
await page.click("text=Ping: Says what it is told");`)
	for _, want := range []string{"PING_TOKEN: Invent one.", "Notion: ", "pfar add ping"} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the page has no %q: %s", want, now.Text)
		}
	}
	var link string
	b.does(&link, `
await page.click('form[action$="/add/ping"] button');
await page.waitForSelector("text=Open the one-time page");
return await page.getAttribute("text=Open the one-time page", "href");`, nil)
	if _, err := os.Stat(p.path("ping.hcl")); err == nil {
		t.Error("it is declared before the person has agreed")
	}
	b.opens(link)
	b.enters(rightPing, "Connected")
	p.awaitRunning("ping")
	now = b.looks(`
await page.goto(args.link);
await page.click("text=Servers");
await page.click("main h2 a");
await page.click('a[href$="/log/ping"]');
await page.waitForSelector(".value, section.bad");`, map[string]any{"link": s.console()})
	if !strings.Contains(now.Text, "Log of ping") || !strings.Contains(now.Text, "ping is right") {
		t.Errorf("its log: %s", now.Text)
	}
	now = b.looks(`await page.goto(args.link); await page.click("nav >> text=Add");
await page.click("text=Ping: Says what it is told");`, map[string]any{"link": s.console()})
	if !strings.Contains(now.Text, "Declared already: server") {
		t.Errorf("when it runs: %s", now.Text)
	}
	pong := strings.NewReplacer("ping", "pong", "Ping", "Pong")
	services := filepath.Join(p.home, "services.d")
	put(t, filepath.Join(services, "pong.hcl"), pong.Replace(string(mustRead(t, filepath.Join(services, "ping.hcl")))))
	b.looks(`while (!(await page.$("text=Pong: Says what it is told"))) await page.reload();`, nil) // pfard has seen it
}
