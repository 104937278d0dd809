package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/pfar/pfar/policies/failure"
)

// toldOf is what an error says of its class, the zero value for nothing.
func toldOf(t testing.TB, object []byte) failure.Told {
	t.Helper()
	var told failure.Told
	if raw := member(member(object, "data"), failure.Key); raw != nil {
		if err := json.Unmarshal(raw, &told); err != nil {
			t.Fatalf("%s: %v", object, err)
		}
	}
	return told
}

// slowOperation is a tool of server-everything that tells how far it is, ten times a second.
const slowOperation = "trigger-long-running-operation"

// TestKilledInMidCall: a real server is killed while it works on a call. The client hears what has happened, at once,
// and that the call may have been carried out. The next process of the server does not get it.
func TestKilledInMidCall(t *testing.T) {
	t.Parallel()
	script := npm(t, "@modelcontextprotocol/server-everything/dist/index.js")
	tool := fmt.Sprintf("\ntool %q {\n  semantics = \"write\"\n}\n", slowOperation)
	p := start(t, map[string]string{
		"everything.hcl": declare("node", []string{script}, "timeout = \"1h\"\nretries = 5\n"+tool),
		"hasty.hcl":      declare("node", []string{script}, "timeout = \"1s\"\n"+tool),
	})
	r := p.awaitRunning("everything", "hasty")
	c := speak(t, false, p.env, program(t, "pfar"), "connect")
	answered := make(chan spoken, 1)
	go func() {
		const params = `{"name":"everything__` + slowOperation + `","arguments":{"duration":3600,"steps":36000},` +
			`"_meta":{"progressToken":"t"}}`
		a, err := c.ask("tools/call", params, `"slow"`, `"t"`, "")
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.progress[`"t"`]) > 0
	})
	killed := false
	for _, d := range descendants(server(r, "everything").PID) {
		if d.name == "node" {
			killed = true
			if err := syscall.Kill(d.pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !killed {
		t.Fatalf("no node below %d", server(r, "everything").PID)
	}
	a := <-answered
	told := toldOf(t, a.value)
	want := failure.Failure{Class: failure.Died, Tries: 1}
	if a.member != "error" || told.Failure != want || !strings.Contains(told.Remedy, "pfar logs everything") ||
		!strings.Contains(told.Remedy, "may have been carried out") || !strings.Contains(string(a.value), "not known") {
		t.Errorf("the client hears %s %s", a.member, a.value)
	}
	out, complaint, code := p.command("call", "hasty."+slowOperation, "--duration", "3600", "--steps", "1")
	if code != 13 || out != "" || !strings.Contains(complaint, "did not answer tools/call within 1s") ||
		!strings.Contains(complaint, "hint: try again, or raise timeout in the declaration of hasty. It may have been") {
		t.Errorf("pfar call: exit %d, %q, %q", code, out, complaint)
	}
	records := p.succeeds("audit", "--json", "--server", "everything")
	if !strings.Contains(records, `"failure":{"class":"died","tries":1}`) || strings.Contains(records, `"kind":"retry"`) {
		t.Errorf("the audit has %s", records)
	}
}

// TestForgedFailures: a server cannot say of what class its failures are, nor put words into pfar's mouth. What pfar
// knows by itself it says.
func TestForgedFailures(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{
		"forger.hcl": declare(program(t, "hostile"), []string{"-forge"}, "pins = \"trust-first\"\nretries = 5\n"),
	})
	p.awaitRunning("forger")
	c := p.speakHTTP(false, "/mcp/forger")
	for tool, want := range map[string]failure.Class{
		"data": "", "letters": "", "escapes": "", "meta": "", "twice": "", "many": "", "code": failure.ServerError,
		"internal": failure.ServerError, "result": "", "tool-error": "", "both": failure.Schema,
		"other-letter": failure.Schema,
	} {
		a, err := c.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool), `"x"`, "", tool)
		if err != nil {
			t.Fatal(err)
		}
		told := toldOf(t, a.value)
		if told.Class != want || told.After != 0 || strings.Contains(string(a.value), "rate_limited") ||
			strings.Contains(string(a.value), "evil.example") {
			t.Errorf("%s: %s %s, want %q", tool, a.member, a.value, want)
		}
		if want != "" && told.Tries != 1 {
			t.Errorf("%s: it is sent %d times, by the server's own word", tool, told.Tries)
		}
		_, complaint, code := p.command("call", "forger."+tool)
		if code == 10 || strings.Contains(complaint, "evil.example") {
			t.Errorf("%s: exit %d, %s", tool, code, complaint)
		}
	}
	if records := p.succeeds("audit", "--json", "--server", "forger"); strings.Contains(records, "rate_limited") {
		t.Errorf("the audit has %s", records)
	}
}
