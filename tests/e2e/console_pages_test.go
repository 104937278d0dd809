package e2e

import (
	"maps"
	"testing"
)

// consolePage is a page of a console: its name, the page on which a link leads there, and that link. A page that is on
// none is one of those to which every page has a link.
type consolePage struct{ name, on, link string }

// consolePages are all pages of a console before which there are calls, each after the one with its link. They come in
// three parts of sectionOfPages pages, each of which begins with a link that every page has.
var consolePages = []consolePage{
	{"waiting", "", "text=Waiting calls"},
	{"call", "waiting", "ul.calls a"},
	{"wants", "", "text=Wants"},
	{"review", "wants", "main a[href*='/review/']"},
	{"allow", "wants", "main a[href*='/allow/']"},
	{"sessions", "", "text=Sessions"},
	{"question", "sessions", "text=New session"},

	{"servers", "", "text=Servers"},
	{"server", "servers", "main h2 a"},
	{"explain", "server", "text=What it can see and reach"},
	{"log", "server", "main a[href*='/log/']"},
	{"lesson", "server", "main a[href*='/learn/']"},
	{"add", "", "nav >> text=Add"},
	{"import", "add", "main a[href$='/import/cursor']"},

	{"clients", "", "nav >> text=Clients"},
	{"health", "", "nav >> text=Health"},
	{"checks", "health", "text=Checks of this machine"},
	{"audit", "", "text=Audit"},
	{"follow", "audit", "text=Follow new records"},
	{"record", "audit", "text=all about this call"},
	{"verify", "audit", "text=Verify the whole audit"},
}

const sectionOfPages = 7

// walk has a person look at pages, each once: a script is run there, and what it returns is for seen. A link is clicked
// where it stands. Where it stood on an earlier page, the person goes to where it led, without the way back.
func walk[T any](s *surfer, pages []consolePage, script string, args map[string]any, seen func(string, T)) {
	s.t.Helper()
	begin := `
if (args.at) await page.goto(args.at); else await page.click(args.link);
const links = await steady(async () => {
	const links = {};
	for (const [name, link] of Object.entries(args.further)) {
		links[name] = await page.locator(link).first().evaluate((e) => e.href);
	}
	return links;
});
const look = async () => {` + script + `};
return { Links: links, Found: await look() };`
	led, here := map[string]string{}, ""
	for i, to := range pages {
		further := map[string]string{} // links from here that are for later
		for _, p := range pages[min(i+2, len(pages)):] {
			if p.on == to.name {
				further[p.name] = p.link
			}
		}
		given := map[string]any{"link": to.link, "at": "", "further": further}
		if to.on != "" && to.on != here {
			if led[to.name] == "" {
				s.t.Fatalf("the page %s comes before the one with its link", to.name)
			}
			given["at"] = led[to.name]
		}
		maps.Copy(given, args)
		var now struct {
			Links map[string]string
			Found T
		}
		s.does(&now, begin, given)
		maps.Copy(led, now.Links)
		here = to.name
		seen(to.name, now.Found)
	}
}

// TestSectionsOfPages: no part of consolePages needs another.
func TestSectionsOfPages(t *testing.T) {
	for n := 0; n < len(consolePages); n += sectionOfPages {
		before := map[string]bool{"": true}
		for _, p := range consolePages[n:min(n+sectionOfPages, len(consolePages))] {
			if !before[p.on] {
				t.Errorf("the page %s is in another part than %s", p.name, p.on)
			}
			before[p.name] = true
		}
	}
}
