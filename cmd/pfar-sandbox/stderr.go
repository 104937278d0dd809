package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/units"
)

// stderrLog copies a server's stderr to the unit's log: line by line, cut, escaped, and not faster than a reader could
// bear. What comes in is a stranger's text; a terminal must be able to show it (journald has the same limits).
type stderrLog struct {
	out  io.Writer
	now  func() time.Time
	time bool   // put a time before each line; the journal has its own
	mark string // put before each line, after the time (units.SessionMark)

	full func() // called each time that units.LogSegment bytes have been written

	mu      sync.Mutex
	last    string // for the status line after a crash
	written int    // bytes since full was called
}

const (
	maxLine  = 4 << 10 // bytes of one line that are kept
	burst    = 1000    // lines
	interval = 30 * time.Second
)

func newStderrLog(out io.Writer) *stderrLog {
	return &stderrLog{
		out: out, now: time.Now, time: os.Getenv("JOURNAL_STREAM") == "",
		full: func() { _ = notify([]string{set(units.NotifyLogFull, "1")}) },
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
				l.write(now, fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
			}
			start, lines, dropped = now, 0, 0
		}
		if lines++; lines > burst {
			dropped++
			continue
		}
		l.write(now, line)
	}
	if dropped > 0 {
		l.write(l.now(), fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
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

func (l *stderrLog) write(now time.Time, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.TrimSpace(line) != "" {
		l.last = line
	}
	line = l.mark + line
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
