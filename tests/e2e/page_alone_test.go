package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/page"
)

// lonePage is the process of a page. Its pfard is the test.
type lonePage struct {
	t    testing.TB
	conn *attach.Conn
	link string
}

// startPage has a page served.
func startPage(t testing.TB, task page.Task) *lonePage {
	t.Helper()
	ours, theirs, err := attach.Pair("theirs")
	check(t, err)
	c := exec.Command(program(t, "pfar-setup"))
	c.ExtraFiles = []*os.File{theirs}
	c.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=" + units.FDPage}
	c.Stderr = &output{}
	check(t, c.Start())
	theirs.Close()
	p := &lonePage{t: t, conn: ours}
	t.Cleanup(func() {
		p.conn.Close()
		c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil {
			t.Errorf("pfar-setup: %v\n%s", err, c.Stderr)
		}
	})
	if m, _, err := p.conn.Receive(); err != nil || m.Hello == nil || !m.Hello.Page {
		t.Fatalf("%+v, %v", m, err)
	}
	task.Nonce = page.NewNonce()
	text, err := json.Marshal(task)
	check(t, err)
	file, err := units.Sealed("page", text)
	check(t, err)
	defer file.Close()
	check(t, p.conn.Send(attach.Message{Welcome: &attach.Welcome{}}, file))
	m, _, err := p.conn.Receive()
	if err != nil || m.Listens == nil || m.Listens.Port == 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	p.link = page.Link(task.Nonce, m.Listens.Port)
	return p
}

// acted is what a person did first on a page, and the value that came with it.
func (p *lonePage) acted() (act page.Act, value string) {
	p.t.Helper()
	late := time.AfterFunc(soon, func() { p.conn.Close() })
	defer late.Stop()
	m, files, err := p.conn.Receive()
	if err != nil || m.Acted == nil {
		p.t.Fatalf("%+v, %v", m, err)
	}
	if len(files) > 0 {
		b, err := units.ReadSealed(files[0], page.MaxValue)
		check(p.t, err)
		value = string(b)
	}
	return m.Acted.Act, value
}

// asks is a page as it is when a model wants Notion connected.
func asks() page.Task {
	return page.Task{
		Title: "Notion", Server: "notion", Asker: "desk", Program: "npm:@notionhq/notion-mcp-server@2.5.2",
		Reaches: []string{"api.notion.com"},
		Holds:   []string{"NOTION_TOKEN: a placeholder. pfar sends the value to api.notion.com in its place"},
		State: page.State{
			Phase: page.Waiting, Deadline: time.Date(2026, 11, 28, 15, 4, 0, 0, time.Local).AddDate(1, 0, 0),
			Wanted: &page.Wanted{
				Name: "NOTION_TOKEN", URL: "https://www.notion.so/profile/integrations",
				Where: "Create an internal integration, copy its secret, and share the pages with the integration.",
			},
		},
	}
}

// pages are the looks of a page, by name.
func pages() map[string]page.Task {
	all := map[string]page.Task{}
	add := func(name string, change func(k *page.Task)) {
		k := asks()
		w := *k.State.Wanted
		k.State.Wanted = &w
		change(&k)
		all[name] = k
	}
	add("asks", func(*page.Task) {})
	add("consent", func(k *page.Task) { k.State.Wanted = nil })
	add("refused", func(k *page.Task) {
		k.State.Left = 2
		k.State.Words = `401 {"object":"error","status":401,"code":"unauthorized","message":"API token is invalid."}`
	})
	add("optional", func(k *page.Task) {
		k.Asker, k.State.Wanted.Optional, k.State.Wanted.Scopes = "", true, []string{"repo", "read:org", "workflow"}
		k.Sees = []string{"/home/alice/Documents, to read", "/srv/reports, to read and write", "a directory of its own"}
	})
	add("long", func(k *page.Task) {
		k.Title = "Knowledge Repository and Collaboration Suite for Regulated Industries (European Region)"
		k.Server, k.Asker = "knowledge-repository-eu", "a-desktop-client-in-use"
		k.Program = "npm:@knowledge-repository-and-collaboration-suite/model-context-protocol-server@2.5.2-beta.11"
		k.State.Wanted.Name = "KNOWLEDGE_REPOSITORY_AND_COLLABORATION_SUITE_PERSONAL_ACCESS_TOKEN"
		k.State.Wanted.Where = strings.Repeat("Open the settings of your workspace, choose Integrations, and then "+
			"create an internal integration with the rights below. ", 4)
		k.State.Wanted.URL = "https://knowledge.example.com/settings/workspace/integrations/internal/new?scopes=" +
			strings.Repeat("pages.read,", 12)
		k.State.Wanted.Scopes = strings.Split(strings.Repeat("workspace.pages.read:all ", 11)+"offline", " ")
		k.Reaches, k.Holds = nil, nil
		for i := range 12 {
			k.Reaches = append(k.Reaches, fmt.Sprintf("shard-%d.knowledge-repository.eu-central-1.example.com:8443", i))
		}
		k.State.Left = 1
		k.State.Words = strings.Repeat("unauthorized", 20) + strings.Repeat(" The token has expired.", 20)
	})
	add("working", func(k *page.Task) {
		k.State = page.State{Phase: page.Working, Words: "installing npm:@notionhq/notion-mcp-server@2.5.2"}
	})
	add("sign-in", func(k *page.Task) { k.State.Wanted.SignIn = true })
	add("signing-in", func(k *page.Task) {
		const at = "https://github.example.com/login/device"
		k.State = page.State{Phase: page.SigningIn, Deadline: k.State.Deadline, Device: &page.Device{
			URL: at, Complete: at + "?user_code=ABCD-EFGH", Code: "ABCD-EFGH", Until: k.State.Deadline,
		}}
	})
	add("complete", func(k *page.Task) { k.State = page.State{Phase: page.Done, Tools: 24, Tested: true} })
	add("failed", func(k *page.Task) {
		k.State = page.State{Phase: page.Failed, Words: "no value worked in 3 attempts; the service refused the last: API token is invalid."}
	})
	return all
}

// screenshotsVariable names a directory for pictures of pages.
const screenshotsVariable = "PFAR_TEST_SCREENSHOTS"

// looked is what is wrong with how a page looks.
const looked = `
await page.emulateMedia({ colorScheme: args.scheme });
const painted = () => page.evaluate(() =>
	new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
return await steady(async () => {
	await page.setViewportSize({ width: args.width, height: 800 });
	if (args.path) {
		await painted();
		const height = await page.evaluate(() => document.documentElement.scrollHeight);
		await page.setViewportSize({ width: args.width, height });
		await painted();
		await page.screenshot({ path: args.path });
	}
	return await page.evaluate(() => {
		const wrong = [];
		const root = document.documentElement;
		if (root.scrollWidth > root.clientWidth) wrong.push("it is " + root.scrollWidth + " wide");
		const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
		const light = (colour) => {
			const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
			const [r, g, b] = numbers(colour).map((c) => linear(c / 255));
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const behind = (e) => {
			for (; e; e = e.parentElement) {
				const colour = getComputedStyle(e).backgroundColor;
				if (numbers(colour)[3] !== 0) return colour;
			}
			return "rgb(255, 255, 255)";
		};
		for (const e of document.querySelectorAll("body *")) {
			const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.tagName === "INPUT";
			if (!own || e.type === "hidden") continue;
			const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((a, b) => b - a);
			const contrast = (a + 0.05) / (b + 0.05);
			if (contrast < 4.5) wrong.push(e.tagName + " has a contrast of " + contrast.toFixed(1) + ": " + e.textContent);
			const box = e.getBoundingClientRect();
			if (box.right > root.clientWidth + 1 || box.left < 0) wrong.push(e.tagName + " sticks out: " + e.textContent);
			const pressed = e.matches("button, input, a.button");
			if (pressed && box.height < 44) wrong.push(e.tagName + " is " + box.height + " high");
			const card = pressed && e.nextElementSibling?.matches("section, form") && e.nextElementSibling;
			if (card && card.getBoundingClientRect().top - box.bottom < 8) wrong.push("a card touches " + e.textContent);
			if (parseFloat(getComputedStyle(e).fontSize) < 14) wrong.push(e.tagName + " is small: " + e.textContent);
		}
		const targets = [...document.querySelectorAll("button, input:not([type=hidden]), a.button")]
			.filter((e) => e.checkVisibility()).map((e) => [e, e.getBoundingClientRect()]);
		for (const [i, [e, a]] of targets.entries()) {
			for (const [f, b] of targets.slice(i + 1)) {
				const apart = a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
				if (!apart) wrong.push(e.textContent + " lies over " + f.textContent);
			}
		}
		return wrong;
	});
});`

// TestPageLooks: on a telephone and on a wide screen, light and dark, each state of the page is whole, has contrast
// (WCAG 2.2, 1.4.3) and buttons for thumbs. With PFAR_TEST_SCREENSHOTS=DIR it leaves pictures for people to judge.
func TestPageLooks(t *testing.T) {
	t.Parallel()
	s := surf(t, 0)
	dir := os.Getenv(screenshotsVariable)
	for name, task := range pages() {
		p := startPage(t, task)
		s.looks("await page.goto(args.link);", map[string]any{"link": p.link})
		for _, width := range []int{360, 1600} {
			for _, scheme := range []string{"light", "dark"} {
				path := ""
				if dir != "" {
					path = filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
				}
				var wrong []string
				s.does(&wrong, looked, map[string]any{"scheme": scheme, "width": width, "path": path})
				if len(wrong) > 0 {
					t.Errorf("%s, %d wide, %s: %q", name, width, scheme, wrong)
				}
			}
		}
	}
	var wrong []string // a bad page is found to be one
	s.does(nil, `
await page.goto("about:blank");
await page.setContent("<p style='color:#999;width:2000px'>x</p><button style='height:9px'>y</button>");`, nil)
	s.does(&wrong, looked, map[string]any{"scheme": "light", "width": 360, "path": ""})
	if len(wrong) < 4 {
		t.Errorf("of a bad page it says %q", wrong)
	}
}

// bait is a site that attacks pages, and a form that takes what a page does not.
type bait struct {
	*httptest.Server
	mu   sync.Mutex
	came []string
}

func newBait(t *testing.T) *bait {
	b := &bait{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(t, r.ParseForm())
		if how := r.URL.Query().Get("how"); how != "" {
			b.mu.Lock()
			b.came = append(b.came, strings.TrimSpace(how+" "+r.PostForm.Get("value")))
			b.mu.Unlock()
		}
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<title>bait</title><p>What you allow")
	}))
	t.Cleanup(b.Close)
	return b
}

// attacks are what another page tries against a page whose link and form it has: each does it to args.to. What can be
// read of the page is the answer.
var pageAttacks = map[string]string{
	"form": `
return await page.evaluate(async ({ to, fields }) => {
	const frame = Object.assign(document.createElement("iframe"), { name: "sink" });
	document.body.append(frame);
	const form = document.body.appendChild(document.createElement("form"));
	Object.assign(form, { method: "post", action: to, target: "sink" });
	for (const [name, value] of Object.entries(fields)) {
		Object.assign(form.appendChild(document.createElement("input")), { name, value });
	}
	const loaded = new Promise((done) => frame.onload = done);
	form.submit();
	await loaded;
	try { return frame.contentDocument?.body.innerText ?? ""; } catch { return ""; }
}, args);`,
	"top": `
await page.evaluate(({ to, fields }) => {
	const form = document.body.appendChild(document.createElement("form"));
	Object.assign(form, { method: "post", action: to });
	for (const [name, value] of Object.entries(fields)) {
		Object.assign(form.appendChild(document.createElement("input")), { name, value });
	}
	form.submit();
}, args);
await page.waitForURL(args.to);
return await page.innerText("body");`,
	"fetch": `
return await page.evaluate(async ({ to, fields }) => {
	for (const mode of ["no-cors", "cors"]) {
		for (const method of ["GET", "POST"]) {
			const body = method === "POST" ? new URLSearchParams(fields) : undefined;
			const answer = await fetch(to, { method, mode, body, credentials: "include" }).catch(() => null);
			const text = await answer?.text();
			if (text) return text;
		}
	}
	navigator.sendBeacon(to, new URLSearchParams(fields));
	return "";
}, args);`,
	"frame": `
await page.evaluate(async ({ to }) => {
	const frame = document.body.appendChild(document.createElement("iframe"));
	const loaded = new Promise((done) => frame.onload = done);
	frame.src = to;
	await loaded;
}, args);
return (await Promise.all(page.frames().slice(1).map((f) => f.locator("body").innerText().catch(() => "")))).join();`,
	"opener": `
const opened = context.waitForEvent("page");
await page.evaluate(({ to }) => { window.opened = window.open(to); }, args);
const popup = await opened;
await popup.waitForLoadState();
const read = await page.evaluate(() => {
	try { return window.opened.document.body.innerText; } catch { return ""; }
});
const named = await popup.evaluate(() => window.opener !== null);
await popup.close();
return read + (named ? "opener" : "");`,
}

// TestPageInABrowser: a page of another site, which knows the link and what stands in the form, sends nothing to the
// page, shows it in no frame and reads nothing of it. A name of an attacker's that leads to this machine is refused.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	p, b := startPage(t, asks()), newBait(t)
	target, err := url.Parse(p.link)
	check(t, err)
	r, err := http.Get(p.link)
	check(t, err)
	form, err := io.ReadAll(r.Body)
	r.Body.Close()
	check(t, err)
	turn := regexp.MustCompile(`name="turn" value="([^"]+)"`).FindSubmatch(form)
	if turn == nil {
		t.Fatalf("the page has no form: %s", form)
	}
	fields := map[string]string{"turn": string(turn[1]), "act": "enter", "value": "ntn_stolen"}
	s := surf(t, 0, "MAP evil.test 127.0.0.1")
	at, _ := url.Parse(b.URL)
	for _, from := range []string{b.URL, "http://evil.test:" + at.Port()} { // another port, another site
		for name, attack := range pageAttacks {
			try := func(to string) (read string) {
				s.does(nil, `await page.goto(args.from);`, map[string]any{"from": from})
				s.does(&read, attack, map[string]any{"to": to, "fields": fields})
				return read
			}
			try(b.URL + "/?how=" + name)
			if read := try(p.link); strings.Contains(read, "allow") || strings.Contains(read, "opener") {
				t.Errorf("%s, from %s: it reads %q", name, from, read)
			}
		}
	}
	b.mu.Lock()
	for _, want := range []string{"form ntn_stolen", "top ntn_stolen", "fetch ntn_stolen", "frame", "opener"} {
		if !slices.Contains(b.came, want) {
			t.Errorf("%q does not come where nothing is in its way: %q", want, b.came)
		}
	}
	b.mu.Unlock()
	var rebound string
	s.does(&rebound, `return await (await page.goto(args.to)).text();`,
		map[string]any{"to": "http://evil.test:" + target.Port() + target.Path})
	if strings.Contains(rebound, "Notion") || !strings.Contains(rebound, "as pfar printed it") {
		t.Errorf("by another name: %s", rebound)
	}

	s.does(nil, `
await page.goto(args.link);
await page.fill("#value", "ntn_mine");
await page.click("button.main");
await page.waitForSelector("text=Connecting");`, map[string]any{"link": p.link})
	if act, value := p.acted(); act != page.Enter || value != "ntn_mine" {
		t.Errorf("the first that pfard hears is %s %q", act, value)
	}
}

// TestPageToStrangers: another user of the machine, who has not the link, gets the same answer to everything.
func TestPageToStrangers(t *testing.T) {
	if os.Getuid() != 0 {
		return // nobody else can be had
	}
	t.Parallel()
	p := startPage(t, asks())
	target, err := url.Parse(p.link)
	check(t, err)
	nonce := strings.TrimPrefix(target.Path, "/")
	guesses := []string{
		"/", "/x", "/" + page.NewNonce(), "/" + nonce[:len(nonce)-1] + "/", target.Path + "x", "/favicon.ico",
	}
	var answers []string
	for _, guess := range guesses {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			c := exec.Command("curl", "-s", "-i", "-X", method, "-d", "act=cancel&turn=x", "http://"+target.Host+guess)
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
			out, err := c.Output()
			check(t, err)
			answers = append(answers, regexp.MustCompile(`(?m)^Date: .*$`).ReplaceAllString(string(out), "Date"))
		}
	}
	if all := slices.Compact(answers); len(all) != 1 || !strings.HasPrefix(all[0], "HTTP/1.1 404 ") {
		t.Errorf("the answers are not one: %q", all)
	}
	if strings.Contains(strings.ToLower(answers[0]), "notion") {
		t.Errorf("a stranger learns %s", answers[0])
	}
}
