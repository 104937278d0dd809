package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// told is a webhook that hears of each call that waits on a stage.
func (h *noticeHost) told(s *stage) {
	s.t.Helper()
	s.env = append(s.env, "SSL_CERT_FILE="+h.roots)
	policies := filepath.Join(s.home, "policies.d")
	check(s.t, os.Mkdir(policies, 0o755))
	text := fmt.Sprintf("notice \"hook\" {\n  url   = \"%s/hook\"\n  every = \"1s\"\n}\n", h.URL)
	check(s.t, os.WriteFile(filepath.Join(policies, "notices.hcl"), []byte(text), 0o644))
}

// link is that of the one call of the next notice.
func (h *noticeHost) link(t *testing.T) string {
	t.Helper()
	n := got(t, "the webhook", h.hooks)
	var hook struct {
		Text  string
		Calls []struct{ Link string }
	}
	if err := json.Unmarshal([]byte(n.body), &hook); err != nil || len(hook.Calls) != 1 ||
		!strings.Contains(hook.Text, hook.Calls[0].Link) {
		t.Fatalf("the webhook got %s, %v", n.body, err)
	}
	return hook.Calls[0].Link
}

// TestConsoleLinks: the link of a notice opens the one call that the notice is about, after the sign-in. A browser that
// is signed in goes there at once, in any window, and one that has signed out signs in again.
func TestConsoleLinks(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		return // root has no console; TestAsOrdinaryUser has the rest
	}
	h := newNoticeHost(t)
	s := prepareStage(t, "strict")
	at, key := elsewhere(t, s.pfar)
	h.told(s)
	s.begin()
	invited := decode[struct{ Link string }](s, "operator", "invite", "alice", "--role", "approve", "--at", at).Link
	b := surfTrusting(t, 0, key, "MAP pfar.test 127.0.0.1")
	b.holdsPasskeys()
	b.opens(invited)
	b.looks(`await page.click("button.main"); await page.waitForSelector("text=Passkey added");`, nil)

	a := s.tempted(false)
	first := "body-" + rest()
	c := a.insist("mail__send_mail", mail(first))
	w := s.awaitPending(a)
	link := h.link(t)
	if link != at+"/call/"+w.ID {
		t.Fatalf("the notice of %s has the link %s", w.ID, link)
	}
	now := b.opens(link)
	if !strings.Contains(now.Text, "Sign in with a passkey") || strings.Contains(now.All, first) {
		t.Fatalf("before the sign-in: %s", now.Text)
	}
	now = b.looks(`
await page.click("button.main");
await page.waitForSelector("text=Approve this call, once");`, nil)
	if !strings.HasSuffix(now.URL, "/call/"+w.ID) || !strings.Contains(now.Text, first) {
		t.Errorf("after the sign-in: %s %s", now.URL, now.Text)
	}
	b.looks(`await page.click("button[value=approve]"); await page.waitForSelector("text=Approved, once");`, nil)
	c.says(t, ran)
	s.got(first, 1)

	second := "body-" + rest()
	c = a.insist("mail__send_mail", mail(second))
	w = s.awaitPending(a)
	var text string
	b.does(&text, `
const other = await context.newPage();
await other.goto(args.link);
await other.waitForSelector("text=Approve this call, once");
return await other.innerText("body");`, map[string]any{"link": h.link(t)})
	if !strings.Contains(text, second) || !strings.Contains(text, "Sign out alice") {
		t.Errorf("in another window: %s", text)
	}
	now = b.looks(`
await page.click("text=Sign out alice");
await page.waitForSelector("text=You are signed out");
await page.goto(args.link);
await page.waitForSelector("text=Sign in with a passkey");`, map[string]any{"link": at + "/call/" + w.ID})
	if now.URL != at+"/call/"+w.ID || strings.Contains(now.All, second) {
		t.Errorf("signed out: %s %s", now.URL, now.Text)
	}
	s.operate(0, "approvals", "deny", w.ID)
	c.says(t, "denied")
	s.got(second, 0)
}
