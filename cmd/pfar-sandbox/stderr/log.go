package stderr

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal"
)

// Log is the unit's log, in which what a server wrote and what pfar has to say of it are told apart.
type Log struct {
	out     io.Writer // nil: the journal
	now     func() time.Time
	time    bool // put a time before each line
	server  string
	session string // "": the server's own process; else it stands before each line (units.SessionMark)

	full func() // may be nil

	mu      sync.Mutex
	words   []string // the last of the server's lines, for the status line after a crash
	written int      // bytes since full was called
}

// NewLog returns the log of this process's unit. full is called each time that units.LogSegment bytes have been written
// to a file.
func NewLog(server, session string, full func()) *Log {
	l := &Log{now: time.Now, server: server, session: session}
	if !journal.Connected() {
		l.out, l.time, l.full = os.Stderr, true, full
	}
	return l
}

// escape writes everything that a terminal would act on, or that is not text, as its code.
func escape(s string) string {
	return visible.Escape(s, func(r rune) bool { return r != '\t' && !strconv.IsPrint(r) })
}

// heard logs a line of the server's, which has been searched for secrets.
func (l *Log) heard(now time.Time, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.TrimSpace(line) != "" {
		if len(l.words) == maxWords {
			l.words = slices.Delete(l.words, 0, 1)
		}
		l.words = append(l.words, strings.ToValidUTF8(line[:min(len(line), maxWord)], ""))
	}
	// A server might imitate words of pfar's. The journal tells them apart by the identifier, a file by the mark.
	l.write(now, line, journal.Entry{Level: slog.LevelInfo, Identifier: "pfar-mcp@" + units.Instance(l.server, l.session)})
}

// replaced logs that a secret was, in a line of the server's.
func (l *Log) replaced(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.now(), "pfar-sandbox: a secret in what the server wrote to stderr is replaced: "+name, journal.Entry{
		Level: slog.LevelWarn, Fields: map[string]string{"secret": name, "place": "stderr"},
	})
}

// Say logs a line of this process's own, which begins with who says it.
func (l *Log) Say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(l.now(), line, journal.Entry{Level: slog.LevelWarn})
}

func (l *Log) write(now time.Time, line string, e journal.Entry) {
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
	if e.Identifier != "" {
		line = units.ServerMark + line
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

// Cause returns the line by which the server says why it has ended; "" if it said nothing.
func (l *Log) Cause() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return causeOf(l.words)
}
