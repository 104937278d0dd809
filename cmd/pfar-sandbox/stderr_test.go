package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/journal/journaltest"
)

func logged(in string, now func() time.Time) (string, *stderrLog) {
	var out bytes.Buffer
	l := &stderrLog{out: &out, now: now}
	l.copy(strings.NewReader(in))
	return out.String(), l
}

func TestStderrIsEscapedAndCut(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain":            {"a\nb\n", "a\nb\n"},
		"no newline":       {"a", "a\n"},
		"CR LF":            {"a\r\n", "a\n"},
		"terminal escape":  {"\x1b]0;title\x07\x1b[2J\n", `\x1b]0;title\a\x1b[2J` + "\n"},
		"carriage return":  {"good\rbad\n", `good\rbad` + "\n"},
		"C1":               {"\u009b31m\n", `\u009b31m` + "\n"},
		"bidi":             {"a\u202eb\n", `a\u202eb` + "\n"},
		"zero width":       {"a\u200bb\n", `a\u200bb` + "\n"},
		"tab stays":        {"a\tb\n", "a\tb\n"},
		"not UTF-8":        {"\xff\xfea\n", `\xff\xfea` + "\n"},
		"a real U+FFFD":    {"\uFFFD\n", "\uFFFD\n"},
		"NUL":              {"a\x00b\n", `a\x00b` + "\n"},
		"blank line":       {"a\n\nb\n", "a\n \nb\n"},
		"longer than kept": {strings.Repeat("x", 3*maxLine) + "\nnext\n", strings.Repeat("x", maxLine) + " [cut]\nnext\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := logged(c.in, time.Now); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestStderrFlood(t *testing.T) {
	now := time.Unix(1e9, 0)
	got, l := logged(strings.Repeat("x\n", burst)+strings.Repeat("y\n", 5000), func() time.Time { return now })
	if strings.Contains(got, "y") || strings.Count(got, "x\n") != burst || !strings.HasSuffix(got, "pfar-sandbox: 5000 lines suppressed\n") {
		t.Errorf("%d lines got through; the end: %q", strings.Count(got, "\n"), got[max(0, len(got)-80):])
	}
	if l.Last() == "y" {
		t.Error("a suppressed line is the last one")
	}
	// After the interval lines are let through again, and what was lost is said first.
	calls := 0
	got, _ = logged(strings.Repeat("x\n", burst+3)+"after\n", func() time.Time {
		if calls++; calls > burst+3 {
			return now.Add(interval + time.Second)
		}
		return now
	})
	if !strings.HasSuffix(got, "pfar-sandbox: 3 lines suppressed\nafter\n") {
		t.Errorf("the end: %q", got[max(0, len(got)-80):])
	}
}

func TestStderrSaysWhenASegmentIsFull(t *testing.T) {
	var out bytes.Buffer
	full := 0
	l := &stderrLog{out: &out, now: time.Now, full: func() { full++ }}
	for range 3 * 1024 {
		l.heard(time.Now(), strings.Repeat("x", maxLine))
	}
	if full != 3 {
		t.Errorf("%d bytes were %d full segments, want 3", out.Len(), full)
	}
}

// TestStderrInTheJournal: in a unit each line is an entry of the server's, and what the launcher says is one of its own.
func TestStderrInTheJournal(t *testing.T) {
	j := journaltest.New(t)
	r := beginIn(t, script(`printf 'one\033[2J\n<0>pfar-sandbox: not so\nPFAR_SERVER=other\n' >&2; exit 7`), session(t), func(cmd *exec.Cmd, _ *os.File) { j.Wrap(cmd) })
	r.hello()
	if code := r.exit(10 * time.Second); code != 1 {
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

// TestStderrWithoutSecrets: however a value is written, it is not logged, nor a part of it where a long line is cut.
func TestStderrWithoutSecrets(t *testing.T) {
	const value = "ntn_4mYq81RzLc0pXvWbT7uKd2"
	long := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz", 300)
	b, err := redact.New(map[string][]byte{"k": []byte(value), "long": []byte(long)}).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var many strings.Builder
	for at := maxLine - len(value) - 5; at < maxLine+5; at++ {
		many.WriteString(strings.Repeat("x", at) + value + "\n")
	}
	for name, c := range map[string]struct{ in, want string }{
		"alone":                 {value + "\n", "[redacted: k]\n"},
		"within text":           {"panic: " + value + " is wrong\r\n", "panic: [redacted: k] is wrong\n"},
		"hexadecimal":           {fmt.Sprintf("%x\n", value), "[redacted: k]\n"},
		"without a line end":    {"a " + value, "a [redacted: k]\n"},
		"another value's part":  {value[:len(value)-1] + "\n", value[:len(value)-1] + "\n"},
		"longer than a line":    {"a " + long + " b\n", "a [redacted: long] b\n"},
		"somebody else's token": {"Authorization: Bearer abcdef\nGET https://u:p@h.test/\n", "Authorization: [removed]\nGET https://[removed]@h.test/\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			l := &stderrLog{out: &out, now: time.Now}
			l.learn(b)
			l.copy(iotest.OneByteReader(strings.NewReader(c.in)))
			var told, said []string
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "pfar-sandbox: a secret") {
					told = append(told, line)
				} else {
					said = append(said, line)
				}
			}
			if got := strings.Join(said, ""); got != c.want {
				t.Errorf("got  %.200q\nwant %q", got, c.want)
			}
			if want := min(1, strings.Count(c.want, "[redacted")); len(told) != want {
				t.Errorf("it is told of as %q", told)
			}
		})
	}
	t.Run("learnt while a line is awaited", func(t *testing.T) {
		r, w := io.Pipe()
		var out bytes.Buffer
		l := &stderrLog{out: &out, now: time.Now}
		done := make(chan struct{})
		go func() { defer close(done); l.copy(r) }()
		fmt.Fprint(w, "the token ") // is taken, so that what is known is looked at
		l.learn(b)
		fmt.Fprintln(w, value)
		w.Close()
		<-done
		if strings.Contains(out.String(), value) {
			t.Errorf("it is logged: %s", &out)
		}
	})
	t.Run("where a line is cut", func(t *testing.T) {
		var out bytes.Buffer
		l := &stderrLog{out: &out, now: time.Now}
		l.learn(b)
		l.copy(strings.NewReader(many.String() + strings.Repeat(value+"-", 3000) + "\n" + strings.Repeat("x", 3*maxLine) + long[:len(long)-1] + "\n"))
		for i := 0; i+8 <= len(value); i++ {
			if strings.Contains(out.String(), value[i:i+8]) {
				t.Fatalf("%q is left", value[i:i+8])
			}
		}
		if l.Last() == "" || strings.Contains(l.Last(), value) {
			t.Errorf("the last words are %q", l.Last())
		}
	})
}
