package e2e

import (
	"testing"
)

// TestConsoleByKeyboard: on each page of the operator's the tabulator reaches all that a person can act on, in the
// order in which it stands there, and shows where it is.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	k, s := startConsole(t), surf(t, 0)
	k.has(3, "")
	s.does(nil, `await page.goto(args.link);`, map[string]any{"link": k.link()})
	type reach struct {
		All, Reached int
		Dark         []string // what shows no focus
	}
	const tabs = `
await page.waitForLoadState();
return await steady(async () => {
	const all = await page.evaluate(() => {
		document.activeElement.blur();
		const acts = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), summary")]
			.filter((e) => e.checkVisibility());
		globalThis.reach = { All: acts.length, Reached: 0, Dark: [] };
		let nth = 0;
		addEventListener("focusin", ({ target: e }) => {
			const style = getComputedStyle(e);
			if (e === acts[nth++]) reach.Reached++;
			const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
			if (!seen) reach.Dark.push(e.outerHTML.slice(0, 200));
		});
		return acts.length;
	});
	for (let i = 0; i < all; i++) await page.keyboard.press("Tab");
	return await page.evaluate(() => reach);
});`
	walk(s, consolePages, tabs, nil, func(name string, now reach) {
		if now.All < 9 || now.Reached != now.All || len(now.Dark) > 0 {
			t.Errorf("%s: %+v", name, now)
		}
	})
}
