package journal_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/journal/journaltest"
)

type noisy struct{}

func (noisy) LogValue() slog.Value { return slog.StringValue("resolved\nlate") }

var long = strings.Repeat("0123456789abcdef", 64<<10/16*5) // more than a datagram takes

// records are what the process that TestMain makes of this test logs, and what is to come of each.
var records = []struct {
	log  func(*slog.Logger)
	want map[string]string
}{
	{func(l *slog.Logger) {
		l.Info("egress", "server", "notion", "verdict", "allow", "host", "api.notion.com:443")
	}, map[string]string{
		"MESSAGE": "egress server=notion verdict=allow host=api.notion.com:443", "PRIORITY": "6",
		"PFAR_SERVER": "notion", "PFAR_VERDICT": "allow", "PFAR_HOST": "api.notion.com:443",
	}},
	{func(l *slog.Logger) { l.Warn("no attributes") }, map[string]string{"MESSAGE": "no attributes", "PRIORITY": "4"}},
	{func(l *slog.Logger) { l.Error("x", "error", errors.New("it \"broke\"\nMESSAGE=forged")) }, map[string]string{
		"MESSAGE": `x error="it \"broke\"\nMESSAGE=forged"`, "PRIORITY": "3", "PFAR_ERROR": "it \"broke\"\nMESSAGE=forged",
	}},
	{func(l *slog.Logger) { l.Info("two\nPRIORITY=0\x1b[2J \xff") }, map[string]string{"MESSAGE": `two\nPRIORITY=0\x1b[2J \xff`, "PRIORITY": "6"}},
	{func(l *slog.Logger) { l.Info("stay é \"quoted\" 漢", "n", 3, "took", time.Second) }, map[string]string{
		"MESSAGE": `stay é "quoted" 漢 n=3 took=1s`, "PRIORITY": "6", "PFAR_N": "3", "PFAR_TOOK": "1s",
	}},
	{func(l *slog.Logger) { l.Debug("nobody asked for it") }, nil},
	{func(l *slog.Logger) { l.Log(context.Background(), journal.LevelCritical, "see to it", "at", noisy{}) }, map[string]string{
		"MESSAGE": `see to it at="resolved\nlate"`, "PRIORITY": "2", "PFAR_AT": "resolved\nlate",
	}},
	{func(l *slog.Logger) { l.Info("odd", "a-b.c é", 1, strings.Repeat("k", 80), 2, "", 3) }, map[string]string{
		"MESSAGE": `odd "a-b.c é"=1 ` + strings.Repeat("k", 80) + `=2 ""=3`, "PRIORITY": "6", "PFAR_A_B_C__": "1", "PFAR_" + strings.Repeat("K", 59): "2",
	}},
	{func(l *slog.Logger) { l.With("session", "abcdefg2").With("server", "a").Info("x", "server", "b") }, map[string]string{
		"MESSAGE": "x session=abcdefg2 server=a server=b", "PRIORITY": "6", "PFAR_SESSION": "abcdefg2", "PFAR_SERVER": "b",
	}},
	{func(l *slog.Logger) {
		g := l.With("server", "a").WithGroup("call").With("tool", "t")
		g.Info("x", "id", 7, slog.Group("peer", "uid", 1), slog.Group("", "inline", true), "time", "noon", "msg", "m", "level", "l")
	}, map[string]string{
		"MESSAGE": "x server=a call.tool=t call.id=7 call.peer.uid=1 call.inline=true call.time=noon call.msg=m call.level=l", "PRIORITY": "6", "PFAR_SERVER": "a", "PFAR_CALL_TOOL": "t",
		"PFAR_CALL_ID": "7", "PFAR_CALL_PEER_UID": "1", "PFAR_CALL_INLINE": "true", "PFAR_CALL_TIME": "noon", "PFAR_CALL_MSG": "m", "PFAR_CALL_LEVEL": "l",
	}},
	{func(l *slog.Logger) { l.Info("long", "tool", long) }, map[string]string{"MESSAGE": "long tool=" + long, "PRIORITY": "6", "PFAR_TOOL": long}},
}

func TestMain(m *testing.M) {
	if os.Getenv("JOURNAL_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	log := slog.New(journal.New(os.Stderr))
	for _, r := range records {
		r.log(log)
	}
}

func child() *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "JOURNAL_TEST_CHILD=1")
	return cmd
}

func TestRecordsAreEntries(t *testing.T) {
	j := journaltest.New(t)
	cmd := child()
	j.Wrap(cmd)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.want == nil {
			continue
		}
		got := j.Next()
		if id := got["SYSLOG_IDENTIFIER"]; id != filepath.Base(os.Args[0]) {
			t.Errorf("identifier %q", id)
		}
		delete(got, "SYSLOG_IDENTIFIER")
		if len(got) != len(r.want) {
			t.Errorf("%d fields, want %d: %.500q", len(got), len(r.want), got)
		}
		for name, want := range r.want {
			if got[name] != want {
				t.Errorf("%s=%.500q, want %.500q", name, got[name], want)
			}
		}
	}
	if rest := j.Rest(); len(rest) > 0 {
		t.Errorf("entries that nobody logged: %.500q", rest)
	}
}

// TestStderrElsewhere: who inherits the variable and not the stream writes text to where its stderr is.
func TestStderrElsewhere(t *testing.T) {
	j := journaltest.New(t)
	cmd := child()
	var out bytes.Buffer
	cmd.Stderr = &out
	j.Wrap(cmd)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if rest := j.Rest(); len(rest) > 0 {
		t.Errorf("%d entries", len(rest))
	}
	if !regexp.MustCompile(`^time=\S+ level=INFO msg=egress server=notion `).MatchString(out.String()) {
		t.Errorf("the text begins %.200q", out.String())
	}
	if journal.Connected() {
		t.Error("this test's own stderr is taken for the journal's")
	}
	t.Setenv("JOURNAL_STREAM", "nonsense")
	if journal.Connected() {
		t.Error("a malformed JOURNAL_STREAM is taken for the journal's")
	}
}

// TestWithoutJournald: where nothing takes entries, they are not lost.
func TestWithoutJournald(t *testing.T) {
	j := journaltest.New(t)
	cmd := child()
	stderr := j.Wrap(cmd)
	j.Close()
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if s := stderr(); !strings.Contains(s, "egress server=notion verdict=allow host=api.notion.com:443") {
		t.Errorf("on stderr: %.2000s", s)
	}
}
