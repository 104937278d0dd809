package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator/ask"
)

// keyOf is the SHA-256 of the key of a certificate, as Chromium takes it.
func keyOf(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	check(t, err)
	block, _ := pem.Decode(text)
	c, err := x509.ParseCertificate(block.Bytes)
	check(t, err)
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// holdsPasskeys gives the browser an authenticator of its own, whose owner is always there (WebDriver, Virtual
// Authenticators).
func (s *surfer) holdsPasskeys() {
	s.t.Helper()
	s.does(nil, `
kept.devtools = await context.newCDPSession(page);
await kept.devtools.send("WebAuthn.enable");
await kept.devtools.send("WebAuthn.addVirtualAuthenticator", { options: {
	protocol: "ctap2", transport: "internal", hasResidentKey: true, hasUserVerification: true, isUserVerified: true,
	automaticPresenceSimulation: true,
} });`, nil)
}

// elsewhere gives a pfar a remote console, which is called pfar.test.
func elsewhere(t *testing.T, p *pfar) (at, key string) {
	t.Helper()
	keyFile, certificate := certified(t, "pfar.test")
	port := freePort(t)
	p.flags = []string{
		"--console", "127.0.0.1:" + port, "--console-cert", certificate, "--console-key", keyFile,
	}
	return "https://pfar.test:" + port, keyOf(t, certificate)
}

// TestConsoleElsewhere: an operator at another machine adds a passkey by a link that works once, signs in with it,
// reads a call that waits, and approves it: the gateway checks the signature. Without one nothing is done, whoever
// asks. A role that does not suffice is named, and an operator who was removed is out at once.
func TestConsoleElsewhere(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 { // TestAsOrdinaryUser has the rest
		p := prepare(t, nil)
		p.flags = []string{"--console", "127.0.0.1:" + freePort(t), "--console-cert", "c.pem", "--console-key", "k.pem"}
		if out, errs, code := p.command(append([]string{"up", p.declarations}, p.flags...)...); code == 0 ||
			!strings.Contains(errs, "root") {
			t.Errorf("root has a console: %d, %s%s", code, out, errs)
		}
		return
	}
	s := prepareStage(t, "strict")
	at, key := elsewhere(t, s.pfar)
	s.begin()
	invite := func(role string) string {
		t.Helper()
		return decode[struct{ Link string }](s, "operator", "invite", "alice", "--role", role, "--at", at).Link
	}
	link := invite("approve")
	if !strings.HasPrefix(link, at+"/enroll/") {
		t.Fatalf("the link is %s", link)
	}
	b := surfTrusting(t, 0, key, "MAP pfar.test 127.0.0.1")
	b.holdsPasskeys()
	now := b.opens(link)
	if !strings.Contains(now.Text, "You become the operator alice, with the role approve") {
		t.Fatalf("the page of the link: %s", now.Text)
	}
	b.looks(`await page.click("button.main"); await page.waitForSelector("text=Passkey added");`, nil)
	now = b.looks(`
await page.click("text=Sign in");
await page.click("button.main");
await page.waitForSelector("text=Sign out alice");`, nil)
	if strings.Contains(now.All, `/add"`) || !strings.HasPrefix(now.URL, at+"/c/") {
		t.Errorf("after signing in: %s %s", now.URL, now.Text)
	}
	var wrong []string
	b.does(&wrong, `
return (await kept.devtools.send("Page.getInstallabilityErrors")).installabilityErrors.map((e) => e.errorId);`, nil)
	if !slices.Equal(wrong, []string{"in-incognito"}) { // Playwright's windows are; they install nothing
		t.Errorf("the pages cannot be installed: %q", wrong)
	}

	a := s.tempted(false)
	body := "body-" + rest()
	c := a.insist("mail__send_mail", mail(body))
	w := s.awaitPending(a)
	now = b.looks(`await page.click("ul.calls a"); await page.waitForSelector("text=Approve this call, once");`, nil)
	for _, want := range []string{body, "x@evil.test", w.Digest} {
		if !strings.Contains(now.Text, want) {
			t.Errorf("the call has no %q: %s", want, now.Text)
		}
	}
	s.unsigned(w)
	s.got(body, 0)
	b.looks(`await page.click("button[value=approve]"); await page.waitForSelector("text=Approved, once");`, nil)
	c.says(t, ran)
	s.got(body, 1)
	approved := func(r audit.Record) bool {
		return r.Kind == audit.Approval && r.Method == "approve" && r.Approver == "alice" && r.Channel == "passkey"
	}
	found := false
	for _, r := range s.records(nil) {
		found = found || approved(r)
	}
	if !found {
		t.Error("the audit does not say that alice approved it with a passkey")
	}

	invite("look")
	second := "body-" + rest()
	c = a.insist("mail__send_mail", mail(second))
	s.awaitPending(a)
	now = b.looks(`
await page.click("ul.calls a");
await page.click("button[value=approve]");
await page.waitForSelector("section.bad");`, nil)
	if !strings.Contains(now.Text, "needs the role approve") {
		t.Errorf("an operator who may look approves: %s", now.Text)
	}
	s.got(second, 0)
	s.operate(0, "approvals", "deny", s.awaitPending(a).ID)
	c.says(t, "denied")

	s.operate(0, "operator", "invite", "bob", "--role", "look", "--at", at) // else the console knows nobody
	s.operate(0, "operator", "remove", "alice")
	now = b.looks(`
const leads = () => page.$("text=Sign in with a passkey").catch(() => null); // the page also loads by itself
while (!(await leads())) await page.goto(args.at + "/").catch(() => null);
await page.click("button.main");
await page.waitForSelector("section.bad");`, map[string]any{"at": at})
	if !strings.Contains(now.Text, "not one of an operator here") {
		t.Errorf("after the removal: %s", now.Text)
	}
}

// unsigned has somebody who has taken over the console ask the gateway to approve a call.
func (s *stage) unsigned(w waiting) {
	s.t.Helper()
	h := &http.Client{Transport: ask.Transport(control.Dirs{Run: s.run}.Passkey(), os.Getuid())}
	for _, proof := range []string{"", "e30", base64.RawURLEncoding.EncodeToString([]byte(`{"operator":"alice"}`))} {
		r, err := http.NewRequest("POST", "http://localhost/approvals/"+w.ID+"/approve",
			strings.NewReader(`{"digest":"`+w.Digest+`"}`))
		check(s.t, err)
		if proof != "" {
			r.Header.Set(passkey.ProofHeader, proof)
		}
		resp, err := h.Do(r)
		check(s.t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			s.t.Errorf("with the proof %q the gateway answers %s", proof, resp.Status)
		}
	}
}

// TestOrdersFromElsewhere: an operator with the role change stops and starts a server from another machine, and allows
// a host that it was refused, each signed by the browser. With the role look there is no button, and a form that
// somebody forges is refused, signed or not.
func TestOrdersFromElsewhere(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		return // root has no such console: TestAsOrdinaryUser
	}
	p := prepare(t, map[string]string{"asks.hcl": declare(program(t, "clients"), nil, "")})
	at, key := elsewhere(t, p)
	p.up()
	s := &stage{pfar: p}
	p.awaitRunning("asks")
	link := decode[struct{ Link string }](s, "operator", "invite", "carol", "--role", "change", "--at", at).Link
	b := surfTrusting(t, 0, key, "MAP pfar.test 127.0.0.1")
	b.holdsPasskeys()
	b.opens(link)
	b.looks(`
await page.click("button.main");
await page.waitForSelector("text=Passkey added");
await page.click("text=Sign in");
await page.click("button.main");
await page.waitForSelector("text=Sign out carol");`, nil)

	p.client("/mcp").must("asks__run", map[string]any{"argv": []string{"go", "http", "https://cdn.example.com/"}})
	now := b.looks(`
await page.click("text=Wants");
await page.waitForSelector("text=Allow cdn.example.com", { timeout: args.soon });
await page.click("text=Allow cdn.example.com");
await page.click("button[value=allow]");
await page.waitForSelector("section.good, section.bad");`, map[string]any{"soon": soon.Milliseconds()})
	if !strings.Contains(now.Text, "asks may reach cdn.example.com") {
		t.Errorf("after a yes: %s", now.Text)
	}
	p.await("asks may reach the host", soon, func(r control.Report) bool {
		return slices.Contains(server(r, "asks").Domains, "cdn.example.com")
	})
	p.awaitRunning("asks")
	const open = `
await page.click("text=Servers");
await page.click("main h2 a");
await page.waitForSelector("text=Tools");`
	press := func(act, told string) {
		t.Helper()
		b.looks(open+`
await page.click(`+"`button[value=${args.act}]`"+`);
await page.waitForSelector("text=" + args.told);`, map[string]any{"act": act, "told": told})
	}
	press("stop", "asks is stopping.")
	p.await("asks stopped", soon, func(r control.Report) bool { return server(r, "asks").State == control.Stopped })
	press("start", "asks is starting.")
	p.awaitRunning("asks")
	var orders []string
	for _, r := range s.records(nil) {
		if r.Approver == "carol" && r.Channel == "passkey" {
			orders = append(orders, string(r.Kind)+" "+r.Method+" "+r.Server)
		}
	}
	want := []string{"declaration declare asks", "lifecycle stop asks", "lifecycle start asks"}
	if !slices.Equal(orders, want) {
		t.Errorf("the audit says that carol ordered %q, want %q", orders, want)
	}

	s.operate(0, "operator", "role", "carol", "look")
	for _, signed := range []bool{false, true} {
		now := b.looks(open+`
while (await page.$("button[value=stop]")) await page.reload();
await page.evaluate((signed) => {
	const form = document.createElement("form");
	form.method = "post";
	form.setAttribute("action", location.pathname);
	const turn = document.querySelector("input[name=turn]").value;
	for (const [name, value] of Object.entries({ turn, seen: "up", act: "stop" })) {
		const field = document.createElement("input");
		field.type = "hidden"; field.name = name; field.value = value;
		form.append(field);
	}
	document.body.append(form);
	if (signed) form.requestSubmit(); else form.submit();
}, args.signed);
await page.waitForSelector("section.bad");`, map[string]any{"signed": signed})
		const why = "carol has the role look, and this needs the role change"
		if !strings.Contains(now.Text, "Nothing was done") || !strings.Contains(now.Text, why) {
			t.Errorf("signed %t, a form that nobody offered: %s", signed, now.Text)
		}
	}
	p.awaitRunning("asks")
}
