package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// acme puts a service into the catalogue whose token comes from an authorization server by a code. Its server asks the
// API of that for whom the token is.
func (p *pfar) acme(a *authorizer) {
	p.t.Helper()
	for dir, text := range map[string]string{
		"services.d": fmt.Sprintf(`service "acme" {
  setup {
    title   = "Acme"
    summary = "The API of the tests"
    command = %q
    domains = [%q]

    secret "TOKEN" {
      key     = "acme_token"
      deliver = "env"
      where   = "Ask Acme."
    }
    test "fetch" {
      arguments = { method = "GET", url = "http://%[2]s", headers = { Authorization = "Bearer $TOKEN" } }
      answer    = "alice"
    }
  }
}
`, program(p.t, "hostile"), a.api),
		"policies.d": "server \"acme\" {\n  relax = \"a test\"\n  reads = [\"fetch\"]\n}\n",
	} {
		dir = filepath.Join(p.home, dir)
		check(p.t, os.MkdirAll(dir, 0o755))
		put(p.t, filepath.Join(dir, "acme.hcl"), text)
	}
	p.configure("acme", fmt.Sprintf("client_id = \"owners-client\"\nkey = \"acme_token\"\n"+
		"scopes = [\"read\", \"offline_access\"]\nissuer = %[1]q\nresource = \"%[1]s/api\"\nca = %[2]q\n"+
		"device {\n url = \"%[1]s/device/auth\"\n token = \"%[1]s/token\"\n}\n", a.issuer, a.cert))
}

// issued are the tokens that an authorization server has given out.
func (a *authorizer) issued() (tokens []string) {
	issued := regexp.MustCompile(`"issued":\["([^"]+)","([^"]+)"\]`)
	for _, m := range issued.FindAllStringSubmatch(a.said.String(), -1) {
		tokens = append(tokens, m[1:]...)
	}
	return tokens
}

// opens goes to a one-time page.
func (s *surfer) opens(link string) sight {
	s.t.Helper()
	return s.looks(`const is = await page.goto(args); if (is.status() !== 200) throw await is.text();`, link)
}

// sees waits for a text on the page.
func (s *surfer) sees(text string) sight {
	s.t.Helper()
	return s.looks(`await page.waitForFunction((text) => document.body.innerText.includes(text), args.text,
	{ timeout: args.soon });`, map[string]any{"text": text, "soon": soon.Milliseconds()})
}

// signsIn presses the button of a one-time page, and returns the code and the address that come.
func (s *surfer) signsIn() (code, address string) {
	s.t.Helper()
	s.does(nil, `
await page.click("button[value=sign-in]");
await page.waitForSelector(".code");`, nil)
	return s.device()
}

// device is the code and the address of a sign-in on a one-time page.
func (s *surfer) device() (code, address string) {
	s.t.Helper()
	var is struct{ Code, Address string }
	s.does(&is, `
return { Code: await page.innerText(".code"), Address: await page.getAttribute("section a", "href") };`, nil)
	return is.Code, is.Address
}

// answers does at the authorization server what a person does in a tab of their own: it enters a code, and denies or
// signs in and consents.
func (s *surfer) answers(address, code string, denies bool) {
	s.t.Helper()
	s.does(nil, `
const tab = await context.newPage();
await tab.goto(args.address);
await tab.fill("input[name=user_code]", args.code);
await tab.click("button[type=submit]");
await tab.waitForSelector("text=Confirm Device");
if (args.denies) {
	await tab.click("button[name=abort]");
	await tab.waitForSelector("text=interrupted");
} else {
	await tab.click("button[autofocus]");
	for (;;) {
		await tab.waitForSelector("input[name=login], :text('Sign-in Success'), :text('scopes')");
		if ((await tab.innerText("body")).includes("Sign-in Success")) break;
		if (await tab.locator("input[name=login]").count()) {
			await tab.fill("input[name=login]", "alice");
			await tab.fill("input[name=password]", "any");
		}
		const before = tab.url();
		await tab.click("button[type=submit]");
		await tab.waitForURL((now) => now.href !== before);
	}
}
await tab.close();`, map[string]any{"address": address, "code": code, "denies": denies})
}

// noToken wants the vault to be without the token, and nobody to ask for it.
func (p *pfar) noToken() {
	p.t.Helper()
	if out, _, _ := p.command("vault", "list"); strings.Contains(out, "acme_token") {
		p.t.Errorf("the vault has %s", out)
	}
	if pid := p.errand(); pid != 0 {
		p.t.Errorf("process %d still asks for the token", pid)
	}
}

// TestPageSignsIn: on a one-time page a person signs in with a code at a real authorization server, in a real browser.
// They deny once, reload the page, press the button of a page that is out of date, and then consent. The token goes to
// the vault, a call with it verifies the server, and neither the page nor any file, argument or screen has had it.
func TestPageSignsIn(t *testing.T) {
	t.Parallel()
	a := newAuthorizer(t, 3600)
	p := prepare(t, nil)
	p.acme(a)
	p.up()
	adding := p.atTerminal("add", "acme", "--page")
	adding.reply(1, `Set up "acme"? [y/N]`, "y")
	adding.await(1, "Waiting for you")
	link := linkOfPage.FindString(adding.text())
	under := p.await("the set-up", soon, func(r control.Report) bool { return len(r.SetUps) == 1 && r.SetUps[0].Paged })
	if now := under.SetUps[0]; now.Server != "acme" || now.Page != "" || now.Wants.Variable != "TOKEN" {
		t.Errorf("the report has %+v", now)
	}
	if out, _, _ := p.command("status"); !strings.Contains(out, "acme waits for TOKEN on its page, ") ||
		!strings.Contains(out, " left; go on: pfar add acme; cancel: pfar add --cancel\n") ||
		strings.Contains(out, linkOfPage.FindStringSubmatch(link)[2]) {
		t.Errorf("pfar status says %s", out)
	}

	s := surf(t, 0)
	var seen []sight
	looks := func(now sight) sight {
		t.Helper()
		if seen = append(seen, now); now.URL != link {
			t.Errorf("the browser is at %s", now.URL)
		}
		return now
	}
	if now := looks(s.opens(link)); !strings.Contains(now.Text, "Sign in to Acme") {
		t.Fatalf("the page offers no sign-in: %s", now.Text)
	}
	s.does(nil, `globalThis.stale = await context.newPage(); await stale.goto(args);`, link)
	code, address := s.signsIn()
	looks(s.sees(code))
	if !strings.HasPrefix(address, a.issuer+"/") {
		t.Errorf("the page leads to %s, and the provider is %s", address, a.issuer)
	}
	var refused string
	s.does(&refused, `
await stale.click("button[value=sign-in]");
await stale.waitForSelector("text=nothing was stored");
const text = await stale.innerText("body");
await stale.close();
return text;`, nil)
	if !strings.Contains(refused, "nothing was stored: this form was already sent") {
		t.Errorf("the button of a page that is out of date does %q", refused)
	}
	looks(s.looks(`await page.reload();`, nil))
	if again, at := s.device(); again != code || at != address {
		t.Errorf("after a reload the page shows %s at %s, before %s at %s", again, at, code, address)
	}
	if n := strings.Count(a.said.String(), `{"device":`); n != 1 {
		t.Errorf("the provider has given %d codes", n)
	}

	s.answers(address, code, true)
	now := looks(s.sees("the sign-in was refused, by you or by the provider"))
	if strings.Contains(now.Text, "more times") || !strings.Contains(now.Text, "Sign in to Acme") {
		t.Errorf("after the denial: %s", now.Text)
	}
	p.noToken()

	second, address := s.signsIn()
	if second == code {
		t.Error("the second code is the first")
	}
	s.answers(address, second, false)
	now = looks(s.sees("Connected"))
	if !strings.Contains(now.Text, "Acme is connected as acme") || strings.Contains(now.Text, "No call has tested") {
		t.Errorf("at the end: %s", now.Text)
	}
	adding.reply(1, `of "acme"? [y/N]`, "y") // its definitions
	adding.await(1, "acme: verified with fetch")
	if v := server(p.awaitRunning("acme"), "acme").Verification; v.Result != units.Verified || v.Tool != "fetch" {
		t.Errorf("the server is %+v", v)
	}
	if out, _, _ := p.command("vault", "list"); !strings.Contains(out, "acme_token") ||
		!strings.Contains(out, "oauth") {
		t.Errorf("the vault has %s", out)
	}
	p.await("the end", soon, func(r control.Report) bool { return len(r.SetUps) == 0 })
	eventually(t, func() bool { return p.child("pfar-setup") == 0 })
	s.leave()
	tokens := a.issued()
	if len(tokens) != 2 {
		t.Fatalf("the provider has given the tokens %q", tokens)
	}
	for _, token := range tokens {
		for _, now := range seen {
			if strings.Contains(now.URL+now.Text+now.All, token) {
				t.Errorf("the browser shows a token: %+v", now)
			}
		}
		if strings.Contains(adding.text(), token) {
			t.Errorf("the terminal shows a token: %s", adding.text())
		}
		assertSecretNowhere(t, p, token)
	}
	p.search(t, tokens[1], linkOfPage.FindStringSubmatch(link)[2])
}

// TestPageSignInEnds: a code that nobody enters in time, and a set-up that another one ends, leave no token behind. The
// page says so, and who has begun the set-up learns why in one word.
func TestPageSignInEnds(t *testing.T) {
	t.Parallel()
	t.Run("the code expires", func(t *testing.T) {
		t.Parallel()
		a := newAuthorizer(t, 3600, 3)
		p := prepare(t, nil)
		p.acme(a)
		p.up()
		adding := p.begins(t, "add", "acme", "--page", "--yes", "--json")
		s := surf(t, 0)
		s.opens(adding.shows(`(http://127\.0\.0\.1:\S+)`))
		s.does(nil, `await page.click("button[value=sign-in]");`, nil)
		now := s.sees("the code has expired before it was entered")
		if !strings.Contains(now.Text, "Sign in to Acme") || strings.Contains(now.Text, "more times") {
			t.Errorf("after the code: %s", now.Text)
		}
		p.noToken()
		s.does(nil, `await page.click("button[value=cancel]");`, nil)
		s.sees("Not connected")
		adding.failed(control.FlowCancelled)
		if tokens := a.issued(); len(tokens) != 0 {
			t.Errorf("the provider has given the tokens %q", tokens)
		}
	})
	t.Run("another set-up", func(t *testing.T) {
		t.Parallel()
		a := newAuthorizer(t, 3600)
		p := prepare(t, nil)
		p.acme(a)
		p.ping()
		p.up()
		adding := p.begins(t, "add", "acme", "--page", "--yes", "--json")
		s := surf(t, 0)
		s.opens(adding.shows(`(http://127\.0\.0\.1:\S+)`))
		code, address := s.signsIn()
		other := p.begins(t, "add", "ping", "--page", "--yes")
		other.shows(`(http://127\.0\.0\.1:\S+)`)
		s.sees("another set-up was begun")
		adding.failed(control.FlowSuperseded)
		eventually(t, func() bool { return p.errand() == 0 })
		s.answers(address, code, false) // nobody asks for what it grants
		p.noToken()
		if tokens := a.issued(); len(tokens) != 0 {
			t.Errorf("the provider has given the tokens %q", tokens)
		}
		if _, err := os.Stat(p.path("acme.hcl")); err == nil {
			t.Error("the server is declared")
		}
	})
}

// failed waits until a pfar add --json has failed, for a reason.
func (s *signingIn) failed(why control.FlowReason) {
	s.t.Helper()
	code := s.ends()
	var now control.Flow
	if err := json.Unmarshal([]byte(s.stdout.String()), &now); err != nil || code != 1 ||
		now.State != control.FlowFailed || now.Reason != why || now.Detail == "" {
		s.t.Errorf("%v: it ends with %d, %s", err, code, &s.stdout)
	}
}
