package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// loneConsole is the process of a console. Its pfard and its gateway are the test.
type loneConsole struct {
	t    testing.TB
	conn *attach.Conn

	mu    sync.Mutex
	calls []operator.Shown
	past  []operator.Past
	posts int
}

func startConsole(t testing.TB) *loneConsole {
	t.Helper()
	k := &loneConsole{t: t}
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
	return k
}

// link is another link.
func (k *loneConsole) link() string {
	k.t.Helper()
	nonce := page.NewNonce()
	check(k.t, k.conn.Send(attach.Message{PageTalk: attach.PageTalk{Invite: &attach.Invite{Nonce: nonce}}}))
	m, _, err := k.conn.Receive()
	if err != nil || m.Listens == nil || m.Listens.Port == 0 {
		k.t.Fatalf("%+v, %v", m, err)
	}
	return page.Link(nonce, m.Listens.Port)
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
	if r.URL.Path == "/approvals/history" {
		v = k.past
	} else if len(k.calls) > 0 && r.URL.Path == "/approvals/"+k.calls[0].ID {
		v = k.calls[0]
	}
	_ = json.NewEncoder(w).Encode(v)
}

// has has calls wait in which a text stands wherever a server, a client, a declaration or a model can put one.
func (k *loneConsole) has(n int, text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls, k.past = nil, nil
	label := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
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
	}
}

// TestConsoleLooks is TestPageLooks for the operator's pages.
func TestConsoleLooks(t *testing.T) {
	t.Parallel()
	k, s := startConsole(t), surf(t, 0)
	dir := os.Getenv(screenshotsVariable)
	s.does(nil, `await page.goto(args.link);`, map[string]any{"link": k.link()})
	const open = `
await page.click("text=Waiting calls");
if (args.call) await page.click("ul.calls a");
for (const d of await page.$$("details")) await d.evaluate((e, open) => { e.open = open; }, args.open);`
	for _, c := range []struct {
		name, text string
		calls      int
		call       bool
	}{
		{"none", "", 0, false}, {"list", "", 3, false}, {"many", "", 12, false}, {"call", "", 1, true},
		{"long", strings.Repeat(" word", 200) + strings.Repeat("W", 400), 2, true},
		{"long-list", strings.Repeat("W", 400), 2, false},
	} {
		k.has(c.calls, c.text)
		for _, width := range []int{360, 1600} {
			for _, scheme := range []string{"light", "dark"} {
				path := ""
				if dir != "" {
					path = filepath.Join(dir, fmt.Sprintf("console-%s-%d-%s.png", c.name, width, scheme))
				}
				s.does(nil, open, map[string]any{"call": c.call, "open": c.name == "many"})
				var wrong []string
				s.does(&wrong, looked, map[string]any{"scheme": scheme, "width": width, "path": path})
				if len(wrong) > 0 {
					t.Errorf("%s, %d wide, %s: %.2000q", c.name, width, scheme, wrong)
				}
			}
		}
	}
}

// TestConsoleHostile: whatever text stands in a call, in a real browser nothing of it runs, loads or answers.
func TestConsoleHostile(t *testing.T) {
	t.Parallel()
	k, s := startConsole(t), surf(t, 0)
	s.does(nil, `
globalThis.ran = [];
page.on("dialog", (d) => { globalThis.ran.push(d.message()); d.dismiss(); });
page.on("request", (r) => { if (!r.url().startsWith(new URL(args.link).origin)) globalThis.ran.push(r.url()); });
await page.goto(args.link);`, map[string]any{"link": k.link()})
	type state struct {
		Ran     []string
		Buttons int
		Wide    bool
	}
	for _, text := range loopbacktest.Payloads {
		text = text[:min(len(text), 1<<10)] // or nobody could approve the call on the page
		k.has(1, text)
		var now state
		s.does(&now, `
await page.click("text=Waiting calls");
await page.click("ul.calls a");
await page.mouse.move(200, 200);
return {
	Ran: globalThis.ran, Buttons: await page.locator("form.answer button").count(),
	Wide: await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth),
};`, nil)
		if len(now.Ran) > 0 || now.Buttons != 3 || now.Wide {
			t.Fatalf("%.60q: %+v", text, now)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.posts > 0 {
		t.Errorf("%d answers came", k.posts)
	}
	var ran []string // the look finds what runs
	s.does(&ran, `await page.goto("about:blank"); await page.evaluate(() => alert("x")); return globalThis.ran;`, nil)
	if len(ran) != 1 {
		t.Errorf("of a script that runs it says %q", ran)
	}
}
