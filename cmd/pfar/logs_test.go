package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/journaltest"
)

func TestTailStart(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	tests := []struct {
		text  string
		count int
		want  string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc", 2, "b\nc"}, {"a\nb\n", 5, "a\nb\n"}, {"a\nb\n", -1, "a\nb\n"},
		{"a\n\n", 1, "\n"}, {"", 3, ""}, {"a", 1, "a"}, {"\n", 1, "\n"},
		{"a\n" + long + "\nb\n", 2, long + "\nb\n"}, {long + "\n" + long + "\n", 1, long + "\n"}, {long, 1, long},
	}
	for _, tt := range tests {
		start, err := tailStart(strings.NewReader(tt.text), int64(len(tt.text)), tt.count)
		if err != nil || tt.text[start:] != tt.want {
			t.Errorf("last %d of %.20q: got %.20q, %v; want %.20q", tt.count, tt.text, tt.text[start:], err, tt.want)
		}
	}
}

func TestLogs(t *testing.T) {
	b := newBench(t, "")
	if err := os.MkdirAll(filepath.Dir(b.dirs.Log("notion")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.dirs.Log("notion"), []byte("a\nb\nc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mixed := "2026-08-01T12:00:00.123Z one \x1b[2J\n\nno time\n2026-08-01T12:00:01.000Z  \nnot ended"
	if err := os.WriteFile(b.dirs.Log("mixed"), []byte(mixed), 0o600); err != nil {
		t.Fatal(err)
	}
	const asJSON = `{"time":"2026-08-01T12:00:00.123Z","text":"one \u001b[2J"}
{"text":""}
{"text":"no time"}
{"time":"2026-08-01T12:00:01Z","text":" "}
{"text":"not ended"}
`
	for _, tt := range []struct {
		args []string
		code int
		out  string
	}{
		{[]string{"mixed", "--json"}, 0, asJSON}, {[]string{"mixed", "-o", "json", "-n", "1"}, 0, "{\"text\":\"not ended\"}\n"},
		{[]string{"notion", "-n", "-1"}, 0, "a\nb\nc\n"}, {[]string{"notion", "-n", "-2"}, 2, ""},
		{[]string{"notion", "-n", "1"}, 0, "c\n"}, {[]string{"notion"}, 0, "a\nb\nc\n"}, {[]string{"notion", "-n0"}, 0, ""},
		{[]string{"ghost"}, 4, ""}, {[]string{"../notion"}, 2, ""}, {nil, 5, ""}, {[]string{"notion", "-n", "x"}, 2, ""},
	} {
		b := b.again("")
		code := b.run(t.Context(), append([]string{"logs"}, tt.args...))
		if code != tt.code || b.out.String() != tt.out {
			t.Errorf("%q: exit %d, %q; want %d, %q (%s)", tt.args, code, b.out, tt.code, tt.out, b.err)
		}
		if slices.Contains(tt.args, "-n") && code == 2 && (!strings.Contains(b.err.String(), "want a number of lines, or -1 for all") || strings.Contains(b.err.String(), "strconv")) {
			t.Errorf("%q: %s", tt.args, b.err)
		}
	}
}

// TestJSONLinesAreWhole: followFile writes what is there, not lines.
func TestJSONLinesAreWhole(t *testing.T) {
	var b strings.Builder
	l := &jsonLines{w: &b}
	for _, part := range []string{"a", "b\nc", "\n\xff", "\n", strings.Repeat("x", maxLogLine), "y\n"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	want := "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"\\ufffd\"}\n{\"text\":\"" + strings.Repeat("x", maxLogLine) + "\"}\n{\"text\":\"y\"}\n"
	if b.String() != want {
		t.Errorf("got %.200q", b.String())
	}
	if err := l.Close(); err != nil || b.String() != want {
		t.Errorf("close adds %q, %v", b.String()[len(want):], err)
	}
}

// TestEscapingKeepsCharacters: a block ends anywhere.
func TestEscapingKeepsCharacters(t *testing.T) {
	const text = "日本 👩‍👧 \x1b[2J ü\xff\xc3\xe6\x97a\xf0\x9f\x91"
	for n := 1; n < 6; n++ {
		var b strings.Builder
		w := &escapingWriter{w: &b}
		for rest := []byte(text); len(rest) > 0; rest = rest[min(n, len(rest)):] {
			if _, err := w.Write(rest[:min(n, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || b.String() != escape(text, keepLines) {
			t.Errorf("%d at a time: %q, %v", n, b.String(), err)
		}
	}
}

// TestFollow goes through all that happens to a log: appended to, truncated, replaced, removed and made again.
func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	write := func(flag int, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, text); err != nil {
			t.Fatal(err)
		}
	}
	write(0, "old\n")
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- followFile(ctx, path, 4, w) }()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	}
	write(os.O_APPEND, "one\n")
	expect("one\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(os.O_APPEND, "2\n")
	expect("2\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(os.O_EXCL, "three and more\n")
	expect("three and more\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(os.O_EXCL, "four\n")
	expect("four\n")
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// TestLogsInTheJournal: what pfar logs prints is the same, wherever the log is.
func TestLogsInTheJournal(t *testing.T) {
	const entries = `{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1785585600123456","MESSAGE":"one","PFAR_SERVER":"notion"}
{"__REALTIME_TIMESTAMP":"1785585600200000","MESSAGE":"pfar-sandbox: not so","PFAR_SERVER":"notion","SYSLOG_IDENTIFIER":"pfar-mcp@notion"}
{"__REALTIME_TIMESTAMP":"1785585601000000","MESSAGE":[111,100,100,255,10,116,119,111]}
{"__REALTIME_TIMESTAMP":"1785585601000000","MESSAGE":"another's","PFAR_SERVER":"notion-two"}
{"__REALTIME_TIMESTAMP":"x","MESSAGE":null}
{"MESSAGE":"egress server=notion verdict=deny","PFAR_SERVER":"notion"}
`
	const units = "--unit=pfar-mcp@notion.service --unit=pfar-egress@notion.service --unit=pfar-mcp@notion_*.service --unit=pfar-egress@notion_*.service"
	const common = "--output=json --output-fields=MESSAGE,PFAR_SERVER,SYSLOG_IDENTIFIER --all --no-pager --lines="
	const plain = "2026-08-01T12:00:00.123Z one\n2026-08-01T12:00:00.200Z | pfar-sandbox: not so\n2026-08-01T12:00:01.000Z odd\xff\n2026-08-01T12:00:01.000Z two\n\negress server=notion verdict=deny\n"
	for _, tt := range []struct {
		name   string
		args   []string
		output string
		ctl    int // journalctl's exit code
		code   int
		asked  string
		out    string
		err    string
	}{
		{"plain", []string{"notion"}, entries, 0, 0, common + "100 " + units, plain, ""},
		{"all", []string{"notion", "-n", "-1"}, entries, 0, 0, common + "all " + units, plain, ""},
		{"none", []string{"notion", "-n", "0"}, "", 0, 0, common + "0 " + units, "", ""},
		{"JSON", []string{"notion", "-n", "5", "--json"}, entries[:strings.Index(entries, "\n")+1], 0, 0, common + "5 " + units, "{\"time\":\"2026-08-01T12:00:00.123Z\",\"text\":\"one\"}\n", ""},
		{"gateway", []string{"--gateway"}, entries[:strings.Index(entries, "\n")+1], 0, 0, common + "100 --unit=pfar-gateway.service", "2026-08-01T12:00:00.123Z one\n", ""},
		{"nothing", []string{"notion"}, "", 0, 4, common + "100 " + units, "", "no log of \"notion\" yet\nhint: the journal is for root and the group systemd-journal: journalctl -u pfar-mcp@notion.service\n"},
		{"it fails", []string{"notion"}, "", 3, 1, common + "100 " + units, "", "reading the journal: journalctl: exit status 3\nhint: the journal is for root and the group systemd-journal: journalctl -u pfar-mcp@notion.service\n"},
		{"it babbles", []string{"notion"}, "-- No entries --\n", 0, 1, common + "100 " + units, "", "reading the journal: invalid character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, "")
			b.uid = 0
			b.pfard(t, control.Report{Journal: true, Servers: []control.Server{{Name: "notion"}}}, nil)
			asked := journaltest.Journalctl(t, tt.output, tt.ctl)
			code := b.run(t.Context(), append([]string{"logs"}, tt.args...))
			if code != tt.code || b.out.String() != tt.out || !strings.Contains(b.err.String(), tt.err) {
				t.Errorf("exit %d, want %d\nstdout: %q\nstderr: %s", code, tt.code, b.out, b.err)
			}
			if asked() != tt.asked {
				t.Errorf("asked for %q, want %q", asked(), tt.asked)
			}
		})
	}
	t.Run("of a user", func(t *testing.T) {
		b := newBench(t, "")
		b.uid = 1000
		b.pfard(t, control.Report{Journal: true, Servers: []control.Server{{Name: "notion"}}}, nil)
		asked := journaltest.Journalctl(t, "", 0)
		code := b.run(t.Context(), []string{"logs", "notion"})
		if want := common + "100 PFAR_SERVER=notion _UID=1000 + _SYSTEMD_USER_UNIT=pfar-mcp@notion.service _UID=1000 + USER_UNIT=pfar-mcp@notion.service _UID=1000" +
			" + _SYSTEMD_USER_UNIT=pfar-egress@notion.service _UID=1000 + USER_UNIT=pfar-egress@notion.service _UID=1000"; asked() != want {
			t.Errorf("asked for %q, want %q", asked(), want)
		}
		if code != 4 || !strings.Contains(b.err.String(), "journalctl --user-unit pfar-mcp@notion.service\n") {
			t.Errorf("exit %d, stderr: %s", code, b.err)
		}
	})
	t.Run("follow", func(t *testing.T) {
		b := newBench(t, "")
		b.uid = 0
		b.pfard(t, control.Report{Journal: true, Servers: []control.Server{{Name: "notion"}}}, nil)
		asked := journaltest.Journalctl(t, entries, 99)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, w := io.Pipe()
		b.stdout = w
		done := make(chan int, 1)
		go func() { done <- b.run(ctx, []string{"logs", "notion", "-f"}) }()
		got := make([]byte, len(plain))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != plain {
			t.Errorf("got %q, %v", got, err)
		}
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("exit %d, %s", code, b.err)
		}
		if want := common + "100 --follow " + units; asked() != want {
			t.Errorf("asked for %q, want %q", asked(), want)
		}
	})
	t.Run("no such server", func(t *testing.T) {
		b := newBench(t, "")
		b.pfard(t, control.Report{Journal: true}, nil)
		if code := b.run(t.Context(), []string{"logs", "ghost"}); code != 4 {
			t.Errorf("exit %d, %s", code, b.err)
		}
	})
}
