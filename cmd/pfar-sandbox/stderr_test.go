package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/journal/journaltest"
)

func TestStderrSaysWhenASegmentIsFull(t *testing.T) {
	var out bytes.Buffer
	full := 0
	l := &stderrLog{out: &out, now: time.Now, full: func() { full++ }}
	for range 3 * 1024 {
		l.heard(time.Now(), strings.Repeat("x", attach.MaxLine))
	}
	if full != 3 {
		t.Errorf("%d bytes were %d full segments, want 3", out.Len(), full)
	}
}

// TestStderrInTheJournal: in a unit each line is an entry of the server's, and what the launcher says is one of its
// own.
func TestStderrInTheJournal(t *testing.T) {
	j := journaltest.New(t)
	r := beginIn(t, script(`printf 'one\033[2J\n<0>pfar-sandbox: not so\nPFAR_SERVER=other\n' >&2; exit 7`), session(t), func(cmd *exec.Cmd, _ *os.File) { j.Wrap(cmd) })
	r.hello()
	if code := r.exit(2 * time.Minute); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, c := range []struct{ identifier, priority, message string }{
		{"pfar-mcp@x_abcdefg2", "6", `[abcdefg2] one\x1b[2J`},
		{"pfar-mcp@x_abcdefg2", "6", "[abcdefg2] <0>pfar-sandbox: not so"},
		{"pfar-mcp@x_abcdefg2", "6", "[abcdefg2] PFAR_SERVER=other"},
		{"pfar-sandbox", "4", "[abcdefg2] pfar-sandbox: the session is over: exit status 7: PFAR_SERVER=other"},
	} {
		e := j.Next()
		if e["SYSLOG_IDENTIFIER"] != c.identifier || e["PRIORITY"] != c.priority || e["MESSAGE"] != c.message || e["PFAR_SERVER"] != "x" || e["PFAR_SESSION"] != "abcdefg2" {
			t.Errorf("got %q, want %+v", e, c)
		}
	}
}
