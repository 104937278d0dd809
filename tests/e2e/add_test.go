package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/control"
)

// person is somebody at a terminal, in which a pfar runs.
type person struct {
	t        testing.TB
	cmd      *exec.Cmd
	terminal *os.File

	mu   sync.Mutex
	seen bytes.Buffer
	more chan struct{}
	all  chan struct{} // closed once nobody has the terminal any more
}

// atTerminal runs pfar in a pseudo-terminal of its own, which does not say how wide it is.
func (p *pfar) atTerminal(args ...string) *person {
	p.t.Helper()
	return p.atColumns(0, args...)
}

// atColumns runs pfar in a pseudo-terminal of so many columns.
func (p *pfar) atColumns(columns int, args ...string) *person {
	p.t.Helper()
	return p.atDesktop(columns, nil, args...)
}

// atDesktop is atColumns with further variables; without them the terminal is on no desktop.
func (p *pfar) atDesktop(columns int, variables []string, args ...string) *person {
	p.t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	check(p.t, err)
	raw, err := terminal.SyscallConn() // Fd would make it one that blocks for ever
	check(p.t, err)
	var number int
	check(p.t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if err == nil && columns > 0 {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: 40})
		}
	}))
	check(p.t, err)
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	check(p.t, err)
	defer screen.Close()
	s := &person{t: p.t, terminal: terminal, more: make(chan struct{}), all: make(chan struct{})}
	s.cmd = exec.Command(program(p.t, "pfar"), args...)
	s.cmd.Env = append(p.env[:len(p.env):len(p.env)], "NO_COLOR=1", "TERM=xterm", "SSH_CONNECTION=", "DISPLAY=",
		"WAYLAND_DISPLAY=")
	s.cmd.Env = append(s.cmd.Env, variables...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = screen, screen, screen
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	check(p.t, s.cmd.Start())
	go s.look()
	p.t.Cleanup(func() { s.cmd.Process.Kill(); s.cmd.Wait(); terminal.Close() })
	return s
}

func (s *person) look() {
	defer close(s.all)
	part := make([]byte, 4096)
	for {
		n, err := s.terminal.Read(part)
		s.mu.Lock()
		s.seen.Write(part[:n])
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		if err != nil { // the last of the other side is gone
			return
		}
	}
}

// await waits until a text is there for the nth time.
func (s *person) await(n int, text string) {
	s.t.Helper()
	late := time.After(soon)
	for {
		s.mu.Lock()
		all, more := s.seen.String(), s.more
		s.mu.Unlock()
		if strings.Count(all, text) >= n {
			return
		}
		select {
		case <-more:
		case <-late:
			s.t.Fatalf("waiting for %q:\n%s", text, all)
		}
	}
}

// reply types a line as soon as a text is there for the nth time.
func (s *person) reply(n int, text, line string) {
	s.t.Helper()
	s.await(n, text)
	_, err := io.WriteString(s.terminal, line+"\n")
	check(s.t, err)
}

func (s *person) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen.String()
}

// TestAdd goes from nothing to the first call of two npm servers: of memory by README's
// three commands at terminals, and of Notion against
// a stand-in, at a terminal that is killed at the prompt, with a wrong token and then with the right one.
func TestAdd(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	_, wrap := startStandIn[seen](t, "notion", []string{notionHost})
	p := prepare(t, nil)
	p.env = append(p.env, registryNamed(t)...)
	commands := readmeCommands(t)
	up := p.atColumns(80, append(commands[0], "--listen", "127.0.0.1:0")...) // the usual port may be another pfar's
	up.await(1, "endpoint")
	install := func(args ...string) string { // npm takes longer than p.command waits
		t.Helper()
		c := exec.Command(program(t, "pfar"), args...)
		c.Env = p.env
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("pfar %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	s := p.atColumns(80, commands[1]...)
	s.reply(1, `Set up "memory"? [y/N]`, "y")
	// It has no secret that a call could show to be right.
	if code := s.ended(); code != 0 || !strings.Contains(s.text(), "memory: running, and holds no secret\r\n") ||
		!strings.Contains(s.text(), strings.Join(commands[2], " ")) {
		t.Errorf("pfar %q: %d %s", commands[1], code, s.text())
	}
	s = p.atColumns(80, commands[2]...)
	if code := s.ended(); code != 0 || !strings.Contains(s.text(), "entities") {
		t.Errorf("pfar %q: %d %s", commands[2], code, s.text())
	}
	notion, _ := catalog.Load(nil, "").Find("notion")
	install("install", notion.Program.Package)

	_, err := io.WriteString(up.terminal, "\x03")
	check(t, err)
	if code := up.ended(); code != 0 {
		t.Errorf("pfar up ends with %d after Ctrl-C: %s", code, up.text())
	}

	p.up(wrap...) // where there is no registry
	notionScreen(t, p, 80)
	if !testing.Short() {
		p.succeeds("remove", "notion", "--purge", "--yes")
		notionScreen(t, p, 120)
	}
	want, err := notion.Declaration(catalog.Choices{})
	check(t, err)
	if text, err := os.ReadFile(p.path("notion.hcl")); err != nil || !bytes.Equal(text, want) {
		t.Errorf("%v: the declaration is\n%s", err, text)
	}
	p.await("notion up", soon, func(r control.Report) bool { return server(r, "notion").State == control.Running })
	out, stderr, code := p.command("call", "notion.API-post-search", "--query", "roadmap")
	if code != 0 || !strings.Contains(out, "the pfar roadmap") {
		t.Errorf("pfar call: %d %s %s", code, out, stderr)
	}
	if out, stderr, code := p.command("add", "notion", "--yes"); code != 0 ||
		!strings.Contains(out, "notion: running") {
		t.Errorf("again: %d %s %s", code, out, stderr)
	}
	p.succeeds("remove", "notion", "--purge", "--yes")
	chat(t, p)
	for _, token := range []string{notionToken, wrongNotionToken} {
		assertSecretNowhere(t, p, token)
	}
}

// readmeCommands are the arguments of pfar in the three commands of README's first block, which begins with make build.
func readmeCommands(t *testing.T) (commands [][]string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	check(t, err)
	_, block, _ := strings.Cut(string(readme), "\n```\n")
	block, _, _ = strings.Cut(block, "\n```\n")
	for i, line := range strings.Split(block, "\n") {
		line, _, _ = strings.Cut(line, "#")
		built, is := strings.CutPrefix(line, "make build && ")
		words := strings.Fields(built)
		if is != (i == 0) || len(words) < 2 || words[0] != "build/bin/pfar" {
			t.Fatalf("README begins with the command %q", line)
		}
		commands = append(commands, words[1:])
	}
	if len(commands) != 3 {
		t.Fatalf("README begins with %d commands, want 3", len(commands))
	}
	return commands
}

// chat sets Notion up with pfar message, and wants other messages to come out unchanged.
func chat(t *testing.T, p *pfar) {
	t.Helper()
	for _, m := range []struct{ text, passes, reply string }{
		{"connect me to Notion, please", "connect me to Notion, please", ""},
		{"Connect Notion", "", "notion needs notion_token"},
		{"what for?", "what for?", ""},
		{wrongNotionToken, "", "refuses the value (1 of 3)"},
		{"NeverMind", "", "notion is not set up: cancelled"},
		{"nevermind", "nevermind", ""},
		{"set up notion", "", "notion needs notion_token"},
		{notionToken, "", "notion is set up: "},
		{notionToken, notionToken, ""},
	} {
		c := exec.Command(program(t, "pfar"), "message")
		var out, said bytes.Buffer
		c.Env, c.Stdin, c.Stdout, c.Stderr = p.env, strings.NewReader(m.text), &out, &said
		err := c.Run()
		if err != nil || out.String() != m.passes || !strings.Contains(said.String(), m.reply) ||
			m.reply == "" && said.Len() > 0 {
			t.Errorf("pfar message %q: %v, %q passes, and it says %q", m.text, err, &out, &said)
		}
	}
}

// notionScreen is what a person sees who adds Notion at a terminal that is killed at the prompt, and goes on at another
// one with a wrong token, and then the right one.
func notionScreen(t *testing.T, p *pfar, columns int) {
	t.Helper()
	s := p.atColumns(columns, "add", "notion")
	s.reply(1, `Set up "notion"? [y/N]`, "y")
	s.await(1, "(not shown):")
	check(t, s.cmd.Process.Kill())
	s.cmd.Wait()
	s.left()
	first := s.text()

	s = p.atColumns(columns, "add", "notion")
	s.await(1, "notion: joining the set-up that is under way")
	s.reply(1, "(not shown):", wrongNotionToken)
	s.reply(2, "(not shown):", notionToken)
	if code := s.ended(); code != 0 {
		t.Errorf("pfar add notion: %d", code)
	}
	s.left()
	both := first + "\nKilled\n\n" + s.text()
	if strings.Contains(both, notionToken) || strings.Contains(both, wrongNotionToken) {
		t.Errorf("a token is on the screen:\n%s", both)
	}
	sameScreen(t, "notion", columns, both)
}

// TestAddSignsIn sets GitHub up with a token that comes from a real authorization server, at terminals of 80 and 120
// columns: the person denies a code for devices and grants the next one. Then they add GitHub again, and the browser
// brings a code to pfar. The set-up goes on by itself. The real npm server holds a placeholder, and the stand-in for
// GitHub behind its bridge gets the token. No screen, process or file has that.
func TestAddSignsIn(t *testing.T) {
	if os.Getuid() != 0 {
		return // another network takes root, and the test has run as root
	}
	t.Parallel()
	requests, wrap := startAPIs(t)
	p := prepare(t, map[string]string{"probe.hcl": echo(t) + "auth = { TOKEN = \"vault:probe_token\" }\n"})
	const script = "@modelcontextprotocol/server-github/dist/index.js"
	p.local("github", script)
	p.up(wrap...)
	a := newAuthorizerIn(t, p.cmd.Process.Pid, 3600)
	for _, name := range []string{"github", "probe"} { // the second shows that the first was read
		p.configure(name, fmt.Sprintf("client_id = \"owners-client\"\nkey = \"%[3]s_token\"\n"+
			"scopes = [\"read\", \"offline_access\"]\nissuer = %[1]q\nresource = \"%[1]s/api\"\nca = %[2]q\n"+
			"device {\n url = \"%[1]s/device/auth\"\n token = \"%[1]s/token\"\n}\n"+
			"code {\n url = \"%[1]s/auth\"\n token = \"%[1]s/token\"\n}\n", a.issuer, a.cert, name))
	}
	p.await("the providers", soon, func(r control.Report) bool {
		return server(r, "probe").Remedy.Command == "pfar login probe"
	})

	browser := surf(t, p.cmd.Process.Pid)
	var seen string
	for _, columns := range []int{80, 120} {
		for _, walk := range []func(*testing.T, *pfar, *surfer, int) string{deviceScreen, codeScreen} {
			if seen != "" {
				p.succeeds("remove", "github", "--purge", "--yes")
			}
			seen += walk(t, p, browser, columns)
		}
	}
	tokens := a.issued()
	if len(tokens) != 8 {
		t.Fatalf("the provider has given the tokens %q", tokens)
	}
	p.awaitRunning("github")
	if out, stderr, code := p.command("call", "github.search_repositories", "--query", "pfar"); code != 0 {
		t.Errorf("pfar call: %d %s %s", code, out, stderr)
	}
	wantAsked(t, requests, apiCall{
		Host: "api.github.com", Path: "/search/repositories", Authorization: "Bearer " + tokens[len(tokens)-2],
	})
	if held := p.variable("GITHUB_PERSONAL_ACCESS_TOKEN"); held == "" || slices.Contains(tokens, held) {
		t.Errorf("the server holds %q", held)
	}
	for _, token := range tokens {
		if strings.Contains(seen, token) {
			t.Errorf("a screen has a token:\n%s", seen)
		}
	}
	for _, token := range tokens[len(tokens)-4:] { // of a code for devices, and of one that the browser has brought
		assertSecretNowhere(t, p, token)
	}
	p.search(t, tokens...)
}

// toSignIn is what a person is asked who may sign in instead.
const toSignIn = `Value of "github_token", or Enter to sign in (not shown):`

// deviceScreen is what a person sees who adds GitHub, presses Enter to sign in by a code, and grants it in a browser.
// At 80 columns they deny a first code.
func deviceScreen(t *testing.T, p *pfar, browser *surfer, columns int) string {
	t.Helper()
	s := p.atColumns(columns, "add", "github")
	s.reply(1, `Set up "github"? [y/N]`, "y")
	s.reply(1, toSignIn, "")
	page, code := s.shown(1)
	browser.signsOut()
	if columns == 80 {
		browser.answers(page, code, true)
		s.reply(2, toSignIn, "")
		page, code = s.shown(2)
	}
	browser.answers(page, code, false)
	s.same(t, "github-device", columns)
	return s.text()
}

// codeScreen is what a person sees who does so with a browser that comes back to pfar.
func codeScreen(t *testing.T, p *pfar, browser *surfer, columns int) string {
	t.Helper()
	s := p.atColumns(columns, "add", "github")
	s.reply(1, `Set up "github"? [y/N]`, "y")
	s.reply(1, toSignIn, "browser")
	browser.signsOut()
	browser.consents(s.link(1))
	s.same(t, "github-code", columns)
	return s.text()
}

// signsOut takes away what the authorization server knows the person by.
func (s *surfer) signsOut() {
	s.t.Helper()
	s.does(nil, `await context.clearCookies();`, nil)
}

// consents opens the link of a login, signs in and consents, until it is back at pfar.
func (s *surfer) consents(link string) {
	s.t.Helper()
	s.does(nil, `
const tab = await context.newPage();
await tab.goto(args);
await tab.fill("input[name=login]", "alice");
await tab.fill("input[name=password]", "any");
await tab.click("button[type=submit]");
await tab.waitForSelector("text=Continue");
await tab.click("button[type=submit]");
await tab.waitForSelector("text=You can close this page");
await tab.close();`, link)
}

// variable is what a process below pfar has in its environment, "" if none has it.
func (p *pfar) variable(name string) string {
	for _, process := range descendants(p.cmd.Process.Pid) {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", process.pid))
		for entry := range bytes.SplitSeq(b, []byte{0}) {
			if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
				return string(value)
			}
		}
	}
	return ""
}

var deviceStep = regexp.MustCompile(`Open this page, on any device:\s+(https://\S+)\s+Enter this code there:\s+(\S+)`)

// shown is the nth page and code that the person is shown.
func (s *person) shown(n int) (page, code string) {
	s.t.Helper()
	s.await(n, "Ctrl-C gives up.")
	all := deviceStep.FindAllStringSubmatch(s.text(), -1)
	if len(all) != n {
		s.t.Fatalf("%d codes are shown, want %d:\n%s", len(all), n, s.text())
	}
	return all[n-1][1], all[n-1][2]
}
