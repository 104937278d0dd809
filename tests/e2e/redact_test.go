package e2e

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/control"
)

// TestLeaks: a server says its secret in every way and place that there is. No client sees it, no log, no file of
// pfar's; also one that is stored while the server runs.
func TestLeaks(t *testing.T) {
	t.Parallel()
	const host = "0f3c9a7be2d84165b0a1" // in the name of one
	const value, marked, hidden = `ntn_4mYq81"Rz\Lc0p/<X>&vWb+T7uKd2`, "[redacted: leak_token]", "[redacted]"
	p := prepare(t, map[string]string{
		"leak.hcl": declare(program(t, "hostile"), []string{"-leak", "LEAK_TOKEN"}, `
pins = "trust-first"
auth = { LEAK_TOKEN = "vault:leak_token", LEAK_HOST = "vault:leak_host" }`),
		"other.hcl": echo(t),
	})
	p.up()
	p.await("leak waiting", soon, inState("leak", control.Waiting))
	p.awaitRunning("other")
	for key, secret := range map[string]string{"leak_token": value, "leak_host": host} {
		p.stdin = secret + "\n"
		if _, stderr, code := p.command("vault", "set", key); code != 0 {
			t.Fatalf("pfar vault set: %d: %s", code, stderr)
		}
	}
	p.awaitRunning("leak")
	seen := map[string]string{}
	c := p.client("/mcp/leak")
	session := c.session
	c.session = ""
	seen["initialize"] = c.raw("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "e2e", "version": "1"}})
	c.session = session
	for name, q := range map[string]struct {
		method string
		params map[string]any
	}{
		"tools":     {"tools/list", map[string]any{}},
		"prompts":   {"prompts/list", map[string]any{}},
		"prompt":    {"prompts/get", map[string]any{"name": "p"}},
		"resources": {"resources/list", map[string]any{}},
		"resource":  {"resources/read", map[string]any{"uri": "leak://x"}},
		"call":      {"tools/call", map[string]any{"name": "leak", "arguments": map[string]any{}, "_meta": map[string]any{"progressToken": "t"}}},
		"error":     {"tools/call", map[string]any{"name": "fail", "arguments": map[string]any{}}},
	} {
		seen[name] = c.raw(q.method, q.params)
		if !strings.Contains(seen[name], hidden) || strings.Contains(seen[name], marked) {
			t.Errorf("%s: nothing is replaced, or it is named, in %.2000s", name, seen[name])
		}
	}
	for _, place := range []string{"structuredContent", "_meta", "notifications/progress", `"m10":`} {
		if !strings.Contains(seen["call"], place) {
			t.Errorf("the call's answer has no %s: %.2000s", place, seen["call"])
		}
	}
	// The other server is given the value by a client, and says it again.
	seen["other"] = p.client("/mcp/other").raw("tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"message": value}})
	seen["crash"] = c.raw("tools/call", map[string]any{"name": "crash", "arguments": map[string]any{}})
	p.await("the crash", soon, func(r control.Report) bool { return server(r, "leak").Crashes > 0 })
	p.awaitRunning("leak")
	for name, args := range map[string][]string{
		"logs": {"logs", "leak"}, "logs as JSON": {"logs", "leak", "--json"}, "status": {"status", "--json"}, "pins": {"pins"}, "explained": {"explain", "leak"},
		"reached": {"egress", "leak", "--json"}, "listed": {"tools"}, "called": {"call", "leak.leak"}, "failed": {"call", "leak.fail"},
	} {
		stdout, stderr, _ := p.command(args...)
		seen[name] = stdout + stderr
	}
	if strings.Count(seen["logs"], marked) < 20 || !strings.Contains(seen["logs"], "a secret in what the server wrote to stderr is replaced: leak_token") {
		t.Errorf("the log: %s", seen["logs"])
	}
	for _, gone := range []string{"hunter2", "of-somebody-else"} {
		if strings.Contains(seen["logs"], gone) {
			t.Errorf("%s is in the log", gone)
		}
	}
	if want := "[redacted: leak_host].leak.test"; strings.Count(seen["logs"], want) < 2 || !strings.Contains(seen["status"], want) {
		t.Errorf("no %s is refused: %s\n%s", want, seen["status"], seen["logs"])
	}
	if strings.Count(seen["called"], hidden) < 5 {
		t.Errorf("pfar call: %s", seen["called"])
	}
	seen["pfar up"] = p.stderr.String()
	p.files(seen)
	for where, text := range seen {
		for _, form := range append(redact.Forms(value), host) {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s has %q: %q", where, form, text[max(0, i-200):min(len(text), i+len(form)+50)])
				break
			}
		}
	}
}

// TestLeaksOfOthers: a server that has come by another's secret does not get it into its log either, in whatever form,
// and one that writes without end neither waits for that nor loses its answers.
func TestLeaksOfOthers(t *testing.T) {
	t.Parallel()
	const value, marked = `ghp_5vU4"wX\3yZ2aB/<1cD>0eF&9gH+8iJ7kL6`, "[redacted: others]"
	p := prepare(t, map[string]string{
		"loud.hcl":  declare(program(t, "hostile"), []string{"-leak", "LOUD"}, "pins = \"trust-first\"\nauth = { LOUD = \"vault:loud\" }"),
		"other.hcl": declare(program(t, "echo"), nil, `auth = { TOKEN = { secret = "vault:others", deliver = "file" } }`),
	})
	p.up()
	for key, secret := range map[string]string{"loud": "7be2d84165b0a10f3c9a", "others": value} {
		p.stdin = secret + "\n"
		if _, stderr, code := p.command("vault", "set", key); code != 0 {
			t.Fatalf("pfar vault set: %d: %s", code, stderr)
		}
	}
	p.awaitRunning("loud")
	p.awaitRunning("other")
	c := p.client("/mcp/loud")
	tell := func(arguments map[string]any) string {
		t.Helper()
		start := time.Now()
		answer := c.raw("tools/call", map[string]any{"name": "tell", "arguments": arguments})
		if took := time.Since(start); !strings.Contains(answer, "told") || took > soon {
			t.Errorf("after %v: %.500s", took, answer)
		}
		return answer
	}
	seen := map[string]string{"the first answer": tell(map[string]any{"shifted": shifted(value)})}
	logged := func(is func(log string) bool) string {
		t.Helper()
		for deadline := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
			log, _, _ := p.command("logs", "loud")
			if is(log) {
				return log
			}
			if time.Now().After(deadline) {
				t.Fatalf("the log: %.5000s", log)
			}
		}
	}
	seen["logs"] = logged(func(log string) bool {
		return strings.Count(log, marked) >= 11 && strings.Contains(log, " [cut]") &&
			strings.Contains(log, "a secret in what the server wrote to stderr is replaced: others")
	})
	seen["the second answer"] = tell(map[string]any{"shifted": shifted(value), "lines": 50000}) // some six MB, of which a pipe takes 64 KiB
	_ = c.raw("tools/call", map[string]any{"name": "crash", "arguments": map[string]any{}})
	p.await("the crash", soon, func(r control.Report) bool { return server(r, "loud").Crashes > 0 })
	seen["all logs"] = logged(func(log string) bool { return strings.Contains(log, " lines suppressed") })
	seen["status"], _, _ = p.command("status", "--json")
	p.files(seen)
	for where, text := range seen {
		for _, form := range redact.Forms(value) {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%s has %q: %q", where, form, text[max(0, i-200):min(len(text), i+len(form)+50)])
				break
			}
		}
	}
}

// raw makes one request and returns all that comes in answer to it.
func (c *client) raw(method string, params map[string]any) string {
	c.t.Helper()
	resp, err := c.post(map[string]any{"jsonrpc": "2.0", "id": c.id.Add(1), "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

// files adds all that pfar has written, but for the vault and for the credentials on their way to the server.
func (p *pfar) files(to map[string]string) {
	p.t.Helper()
	for _, dir := range []string{p.state(), p.run} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // it has gone meanwhile
			}
			if d.IsDir() && (d.Name() == "vault" || d.Name() == "credentials" || d.Name() == "binds") {
				return filepath.SkipDir
			}
			if d.Type().IsRegular() {
				if b, err := os.ReadFile(path); err == nil {
					to[path] = string(b)
				}
			}
			return nil
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// shifted is a secret as an argument may have it: each byte is the next one.
func shifted(secret string) string {
	b := []byte(secret)
	for i := range b {
		b[i]++
	}
	return string(b)
}
