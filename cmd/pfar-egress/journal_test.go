package main

import (
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/journal/journaltest"
	"github.com/pfar/pfar/units/monitor"
)

func decisionFor(r *request) egress.Decision {
	return egress.Decision{Verdict: egress.Allow, Host: r.host}
}

func TestRefusalIsLoggedAndNotified(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test")
	for _, c := range []struct{ raw, status string }{
		{connectTo("evil.test:443"), "refused evil.test:443 (name-not-declared)"},
		{connectTo("[::1]:80"), "refused [::1]:80 (address-literal)"},
		{connectTo("api.allowed.test:22"), "refused api.allowed.test:22 (port-not-declared)"},
		{connectTo("a\x1b[31m.test:443"), "refused request (bad-request)"},
		{connectTo("a\u202etest.example:443"), `refused a\u202etest.example:443 (bad-name)`},
		{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "refused request (not-a-proxy-request)"},
		{connectTo("api.allowed.test:443"), "failed api.allowed.test:443 (not-resolved)"},
	} {
		w.ask(c.raw)
		_, _, notices := w.seen()
		if last := notices[len(notices)-1]; last != c.status {
			t.Errorf("%q: status %q, want %q", c.raw, last, c.status)
		}
	}
	log := w.logged.String()
	for _, want := range []string{`level=WARN msg=egress server=notion verdict=deny reason=name-not-declared via=proxy method=CONNECT host=evil.test:443`,
		"rule=api.allowed.test", "verdict=allow reason=not-resolved", `error="no such host"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.ContainsAny(log, "\x1b\u202e") {
		t.Errorf("the log holds what the server sent, unescaped: %q", log)
	}
}

func TestAllowedIsLogged(t *testing.T) {
	w := newWorld(t, nil, "api.allowed.test:7000")
	w.serveOrigin(echo)
	w.answers["api.allowed.test."] = addrs(public)
	c := w.tunnelTo("api.allowed.test:7000")
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	buf := make([]byte, 16)
	for {
		if _, err := c.Read(buf); err != nil {
			break
		}
	}
	deadline := time.After(2 * time.Minute)
	for !strings.Contains(w.logged.String(), "sent=5 received=5") {
		select {
		case <-deadline:
			t.Fatalf("the log: %s", w.logged)
		case <-time.After(5 * time.Millisecond):
		}
	}
	if log := w.logged.String(); !strings.Contains(log, "level=INFO msg=egress server=notion verdict=allow reason=declared via=proxy method=CONNECT host=api.allowed.test:7000 rule=api.allowed.test:7000 address=127.0.0.1:") {
		t.Errorf("the log: %s", log)
	}
	if _, _, notices := w.seen(); len(notices) > 0 {
		t.Errorf("notices %q", notices)
	}
}

// TestJournalIsBounded writes more at one moment than the journal takes in a second.
func TestJournalIsBounded(t *testing.T) { synctest.Test(t, journalIsBounded) }

func journalIsBounded(t *testing.T) {
	out := &lockedBuffer{}
	var statuses []string
	j := newJournal(slog.New(slog.NewTextHandler(out, nil)).With("server", "notion"), monitor.NewTable(""), func(s string) { statuses = append(statuses, s) })
	const asked = 100_000
	for i := range asked {
		j.end(&record{began: time.Now(), reason: egress.NameNotDeclared, host: fmt.Sprintf("h%d.evil.test:443", i), ref: badRequest("x")})
	}
	j.end(&record{began: time.Now(), verdict: egress.Allow, reason: egress.Declared, host: "api.allowed.test:443"})
	j.flush()
	log := out.String()
	lines := strings.Count(log, "verdict=deny reason=name-not-declared")
	if lines != burst || len(statuses) != lines+1 {
		t.Errorf("%d lines and %d notices for %d refusals", lines, len(statuses), asked)
	}
	if !strings.Contains(log, "host=api.allowed.test:443") {
		t.Error("refusals crowd out what was allowed")
	}
	if want := fmt.Sprintf(`msg="egress records left out" server=notion verdict=deny count=%d`, asked-lines); !strings.Contains(log, want) {
		t.Errorf("the log does not say %q", want)
	}
	if last := statuses[len(statuses)-1]; last != fmt.Sprintf("refused h%d.evil.test:443 (name-not-declared); before it %d more", asked-1, asked-lines-1) {
		t.Errorf("the last status is %q", last)
	}
}

// TestRefusalIsAnEntry: in a unit a refusal is in the journal, and can be asked for by server, host and verdict.
func TestRefusalIsAnEntry(t *testing.T) {
	j := journaltest.New(t)
	l, addr := listenerFile(t)
	plan := strings.Replace(testPlan, `"name":"notion"`, `"name":"notion","gateway":{"session":"abcdefg2"}`, 1)
	p := startProcessIn(t, l, plan, func(cmd *exec.Cmd, _ io.Writer) { j.Wrap(cmd) })
	p.await(t, "READY=1")
	askAt(t, addr, connectTo("evil.test:443"))
	e := j.Next()
	for name, want := range map[string]string{
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "pfar-egress.test", "PFAR_SERVER": "notion", "PFAR_SESSION": "abcdefg2", "PFAR_HOST": "evil.test:443",
		"PFAR_VERDICT": "deny", "PFAR_REASON": "name-not-declared", "PFAR_VIA": "proxy",
	} {
		if e[name] != want {
			t.Errorf("%s=%q, want %q", name, e[name], want)
		}
	}
	if want := "egress server=notion session=abcdefg2 verdict=deny reason=name-not-declared via=proxy method=CONNECT host=evil.test:443"; !strings.HasPrefix(e["MESSAGE"], want) {
		t.Errorf("MESSAGE=%q, want %q", e["MESSAGE"], want)
	}
}

// TestBlocked: what is blocked is refused although an entry allows it, and never looked up.
func TestBlocked(t *testing.T) {
	w := newWorld(t, func(w *world) { w.proxy.policy.Blocked = []egress.Endpoint{{Host: "ads.allowed.test"}} }, "*.allowed.test")
	for _, raw := range []string{connectTo("ads.allowed.test:443"), connectTo("ADS.allowed.test.:443"), "GET http://ads.allowed.test/x HTTP/1.1\r\nHost: ads.allowed.test\r\n\r\n"} {
		if got := w.ask(raw); !strings.Contains(got, " 403 ") || !strings.Contains(got, "X-Pfar-Reason: blocked") || !strings.Contains(got, "blocked_domains has ads.allowed.test") {
			t.Errorf("%q: %s", raw, got)
		}
	}
	lookups, _, _ := w.seen()
	if len(lookups) > 0 {
		t.Errorf("looked up %q", lookups)
	}
	if got := w.ask(connectTo("www.allowed.test:443")); !strings.Contains(got, "not-resolved") {
		t.Errorf("a name beside it: %s", got)
	}
}
