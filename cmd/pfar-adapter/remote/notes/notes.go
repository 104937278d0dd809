// Package notes tells the owner on standard error what becomes of the connection, in few lines and without secrets.
package notes

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/policies/redact"
)

// Log writes lines.
type Log struct {
	to      io.Writer
	secrets *redact.Set

	mu    sync.Mutex
	last  map[string]time.Time // of each kind of what comes often
	count map[string]int
}

// New returns a log in which none of the secrets stands.
func New(to io.Writer, secrets *redact.Set) *Log {
	return &Log{to: to, secrets: secrets, last: map[string]time.Time{}, count: map[string]int{}}
}

// Say writes a line.
func (l *Log) Say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(fmt.Sprintf(format, args...))
}

// Seldom writes a line of a kind the first time, and then at most once a minute. Kinds are the program's own words.
func (l *Log) Seldom(kind, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[kind]++
	if at, ok := l.last[kind]; ok && time.Since(at) < time.Minute {
		return
	}
	l.last[kind] = time.Now()
	if detail != "" {
		detail = ": " + detail
	}
	if n := l.count[kind]; n > 1 {
		kind = fmt.Sprintf("%s (%d times so far)", kind, n)
	}
	l.write(kind + detail)
}

func (l *Log) write(text string) {
	_, _ = fmt.Fprintf(l.to, "pfar-adapter: %s\n", fault.Plain(l.secrets, text)) // nobody is left to tell
}
