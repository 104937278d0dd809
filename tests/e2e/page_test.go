package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// linkOfPage is what a person gets of a page.
var linkOfPage = regexp.MustCompile(`http://127\.0\.0\.1:([0-9]+)/([A-Z2-7]{26,})`)

// wishing is an MCP client whose model may have services connected. It is declared, starts pfar connect as desktop
// programs do, and hears when its tools change.
type wishing struct {
	*mcp.ClientSession
	t testing.TB
	*heard
}

// declareWishing declares the client desk of that kind.
func (p *pfar) declareWishing() {
	p.t.Helper()
	dir := filepath.Join(p.home, "clients.d")
	check(p.t, os.MkdirAll(dir, 0o755))
	put(p.t, filepath.Join(dir, "desk.hcl"), "uid     = [4711]\nservers = [\"*\"]\nconnect = true\n")
}

func (p *pfar) wishing(t testing.TB) *wishing {
	t.Helper()
	w := &wishing{t: t, heard: newHeard()}
	client := mcp.NewClient(&mcp.Implementation{Name: "desk", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { offer(w.changed, struct{}{}) },
	})
	c := exec.Command(program(t, "pfar"), "connect", "--client", "desk")
	c.Env = p.env
	var err error
	w.ClientSession, err = client.Connect(t.Context(), &mcp.CommandTransport{Command: c}, nil)
	check(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// names are its tools.
func (w *wishing) names() (names []string) {
	w.t.Helper()
	for tool, err := range w.Tools(w.t.Context(), nil) {
		check(w.t, err)
		names = append(names, tool.Name)
	}
	return names
}

// tries calls a tool. The error says that there was no result at all.
func (w *wishing) tries(tool string, arguments any) (text string, isError bool, err error) {
	ctx, cancel := context.WithTimeoutCause(w.t.Context(), soon, errors.New("no answer"))
	defer cancel()
	r, err := w.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return "", false, err
	}
	for _, c := range r.Content {
		if b, ok := c.(*mcp.TextContent); ok {
			text += b.Text + "\n"
		}
	}
	return text, r.IsError, nil
}

// calls calls a tool.
func (w *wishing) calls(tool string, arguments any) (text string, isError bool) {
	w.t.Helper()
	text, isError, err := w.tries(tool, arguments)
	check(w.t, err)
	return text, isError
}

// wishes asks pfar to connect a service.
func (w *wishing) wishes(service string) (text string, isError bool) {
	w.t.Helper()
	return w.calls("pfar__connect", map[string]any{"service": service})
}

// linked asks pfar to connect a service, and returns the link that comes.
func (w *wishing) linked(service string) string {
	w.t.Helper()
	text, isError := w.wishes(service)
	link := linkOfPage.FindString(text)
	if link == "" || isError {
		w.t.Fatalf("pfar__connect says %v, %s", isError, text)
	}
	return link
}

// local has the catalogue's entry of a service run the package among the tests' servers: there is no registry where
// the stand-in is.
func (p *pfar) local(service, script string) {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "policies", "services", service+".hcl"))
	check(p.t, err)
	_, setup, ok := strings.Cut(string(b), "\n  setup {")
	pkg := regexp.MustCompile(`(?m)^    (package|integrity) +=.*\n`)
	if !ok || len(pkg.FindAllString(setup, -1)) != 2 {
		p.t.Fatalf("the entry of %s is another one by now:\n%s", service, b)
	}
	run := fmt.Sprintf("\n    command   = \"node\"\n    args      = [%q]", npm(p.t, script))
	dir := filepath.Join(p.home, "services.d")
	check(p.t, os.MkdirAll(dir, 0o755))
	put(p.t, filepath.Join(dir, service+".hcl"),
		fmt.Sprintf("service %q {\n  setup {%s%s", service, run, pkg.ReplaceAllString(setup, "")))
}

// enters types a value into the page's form, and waits for what comes of it.
func (s *surfer) enters(value, comes string) sight {
	s.t.Helper()
	return s.looks(`
await page.fill("#value", args.value);
await page.click("button.main");
await page.waitForFunction((text) => document.body.innerText.includes(text), args.comes, { timeout: args.soon });`,
		map[string]any{"value": value, "comes": comes, "soon": soon.Milliseconds()})
}

// TestPage: a model has Notion connected by a person with a real browser, who enters a wrong token and then the right
// one. The tools of the real server, which reaches a stand-in for Notion by its bridge, appear before the client that
// asked, and the tokens are nowhere but in the vault and at the stand-in.
func TestPage(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	requests, wrap := startStandIn[seen](t, "notion", []string{notionHost})
	p := prepare(t, nil)
	p.local("notion", "@notionhq/notion-mcp-server/bin/cli.mjs")
	p.declareWishing()
	p.up(wrap...)
	w := p.wishing(t)
	if got := w.names(); !slices.Equal(got, []string{"pfar__connect"}) {
		t.Fatalf("the tools before: %q", got)
	}
	link := w.linked("notion")
	nonce := linkOfPage.FindStringSubmatch(link)[2]
	strangersFind(t, p, nonce)

	s := surf(t, p.cmd.Process.Pid)
	open := `const answer = await page.goto(args.link); if (answer.status() !== 200) throw await answer.text();`
	now := s.looks(open, map[string]any{"link": link})
	for _, says := range []string{
		"Connect Notion", "desk", "api.notion.com", "NOTION_TOKEN", "Create an internal integration",
	} {
		if !strings.Contains(now.Text, says) {
			t.Errorf("the page does not say %q: %s", says, now.Text)
		}
	}
	unseen := func(now sight) {
		t.Helper()
		for _, token := range []string{notionToken, wrongNotionToken} {
			if strings.Contains(now.URL+now.Text+now.All, token) {
				t.Errorf("the browser shows a token: %+v", now)
			}
			if found := find(token); len(found) > 0 {
				t.Errorf("a token is among the arguments of %v", found)
			}
		}
		if now.URL != link {
			t.Errorf("the browser is at %s", now.URL)
		}
	}
	wrong := s.enters(wrongNotionToken, "That did not work")
	unseen(wrong)
	if !strings.Contains(wrong.Text, "API token is invalid.") || !strings.Contains(wrong.Text, "2 more times") {
		t.Errorf("after a wrong token: %s", wrong.Text)
	}
	if got := w.names(); !slices.Equal(got, []string{"pfar__connect"}) {
		t.Errorf("the tools with a wrong token: %q", got)
	}
	if again := w.linked("notion"); again != link {
		t.Errorf("asked again it is %s, before %s", again, link)
	}
	for len(w.changed) > 0 {
		<-w.changed
	}
	right := s.enters(notionToken, "Connected")
	unseen(right)
	if !strings.Contains(right.Text, "Notion is connected as notion") || strings.Contains(right.Text, "No call") {
		t.Errorf("after the right token: %s", right.Text)
	}
	select {
	case <-w.changed:
	case <-time.After(soon):
		t.Error("the client does not hear that its tools have changed")
	}
	if got := w.names(); !slices.Contains(got, "notion__API-post-search") {
		t.Errorf("the tools after: %q", got)
	}
	if got, isError := w.calls("notion__API-post-search", map[string]any{"query": "roadmap"}); isError ||
		!strings.Contains(got, "the pfar roadmap") {
		t.Errorf("the search found %s", got)
	}
	select {
	case got := <-requests:
		if got.Authorization != "Bearer "+notionToken || !strings.HasPrefix(got.From, ourAddress+":") {
			t.Errorf("the stand-in saw %+v", got)
		}
	case <-time.After(soon):
		t.Error("the stand-in saw no request")
	}
	if got, isError := w.wishes("notion"); isError || !strings.Contains(got, "notion is connected") {
		t.Errorf("pfar__connect says %s", got)
	}
	if v := server(p.awaitRunning("notion"), "notion").Verification; v.Tool != "API-get-self" {
		t.Errorf("it is %+v", v)
	}
	eventually(t, func() bool { return p.child("pfar-setup") == 0 })
	s.leave()
	p.search(t, notionToken, wrongNotionToken, nonce)
	for _, text := range []string{notionToken, wrongNotionToken, nonce} {
		assertSecretNowhere(t, p, text)
	}
	if out, _, _ := p.command("vault", "list"); !strings.Contains(out, "notion_token") {
		t.Errorf("the vault has %s", out)
	}
}
