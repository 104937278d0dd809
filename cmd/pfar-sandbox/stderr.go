package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/redact"
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

	secrets atomic.Pointer[redact.Set] // that are kept out of it; nil: none are known
	told    map[string]time.Time       // when it was last said that one was

	full func() // called each time that units.LogSegment bytes have been written to out

	mu      sync.Mutex
	last    string // of the server's lines, for the status line after a crash
	written int    // bytes since full was called
}

const (
	maxLine  = 4 << 10 // bytes of one line that are kept
	burst    = 1000    // lines
	interval = 30 * time.Second

	maxSearched = 1 << 20 // bytes behind maxLine, of a line that is searched for secrets
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

// learn takes what secrets are recognised by from now on.
func (l *stderrLog) learn(b []byte) {
	set := new(redact.Set)
	if err := set.UnmarshalBinary(b); err != nil {
		l.say("pfar-sandbox: " + err.Error())
		return
	}
	l.secrets.Store(set)
}

// copy returns when r ends.
func (l *stderrLog) copy(r io.Reader) {
	in := lineReader{in: bufio.NewReaderSize(r, maxLine)}
	var start time.Time
	lines, dropped := 0, 0
	for {
		text, whole, err := in.next(l.searched)
		if len(text) == 0 && err != nil {
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
		l.heard(now, l.clean(l.secrets.Load(), text, whole)) // as they are now: that line may have been long in coming
	}
	if dropped > 0 {
		l.say(fmt.Sprintf("pfar-sandbox: %d lines suppressed", dropped))
	}
}

// searched is how many bytes of a line are to be kept, so that no secret that begins in what is logged is cut.
func (l *stderrLog) searched() int { return maxLine + min(l.secrets.Load().Longest(), maxSearched) }

// lineReader reads lines, however they were written.
type lineReader struct {
	in   *bufio.Reader
	line []byte
}

// next returns the next line without its end, which is good until the next call, and whether it is whole: no more of it
// is kept in memory than most bytes and what the reader has.
func (r *lineReader) next(most func() int) (line []byte, whole bool, err error) {
	if cap(r.line) > 16*maxLine { // a long one is rare, and this process stays small
		r.line = nil
	}
	r.line, whole = r.line[:0], true
	for {
		b, err := r.in.ReadSlice('\n')
		if len(r.line) < most() {
			r.line = append(r.line, b...)
		} else {
			whole = whole && len(b) == 0
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimRight(r.line, "\r\n"), whole, err
		}
	}
}

// clean is a line of the server's as it may be logged: without secrets, escaped, and cut to maxLine bytes.
func (l *stderrLog) clean(set *redact.Set, line []byte, whole bool) string {
	line, hits := set.Replace(line)
	l.replaced(hits)
	if !whole { // what begins there may be a part of one
		line = line[:max(0, len(line)-set.Longest())]
	}
	cut := len(line) > 2*maxLine // what Strip removes may reach behind maxLine, but costs time
	text := redact.Strip(string(line[:min(len(line), 2*maxLine)]))
	switch {
	case cut || !whole || len(text) > maxLine:
		return escape(text[:min(len(text), maxLine)]) + " [cut]"
	case text == "":
		return " "
	}
	return escape(text)
}

// replaced logs which secrets were, each at most once a minute.
func (l *stderrLog) replaced(hits []redact.Hit) {
	for _, h := range hits {
		if l.now().Sub(l.told[h.Name]) < time.Minute {
			continue
		}
		if l.told == nil {
			l.told = map[string]time.Time{}
		}
		l.told[h.Name] = l.now()
		l.mu.Lock()
		l.write(l.now(), "pfar-sandbox: a secret in what the server wrote to stderr is replaced: "+h.Name, journal.Entry{
			Level: slog.LevelWarn, Fields: map[string]string{"secret": h.Name, "place": "stderr"},
		})
		l.mu.Unlock()
	}
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
		if e.Message = line; e.Fields == nil {
			e.Fields = map[string]string{}
		}
		e.Fields["server"] = l.server
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
