package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// surfer is a person with pages of a Chromium, and with cookies that nobody else has.
type surfer struct {
	t        testing.TB
	browser  *chromium
	person   int
	outcomes chan outcome
}

// chromium is a process of tests/clients/mcp/browser.mjs, with a Chromium that many persons may use.
type chromium struct {
	cmd    *exec.Cmd
	stderr output

	mu      sync.Mutex
	stdin   io.WriteCloser
	persons map[int]chan outcome
	entered int
	gone    error // why its output has ended; nil: it has not
}

// outcome is the answer to an order of one person.
type outcome struct {
	Person int
	Value  json.RawMessage
	Error  string
}

// surf has a person use a Chromium in the network of a process, 0 for this one's. Names lead where the rules say, and
// nowhere else (--host-resolver-rules).
func surf(t testing.TB, pid int, rules ...string) *surfer {
	t.Helper()
	if pid != 0 || len(rules) > 0 {
		return surfTrusting(t, pid, "", rules...)
	}
	c, err := everybodys()
	check(t, err)
	s := c.enter(t)
	t.Cleanup(s.leave)
	return s
}

// everybodys is the Chromium of all who need no network, names or certificates of their own: to start one takes longer
// than a visit.
var everybodys = sync.OnceValues(func() (*chromium, error) {
	dir := filepath.Join(scratch(), "chromium")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	c, err := startChromium(dir, 0, "")
	if err == nil {
		atEnd = append(atEnd, c.close)
	}
	return c, err
})

// atEnd are what ends what the tests share.
var atEnd []func() error

// surfTrusting is surf with a browser of this person alone, that trusts the certificates of a key (base64 of its
// SHA-256). There a page has passkeys; with a certificate that the browser merely overlooks it has none.
func surfTrusting(t testing.TB, pid int, key string, rules ...string) *surfer {
	t.Helper()
	c, err := startChromium(directory(t, ""), pid, key, rules...)
	check(t, err)
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	s := c.enter(t)
	t.Cleanup(s.leave)
	return s
}

// startChromium starts one that keeps its files in a directory.
func startChromium(dir string, pid int, key string, rules ...string) (*chromium, error) {
	rules = append(rules, "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1")
	script, err := scriptIn(dir, "browser.mjs", "/usr/bin/chromium", strings.Join(rules, ", "), key)
	if err != nil {
		return nil, err
	}
	c := &chromium{cmd: inNetworkOf(script, pid), persons: map[int]chan outcome{}}
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go c.hear(json.NewDecoder(stdout))
	return c, nil
}

// hear passes each answer to its person, until the process ends its output.
func (c *chromium) hear(from *json.Decoder) {
	for {
		var a outcome
		err := from.Decode(&a)
		c.mu.Lock()
		if err != nil {
			c.gone = err
			for _, p := range c.persons {
				close(p)
			}
			c.mu.Unlock()
			return
		}
		p := c.persons[a.Person]
		c.mu.Unlock()
		p <- a
	}
}

func (c *chromium) enter(t testing.TB) *surfer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entered++
	s := &surfer{t: t, browser: c, person: c.entered, outcomes: make(chan outcome, 1)}
	if c.gone == nil {
		c.persons[s.person] = s.outcomes
	} else {
		close(s.outcomes)
	}
	return s
}

// tell writes what a person is to do.
func (c *chromium) tell(order map[string]any) error {
	line, err := json.Marshal(order)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.stdin.Write(append(line, '\n'))
	return err
}

// close ends the browser.
func (c *chromium) close() error {
	if err := errors.Join(c.stdin.Close(), c.cmd.Wait()); err != nil {
		return fmt.Errorf("the browser: %w\n%s", err, &c.stderr)
	}
	return nil
}

// inNetworkOf has a command run in the network of a process, 0 for this one's.
func inNetworkOf(c *exec.Cmd, pid int) *exec.Cmd {
	if pid == 0 {
		return c
	}
	into := []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pid), "--"}
	inside := exec.Command(into[0], append(into[1:], c.Args...)...)
	inside.Env, inside.Stderr = c.Env, c.Stderr
	return inside
}

// leave closes the person's pages.
func (s *surfer) leave() {
	if s.browser == nil {
		return
	}
	s.order(map[string]any{"person": s.person})
	s.browser = nil
}

// does has the browser run a script, the body of an asynchronous function that knows page, context and args, and
// reads what that returns. What a script keeps in kept, the next one of that person finds there.
func (s *surfer) does(to any, script string, args any) {
	s.t.Helper()
	value := s.order(map[string]any{"person": s.person, "script": script, "args": args})
	if to != nil {
		check(s.t, json.NewDecoder(bytes.NewReader(value)).Decode(to))
	}
}

// order waits for what comes of an order.
func (s *surfer) order(order map[string]any) json.RawMessage {
	s.t.Helper()
	check(s.t, s.browser.tell(order))
	a, ok := <-s.outcomes
	if !ok {
		s.t.Fatalf("the browser: %v\n%s", s.browser.gone, &s.browser.stderr)
	}
	if a.Error != "" {
		s.t.Fatalf("the browser: %s\n%s", a.Error, order["script"])
	}
	return a.Value
}

// sight is what a person has before them.
type sight struct {
	URL, Text string
	All       string // with what is not to be seen
}

// looks is what is before the person now, after steps of a script.
func (s *surfer) looks(steps string, args any) (now sight) {
	s.t.Helper()
	const look = `
return { URL: page.url(), Text: await page.innerText("body"), All: await page.innerHTML("html") };`
	s.does(&now, steps+look, args)
	return now
}
