package e2e

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
)

// console is the link that the operator gets.
func (s *stage) console() string {
	s.t.Helper()
	return decode[struct{ Link string }](s, "console").Link
}

// TestConsole: a call of a real client waits; a person opens the link in a real browser, reads the call whole, approves
// it, and it goes on. Another call arrives by itself and is denied. The link works once, no client's token opens the
// page, and after a logout there is none.
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
	for round := range 4 {
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
