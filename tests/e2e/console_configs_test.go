package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/clientfile"
)

// TestConsoleConfigs: the page of the clients has what pfar client config prints for each program, and a button copies
// it. Without script there is no button, and the text is there. No token is on the page.
func TestConsoleConfigs(t *testing.T) {
	if os.Getuid() == 0 {
		return // root has no console: TestAsOrdinaryUser
	}
	t.Parallel()
	s := newStage(t, "strict")
	a := s.tempted(false)
	b, now := s.visit(`
await context.grantPermissions(["clipboard-read", "clipboard-write"]);
await page.click("nav >> text=Clients");
await page.click("section:has(h2:has-text('` + a.name() + `')) summary");`)
	if strings.Contains(now.All, a.token) {
		t.Error("the page has the client's token")
	}
	for _, program := range clientfile.Names() {
		want, errs, code := s.command("client", "config", a.name(), "--for", program)
		if code != 0 {
			t.Fatalf("pfar client config: %s", errs)
		}
		var got struct{ Shown, Copied, Says string }
		b.does(&got, `
const section = page.locator("section:has(h2:has-text('" + args.client + "'))");
const button = section.locator("button", { hasText: "Copy for " + args.program }).first();
const text = section.locator("pre[id$='-" + args.program + "']");
const one = await button.elementHandle();
await one.click();
await page.waitForFunction((e) => e.textContent === "Copied", one);
const got = {
	Shown: await text.textContent(), Copied: await page.evaluate(() => navigator.clipboard.readText()),
	Says: await one.textContent(),
};
return got;`, map[string]any{"client": a.name(), "program": program})
		if got.Shown+"\n" != want || got.Copied != got.Shown || got.Says != "Copied" {
			t.Errorf("%s: the page has %q, the button copies %q, a terminal prints %q", program, got.Shown, got.Copied, want)
		}
	}
	var plain struct {
		Shown   bool
		Buttons int
	}
	b.does(&plain, `
const browser = context.browser();
const other = await browser.newContext({ javaScriptEnabled: false });
const bare = await other.newPage();
await bare.goto(args.link);
await bare.click("nav >> text=Clients");
await bare.click("section:has(h2:has-text('" + args.client + "')) summary");
const plain = {
	Shown: await bare.locator("pre.copied").first().isVisible(),
	Buttons: await bare.locator("button.copy:visible").count(),
};
await other.close();
return plain;`, map[string]any{"client": a.name(), "link": s.console()})
	if !plain.Shown || plain.Buttons > 0 {
		t.Errorf("without script: %+v", plain)
	}
}
