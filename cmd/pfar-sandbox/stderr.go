package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal"
)

// stderrLog copies a server's stderr to the unit's log: line by line, cut, escaped, and not faster than a reader could
// bear. What comes in is a stranger's text; a terminal must be able to show it (journald has the same limits).
type stderrLog struct {
	out     io.Writer // nil: the journal
	now     func() time.Time
	time    bool // put a time before each line
	server  string
	session string // "": the server's own process; else it stands before each line (units.SessionMark)

	full func() // called each time that units.LogSegment bytes have been written to out

	mu      sync.Mutex
	last    string // of the server's lines, for the status line after a crash
	written int    // bytes since full was called
}

const (
	maxLine  = 4 << 10 // bytes of one line that are kept
	burst    = 1000    // lines
	interval = 30 * time.Second
)

// newStderrLog returns the log of this process's unit.
func newStderrLog() *stderrLog {
	if journal.Connected() {
		return &stderrLog{now: time.Now}
	}
	return &stderrLog{
		out: os.Stderr, now: time.Now, time: true, full: func() { _ = notify([]string{set(units.NotifyLogFull, "1")}) },
	}
}

// copy returns when r ends.
func (l *stderrLog) copy(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLine)
	var start time.Time
	lines, dropped := 0, 0
	for {
		line, err := readLine(in)
		if line == "" && err != nil {
			break
		}
		now := l.now()
		if now.Sub(start) > interval {
			if dropped > 0 {
				l.say(fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
			}
			start, lines, dropped = now, 0, 0
		}
		if lines++; lines > burst {
			dropped++
			continue
		}
		l.heard(now, line)
	}
	if dropped > 0 {
		l.say(fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
	}
}

// readLine returns the next line without its end, escaped and cut to maxLine bytes; the rest of a longer one is
// thrown away without being kept in memory.
func readLine(in *bufio.Reader) (string, error) {
	b, err := in.ReadSlice('\n')
	line := escape(strings.TrimRight(string(b), "\r\n"))
	if errors.Is(err, bufio.ErrBufferFull) {
		line += " [cut]"
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
	}
	if line == "" && err == nil {
		line = " "
	}
	return line, err
}

// escape writes everything that a terminal would act on, or that is not text, as Go would.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\t' || strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// heard logs a line of the server's.
func (l *stderrLog) heard(now time.Time, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.TrimSpace(line) != "" {
		l.last = line
	}
	// By its identifier the journal tells a server's words from those of pfar's that it might imitate.
	l.write(now, line, journal.Entry{Level: slog.LevelInfo, Identifier: "pfar-mcp@" + units.Instance(l.server, l.session)})
}

// say logs a line of this process's own, which begins with who says it.
func (l *stderrLog) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.now(), line, journal.Entry{Level: slog.LevelWarn})
}

func (l *stderrLog) write(now time.Time, line string, e journal.Entry) {
	line = units.SessionMark(l.session) + line
	if l.out == nil {
		e.Message, e.Fields = line, map[string]string{"server": l.server}
		if l.session != "" {
			e.Fields["session"] = l.session
		}
		journal.Send(e)
		return
	}
	if l.time {
		line = now.UTC().Format(units.LogTime) + line
	}
	n, _ := fmt.Fprintln(l.out, line) // a log that cannot be written must not stop the server
	if l.written += n; l.written >= units.LogSegment && l.full != nil {
		l.written = 0
		l.full()
	}
}

// Last returns the last line that was not empty.
func (l *stderrLog) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}
