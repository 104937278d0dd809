package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// surfer is a person with a Chromium, which tests/clients/mcp/browser.mjs drives.
type surfer struct {
	t      testing.TB
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *json.Decoder
	stderr *output
}

// surf starts a Chromium in the network of a process, 0 for this one's. Names lead where the rules say, and nowhere
// else (--host-resolver-rules).
func surf(t testing.TB, pid int, rules ...string) *surfer {
	t.Helper()
	return surfTrusting(t, pid, "", rules...)
}

// surfTrusting is surf with a browser that trusts the certificates of a key (base64 of its SHA-256). There a page has
// passkeys; with a certificate that the browser merely overlooks it has none.
func surfTrusting(t testing.TB, pid int, key string, rules ...string) *surfer {
	t.Helper()
	rules = append(rules, "MAP * ~NOTFOUND", "EXCLUDE 127.0.0.1")
	c := inNetworkOf(clientScript(t, "browser.mjs", "/usr/bin/chromium", strings.Join(rules, ", "), key), pid)
	s := &surfer{t: t, cmd: c, stderr: &output{}}
	c.Stderr = s.stderr
	var err error
	s.stdin, err = c.StdinPipe()
	check(t, err)
	stdout, err := c.StdoutPipe()
	check(t, err)
	s.stdout = json.NewDecoder(stdout)
	check(t, c.Start())
	t.Cleanup(s.leave)
	return s
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

// leave closes the browser.
func (s *surfer) leave() {
	if s.cmd.ProcessState != nil {
		return
	}
	s.stdin.Close()
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the browser: %v\n%s", err, s.stderr)
	}
}

// does has the browser run a script, the body of an asynchronous function that knows page, context and args, and
// reads what that returns.
func (s *surfer) does(to any, script string, args any) {
	s.t.Helper()
	line, err := json.Marshal(map[string]any{"script": script, "args": args})
	check(s.t, err)
	_, err = s.stdin.Write(append(line, '\n'))
	check(s.t, err)
	var a struct {
		Value json.RawMessage
		Error string
	}
	if err := s.stdout.Decode(&a); err != nil {
		s.t.Fatalf("the browser: %v\n%s", err, s.stderr)
	}
	if a.Error != "" {
		s.t.Fatalf("the browser: %s\n%s", a.Error, script)
	}
	if to != nil {
		check(s.t, json.NewDecoder(bytes.NewReader(a.Value)).Decode(to))
	}
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
