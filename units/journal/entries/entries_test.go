package entries

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/journal/journaltest"
)

const asked = "--quiet --reverse --output=json --output-fields=MESSAGE,PFAR_SERVER,SYSLOG_IDENTIFIER --all " +
	"--no-pager --lines=all "

func notion() Query { return Query{Units: Of("notion"), Server: "notion", Lines: 3} }

// TestTail: the newest entries of a server come oldest first, without those of another one.
func TestTail(t *testing.T) {
	const output = `{"__REALTIME_TIMESTAMP":"1785585601000000","MESSAGE":"second\nline","PFAR_SERVER":"notion",
  "SYSLOG_IDENTIFIER":"pfar-mcp@notion"}
{"__REALTIME_TIMESTAMP":"1785585600500000","MESSAGE":"another's","PFAR_SERVER":"notion-two"}
{"__REALTIME_TIMESTAMP":"1785585600123456","MESSAGE":[111,100,100,255]}
`
	const want = "2026-08-01T12:00:00.123Z odd\xff\n2026-08-01T12:00:01.000Z | second\n2026-08-01T12:00:01.000Z | line\n"
	q := notion()
	arguments := journaltest.Journalctl(t, output, 0)
	text, more, err := Tail(t.Context(), q, 1000)
	if text != want || more || err != nil {
		t.Errorf("%q, %v, %v", text, more, err)
	}
	const matches = "--unit=pfar-mcp@notion.service --unit=pfar-egress@notion.service --unit=pfar-mcp@notion_*.service " +
		"--unit=pfar-egress@notion_*.service"
	if arguments() != asked+matches {
		t.Errorf("it asks for %q", arguments())
	}
	q.Lines = 1
	text, more, _ = Tail(t.Context(), q, 1000)
	if !more || !strings.HasSuffix(want, text) || strings.Contains(text, "odd") {
		t.Errorf("the newest: %q, %v", text, more)
	}
	q.Lines, q.User = 3, 1000
	if _, _, err := Tail(t.Context(), q, 1000); err != nil ||
		!strings.HasPrefix(arguments(), asked+"PFAR_SERVER=notion _UID=1000 + _SYSTEMD_USER_UNIT=") {
		t.Errorf("of a user it asks for %q, %v", arguments(), err)
	}
}

// TestTailIsBounded: journalctl that does not end is ended once there is enough, or after the time.
func TestTailIsBounded(t *testing.T) {
	line := func(n int) string { return fmt.Sprintf("{\"MESSAGE\":\"%d %s\"}\n", n, strings.Repeat("x", 98)) }
	var output strings.Builder
	for n := range 50 {
		output.WriteString(line(n))
	}
	journaltest.Journalctl(t, output.String(), journaltest.Waits)
	q := notion()
	q.Lines = 400
	text, more, err := Tail(t.Context(), q, 1000)
	if n := strings.Count(text, "\n"); n < 9 || n > 11 || !more || err != nil || !strings.Contains(text, "\n0 x") {
		t.Errorf("%d lines, %v, %v: %.200q", n, more, err, text)
	}
	journaltest.Journalctl(t, line(1)+"{\"MESSAGE\":\""+strings.Repeat("y", asJSON*1000), journaltest.Waits)
	if text, more, err := Tail(t.Context(), q, 1000); strings.Count(text, "\n") != 1 || !more || err != nil {
		t.Errorf("an entry that is too long: %v, %v: %.200q", more, err, text)
	}
	late := fmt.Errorf("it is late")
	journaltest.Journalctl(t, line(1), journaltest.Waits)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
	defer cancel()
	if text, _, err := Tail(ctx, q, 1000); text != "" || err != late {
		t.Errorf("%.200q, %v", text, err)
	}
}

// TestTailFails: what journalctl says is in the error.
func TestTailFails(t *testing.T) {
	journaltest.Journalctl(t, "", 3)
	if text, more, err := Tail(t.Context(), notion(), 1000); text != "" || more || err == nil ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%q, %v, %v", text, more, err)
	}
	journaltest.Journalctl(t, "-- No entries --\n", 0)
	if text, _, err := Tail(t.Context(), notion(), 1000); text != "" || err == nil {
		t.Errorf("%q, %v", text, err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, _, err := Tail(t.Context(), notion(), 1000); err == nil || !strings.Contains(err.Error(), "journalctl") {
		t.Errorf("without journalctl: %v", err)
	}
}
