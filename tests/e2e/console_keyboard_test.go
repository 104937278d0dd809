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
	for name, clicks := range consolePages {
		var walk struct {
			All, Reached int
			Dark         []string // what shows no focus
		}
		s.does(&walk, `
for (const at of args.clicks) await page.click(at);
await page.waitForLoadState();
return await steady(async () => {
	const all = await page.evaluate(() => {
		document.activeElement.blur();
		globalThis.acts = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), summary")]
			.filter((e) => e.checkVisibility());
		return acts.length;
	});
	const walk = { All: all, Reached: 0, Dark: [] };
	for (let i = 0; i < all; i++) {
		await page.keyboard.press("Tab");
		const at = await page.evaluate((i) => {
			const e = document.activeElement, style = getComputedStyle(e);
			return { here: e === acts[i], seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
				what: e.outerHTML.slice(0, 200) };
		}, i);
		if (at.here) walk.Reached++;
		if (!at.seen) walk.Dark.push(at.what);
	}
	return walk;
});`, map[string]any{"clicks": clicks})
		if walk.All < 9 || walk.Reached != walk.All || len(walk.Dark) > 0 {
			t.Errorf("%s: %+v", name, walk)
		}
	}
}
