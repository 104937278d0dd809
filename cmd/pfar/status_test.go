package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

func sampleReport(now time.Time) control.Report {
	return control.Report{
		Version: "1", Directory: "/etc/pfar/mcp.d", Endpoint: "http://127.0.0.1:7417/mcp", TokenFile: "/t", Socket: "/s",
		Servers: []control.Server{
			{Name: "fs", State: control.Failed, File: "/d/fs.hcl", Detail: "crashed \x1b[2Jthree times", Since: now.Add(-3 * time.Hour), Crashes: 3},
			{Name: "notion", State: control.Running, Tools: 24, PID: 7, UID: 61200, Since: now.Add(-90 * time.Second), Denial: control.Denial{LastRefusal: "evil.example:443"}, Stale: true, Log: "/l"},
		},
		Diagnostics: []control.Diagnostic{{File: "a.hcl", Line: 3, Column: 1, Severity: "error", Summary: "Unknown key", Detail: "Did you mean x?"}},
		Notes:       []string{"memory limits do not hold"},
	}
}

func TestStatus(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	first := newBench(t, "")
	first.pfard(t, sampleReport(now), nil)
	b := first.again("")
	b.now = func() time.Time { return now }
	if code := b.run(t.Context(), []string{"status"}); code != 0 {
		t.Fatal(code, b.err)
	}
	want := `NAME    STATE    TOOLS  UID    SINCE  DETAIL
fs      failed   0             3h     crashed \x1b[2Jthree times
notion  running  24     61200  1m     evil.example:443; its file is broken: the last good version is in force

a.hcl:3:1: error: Unknown key; Did you mean x?
note:  memory limits do not hold
`
	if b.out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.out, want)
	}
	b = first.again("")
	var report control.Report
	if code := b.run(t.Context(), []string{"status", "-o", "json"}); code != 0 || json.Unmarshal(b.out.Bytes(), &report) != nil || len(report.Servers) != 2 {
		t.Errorf("exit %d, %s", code, b.out)
	}
	b = first.again("")
	if code := b.run(t.Context(), []string{"status", "notion"}); code != 0 || !strings.Contains(b.out.String(), "last refusal  evil.example:443") {
		t.Errorf("exit %d, %s", code, b.out)
	}
	b = first.again("")
	if code := b.run(t.Context(), []string{"status", "notoin"}); code != 4 {
		t.Errorf("exit %d, %s", code, b.err)
	}
}

// TestStatusElsewhere: pfar status says where a server is that pfar does not start, and how pfar speaks with it.
func TestStatusElsewhere(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	first := newBench(t, "")
	r := sampleReport(now)
	r.Servers[0].Attached = "/run/fs/mcp.sock"
	r.Servers[1].Reach = control.Reach{
		URL: "https://mcp.notion.example:8443/mcp", Speech: units.Speech{Protocol: "2025-11-25", Transport: "sse\x1b[2J"},
	}
	first.pfard(t, r, nil)
	run := func(args ...string) string {
		t.Helper()
		b := first.again("")
		b.now = func() time.Time { return now }
		if code := b.run(t.Context(), append([]string{"status"}, args...)); code != 0 {
			t.Error(code, b.err)
		}
		return b.out.String()
	}
	const table = `NAME    STATE    TOOLS  UID    SINCE  DETAIL
fs      failed   0             3h     at /run/fs/mcp.sock: crashed \x1b[2Jthree times
notion  running  24     61200  1m     at mcp.notion.example:8443: evil.example:443; its file is`
	if got := run(); !strings.HasPrefix(got, table) {
		t.Errorf("got:\n%s\nwant:\n%s", got, table)
	}
	const one = `
url           https://mcp.notion.example:8443/mcp
transport     sse\x1b[2J
protocol      2025-11-25
`
	if got := run("notion"); !strings.Contains(got, one) {
		t.Errorf("got:\n%s\nwant:\n%s", got, one)
	}
	var report control.Report
	if err := json.Unmarshal([]byte(run("-o", "json")), &report); err != nil || len(report.Servers) != 2 ||
		report.Servers[1].Reach.Speech != r.Servers[1].Reach.Speech {
		t.Errorf("%v, %+v", err, report.Servers)
	}
}

// TestStatusOfSetUps: one line for each that is under way, with what its owner types, and no page's link.
func TestStatusOfSetUps(t *testing.T) {
	now := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	b := newBench(t, "")
	own := fmt.Sprintf("uid %d", b.uid)
	const link = "http://127.0.0.1:19275/hunter2"
	asks := func(server, principal string, change func(*control.Flow)) control.Flow {
		f := control.Flow{
			ID: server, Server: server, Principal: principal, State: control.AwaitingCredential, Page: link,
			Wants: &control.Wanted{Variable: "TOKEN\x1b[2J"}, Deadline: now.Add(9*time.Minute + time.Second),
		}
		change(&f)
		return f
	}
	r := sampleReport(now)
	r.SetUps = []control.Flow{
		asks("acme", own, func(*control.Flow) {}),
		asks("desk", "client cursor", func(f *control.Flow) { f.Paged, f.Wants = true, nil }),
		asks("linear", "chat home", func(*control.Flow) {}),
		asks("github", own, func(f *control.Flow) {
			f.State, f.Wants, f.Deadline, f.Detail = control.FlowSpawning, nil, time.Time{}, "installing npm:x@1.0.0"
		}),
		asks("notion", "uid 4711", func(f *control.Flow) {
			f.State, f.Paged, f.Deadline = control.CredentialRefused, true, now.Add(-time.Second)
		}),
	}
	b.pfard(t, r, nil)
	run := func(code int, args ...string) (out, errs string) {
		t.Helper()
		n := b.again("")
		n.now = func() time.Time { return now }
		if got := n.run(t.Context(), append([]string{"status"}, args...)); got != code {
			t.Errorf("%q ends with %d: %s", args, got, n.err)
		}
		if strings.Contains(n.out.String()+n.err.String(), "hunter2") {
			t.Errorf("%q shows the link: %s%s", args, n.out, n.err)
		}
		return n.out.String(), n.err.String()
	}
	out, _ := run(exitOK)
	const want = "\n" + `set-up:  acme waits for TOKEN\x1b[2J, 9m left; go on: pfar add acme; cancel: pfar add --cancel
set-up:  desk (asked for by client cursor) waits for a person's consent on its page, 9m left; ` +
		`take it over: pfar add desk
set-up:  linear (begun in the chat home) waits for TOKEN\x1b[2J, 9m left; take it over: pfar add linear
set-up:  github is under way: installing npm:x@1.0.0; go on: pfar add github; cancel: pfar add --cancel
set-up:  notion (begun by uid 4711) waits for TOKEN\x1b[2J on its page (the service refused the last one), 1s left; ` +
		`only that user can go on or cancel
`
	if !strings.Contains(out, want) {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}
	if out, _ := run(exitOK, "notion"); !strings.Contains(out, "set-up") ||
		!strings.Contains(out, "the service refused the last one") {
		t.Errorf("of one: %s", out)
	}
	if _, errs := run(exitNoSuch, "acme"); !strings.Contains(errs, `no server "acme" is declared yet`) ||
		!strings.Contains(errs, "go on: pfar add acme") {
		t.Errorf("of one that is not declared: %s", errs)
	}
}

func TestLifecycle(t *testing.T) {
	state := func(p *fakePfard, s control.State, detail string) {
		p.set(func(r *control.Report) {
			r.Servers[1].State, r.Servers[1].Detail, r.Servers[1].Since = s, detail, r.Servers[1].Since.Add(time.Second)
			r.Servers[1].LastRefusal, r.Servers[1].Stale = "", false
		})
	}
	// Each verb is answered at once and carried out afterwards, as pfard does it.
	steps := func(states ...control.State) func(*fakePfard, control.Request) error {
		return func(p *fakePfard, r control.Request) error {
			if r.Server == "fs" && r.Verb == control.Start {
				return fmt.Errorf("%w: no", control.ErrDenied)
			}
			if r.Server == "fs" {
				return fmt.Errorf("%w: %q has enabled = false", control.ErrDisabled, r.Server)
			}
			go func() {
				for _, s := range states {
					state(p, s, "")
				}
			}()
			return nil
		}
	}
	tests := []struct {
		name   string
		args   []string
		answer func(*fakePfard, control.Request) error
		code   int
		out    string
		err    string
	}{
		{"restart", []string{"restart", "notion"}, steps(control.Stopping, control.Starting, control.Running), 0, "notion: running, 24 tools\n", ""},
		{"stop", []string{"stop", "notion"}, steps(control.Stopping, control.Stopped), 0, "notion: stopped\n", ""},
		{"start what runs", []string{"start", "notion"}, steps(), 0, "notion: running, 24 tools: evil.example:443; its file is broken: the last good version is in force\n", ""},
		{"crash", []string{"restart", "notion"}, steps(control.Starting, control.BackOff), 1, "notion: back-off\n", "hint: pfar logs notion"},
		{"waiting", []string{"restart", "notion"}, steps(control.Waiting), 1, "notion: waiting\n", "notion is waiting, not running"},
		{"denied", []string{"start", "fs"}, steps(), 6, "", "permission denied: no"},
		{"disabled", []string{"restart", "fs"}, steps(), 1, "", "pfar: disabled by its declaration: \"fs\" has enabled = false\nhint: set enabled = true in /d/fs.hcl\n"},
		{"disabled by the operator", []string{"start", "notion"}, func(*fakePfard, control.Request) error { return fmt.Errorf("%w: %q", control.ErrOff, "notion") }, 1, "", "pfar: disabled by you: \"notion\"\nhint: pfar enable notion\n"},
		{"disable", []string{"disable", "notion"}, steps(control.Stopping, control.Stopped), 0, "notion: stopped\n", ""},
		{"enable", []string{"enable", "notion"}, steps(control.Starting, control.Running), 0, "notion: running, 24 tools", ""},
		{"enable what crashes", []string{"enable", "notion"}, steps(control.Starting, control.BackOff), 1, "notion: back-off\n", "hint: pfar logs notion"},
		{"enable what its file disables", []string{"enable", "fs"}, steps(), 1, "", "hint: set enabled = true in /d/fs.hcl\n"},
		{"disable nothing", []string{"disable"}, steps(), 2, "", "missing NAME"},
		{"no such", []string{"stop", "ghost"}, steps(), 4, "", `no such server: "ghost"`},
		{"machine", []string{"restart", "notion", "--json"}, steps(control.Running), 0, `"state": "running"`, ""},
		{"removed meanwhile", []string{"restart", "notion"}, func(p *fakePfard, _ control.Request) error {
			go p.set(func(r *control.Report) { r.Servers = r.Servers[:1] })
			return nil
		}, 4, "", `no such server: "notion"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "")
			report := sampleReport(time.Now())
			if tt.args[0] == "enable" { // else it runs already, and there is nothing to wait for
				report.Servers[1].State = control.Stopped
			}
			b.pfard(t, report, tt.answer)
			code := b.run(t.Context(), tt.args)
			if code != tt.code || !strings.Contains(b.out.String(), tt.out) || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, b.out, b.err)
			}
		})
	}
}

func TestVault(t *testing.T) {
	accept := func(_ *fakePfard, r control.Request) error {
		if r.Key == "ghost" {
			return fmt.Errorf("%w: %q", control.ErrNoKey, r.Key)
		}
		return nil
	}
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("hunter2hunter2\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		secret      string
		out, err    string
	}{
		{"from standard input", "hunter2\n", []string{"set", "k"}, 0, "hunter2", "", ""},
		{"only one line break is cut", " a\r\nb \n\n", []string{"set", "k"}, 0, " a\r\nb \n", "", ""},
		{"empty", "\n", []string{"set", "k"}, 1, "", "", "the secret is empty"},
		{"NUL", "a\x00b", []string{"set", "k"}, 1, "", "", "NUL"},
		{"no text", "hunter\xff2", []string{"set", "k"}, 1, "", "", "UTF-8"},
		{"too long", strings.Repeat("x", maxSecret+1), []string{"set", "k"}, 1, "", "", "exceeds"},
		{"never an argument", "", []string{"set", "k", "hunter2"}, 2, "", "", "a secret is never an argument"},
		{"a value in the key's place", "x", []string{"set", "k=hunter2"}, 2, "", "", "a secret is never an argument"},
		{"a value as the key", "x", []string{"rotate", "Hunter2.hunter2"}, 2, "", "", "invalid key: use 1-64"},
		{"a value as the key of what is removed", "", []string{"remove", "/hunter2"}, 2, "", "", "invalid key: use 1-64"},
		{"no key", "x", []string{"set"}, 2, "", "", "missing KEY"},
		{"rotate", "hunter2hunter2\n", []string{"rotate", "k"}, 0, "hunter2hunter2", "notion: restarts", ""},
		{"rotate what is not there", "hunter2\n", []string{"rotate", "ghost"}, 4, "hunter2", "", "no such key"},
		{"short", "hunter2\n", []string{"set", "k"}, 0, "hunter2", "", "pfar: warning: \"k\" is not found when a server gives it away: it has fewer than 8 bytes\n"},
		{"a word", "production\n", []string{"set", "k"}, 0, "production", "", "gives it away: it is a word of fewer than 16 letters\n"},
		{"rotate to a path", "/etc/ssl/private\n", []string{"rotate", "k"}, 0, "/etc/ssl/private", "notion: restarts", "gives it away: it is the path of a file\n"},
		{"from a file", "", []string{"set", "k", "--file", file}, 0, "hunter2hunter2", "", ""},
		{"from a file that is not there", "", []string{"set", "k", "--file", file + ".none"}, 1, "", "", "no such file"},
		{"list", "", []string{"list"}, 0, "", "notion_token  plain                   notion\nother         plain\n", ""},
		{"a token set", `{"x": 1234}`, []string{"set", "k", "--oauth"}, 0, `{"x": 1234}`, "", ""},
		{"list as JSON", "", []string{"list", "--json"}, 0, "", `"key": "notion_token"`, ""},
		{"has", "", []string{"has", "other"}, 0, "", "", ""},
		{"has for a machine", "", []string{"has", "other", "--json"}, 0, "", `"key": "other"`, ""},
		{"has not", "", []string{"has", "othe"}, 4, "", "", `no such key in the vault: "othe"`},
		{"rekey", "", []string{"rekey"}, 0, "", "", ""},
		{"remove", "", []string{"remove", "k"}, 0, "", "", ""},
		{"set for a machine", "hunter2\n", []string{"set", "k", "--json"}, 0, "hunter2", "{\n  \"key\": \"k\",\n  \"result\": \"new\",\n  \"unsearched\": \"it has fewer than 8 bytes\"\n}\n", "fewer than 8 bytes"},
		{"remove for a machine", "", []string{"remove", "k", "-o", "json"}, 0, "", "{\n  \"key\": \"k\",\n  \"result\": \"removed\"\n}\n", ""},
		{"remove for a machine what is not there", "", []string{"remove", "ghost", "--json"}, 4, "", "", "no such key"},
		{"remove what is not there", "", []string{"remove", "ghost"}, 4, "", "", `no such key in the vault: "ghost"`},
		{"no verb", "", nil, 2, "", "", "which of set, rotate"},
		{"unknown verb", "", []string{"steal"}, 2, "", "", `unknown verb "steal" of "pfar vault"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.stdin)
			p := b.pfard(t, control.Report{}, accept)
			code := b.run(t.Context(), append([]string{"vault"}, tt.args...))
			if code != tt.code || !strings.Contains(b.out.String(), tt.out) || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, b.out, b.err)
			}
			var stored string
			for _, r := range p.requests {
				stored += r.Secret
			}
			if stored != tt.secret {
				t.Errorf("stored %q, want %q", stored, tt.secret)
			}
			if strings.HasPrefix(tt.secret, "hunter2hunter2") && b.err.Len() > 0 && tt.err == "" {
				t.Errorf("a warning of what is found: %s", b.err)
			}
			if strings.Contains(b.out.String()+b.err.String(), "hunter2") {
				t.Error("the secret is printed")
			}
		})
	}
}

func TestChanges(t *testing.T) {
	now := time.Now()
	before := sampleReport(now)
	after := sampleReport(now)
	if got := changes(before, after); got != nil {
		t.Errorf("between equals: %q", got)
	}
	after.Servers = []control.Server{after.Servers[1], {Name: "new", State: control.Starting}}
	after.Servers[0].Tools, after.Servers[0].Stale, after.Servers[0].LastRefusal = 1, false, ""
	after.Diagnostics, after.Notes = nil, []string{"other"}
	want := "notion: running, 1 tool|new: starting|fs: removed|every declaration is sound again|note: other"
	if got := strings.Join(changes(before, after), "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = "fs: failed: crashed \\x1b[2Jthree times|notion: running, 24 tools: evil.example:443; its file is broken: the last good version is in force|a.hcl:3:1: error: Unknown key; Did you mean x?|note: memory limits do not hold"
	if got := strings.Join(changes(control.Report{}, before), "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInterruptedWhileReading: Ctrl-C ends a command that waits for standard input.
func TestInterruptedWhileReading(t *testing.T) {
	b := newBench(t, "")
	r, w := io.Pipe()
	defer w.Close()
	b.stdin = r
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int)
	go func() { done <- b.run(ctx, []string{"vault", "set", "k"}) }()
	w.Write([]byte("half a sec"))
	cancel()
	if code := <-done; code != exitInterrupted {
		t.Errorf("exit %d, %s", code, b.err)
	}
}

// TestMinor: what a server has said into a warning does not hide it.
func TestMinor(t *testing.T) {
	for line, want := range map[string]bool{
		"time=2026-08-01T12:00:00Z level=INFO msg=ready":                                true,
		"time=2026-08-01T12:00:00Z level=DEBUG msg=ready":                               true,
		"time=2026-08-01T12:00:00Z level=WARN msg=odd detail=\"says level=INFO msg=x\"": false,
		"time=2026-08-01T12:00:00Z level=ERROR msg=\"a level=DEBUG b\"":                 false,
		"panic: level=INFO ": false,
		"":                   false,
	} {
		if minor(line) != want {
			t.Errorf("%q", line)
		}
	}
}
