// Package journal is what pfar's processes log by: records of log/slog in, entries of the journal with fields of their
// own out, or lines of text where stderr is not the journal's.
package journal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/coreos/go-systemd/v22/journal"
)

// LevelCritical is for what the owner has to see to (PRIORITY 2, LOG_CRIT of syslog(3)).
const LevelCritical = slog.LevelError + 4

// Connected reports whether this process's stderr is a stream of the journal's ($JOURNAL_STREAM, systemd.exec(5)). The
// variable alone says nothing: a child whose stderr is elsewhere inherits it.
func Connected() bool {
	is, err := journal.StderrIsJournalStream()
	return is && err == nil
}

// New returns what a process logs by: the journal, if stderr is connected to it, and else lines of text to w.
func New(w io.Writer) slog.Handler {
	if !Connected() {
		return slog.NewTextHandler(w, nil)
	}
	out := &rendering{}
	return &handler{out: out, text: slog.NewTextHandler(&out.buffer, &slog.HandlerOptions{ReplaceAttr: attributesOnly})}
}

// Entry is one entry of the journal.
type Entry struct {
	Level      slog.Level
	Identifier string            // SYSLOG_IDENTIFIER, who speaks; "": this program
	Message    string            // one line
	Fields     map[string]string // by the attribute's name: "server" is PFAR_SERVER
}

// Send writes an entry. What the journal does not take is written to stderr, without its fields.
func Send(e Entry) {
	vars := map[string]string{"SYSLOG_IDENTIFIER": e.Identifier}
	if e.Identifier == "" {
		vars["SYSLOG_IDENTIFIER"] = filepath.Base(os.Args[0])
	}
	for name, value := range e.Fields {
		vars[field(name)] = value
	}
	if err := journal.Send(e.Message, priority(e.Level), vars); err != nil {
		fmt.Fprintf(os.Stderr, "%s (not in the journal as such: %v)\n", e.Message, err)
	}
}

// handler renders a record as a line for people, and sends it with its attributes as fields.
type handler struct {
	text   slog.Handler // writes to out
	out    *rendering   // shared with those made of this one
	fields map[string]string
	group  string // before the names of further fields
}

type rendering struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

// attributesOnly leaves out what the journal has by itself, and the message, which stands before them as it is.
func attributesOnly(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attributes, err := h.render(ctx, r)
	if err != nil {
		return err
	}
	fields := maps.Clone(h.fields)
	if fields == nil {
		fields = map[string]string{}
	}
	r.Attrs(func(a slog.Attr) bool {
		add(fields, h.group, a)
		return true
	})
	Send(Entry{Level: r.Level, Message: strings.TrimSuffix(oneLine(r.Message)+" "+attributes, " "), Fields: fields})
	return nil
}

func (h *handler) render(ctx context.Context, r slog.Record) (string, error) {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.buffer.Reset()
	if err := h.text.Handle(ctx, r); err != nil {
		return "", err
	}
	return strings.TrimSuffix(h.out.buffer.String(), "\n"), nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.text = h.text.WithAttrs(attrs)
	n.fields = map[string]string{}
	maps.Copy(n.fields, h.fields)
	for _, a := range attrs {
		add(n.fields, h.group, a)
	}
	return &n
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	n := *h
	n.text, n.group = h.text.WithGroup(name), h.group+name+"_"
	return &n
}

// add puts an attribute among the fields, one of a group under the group's name and its own.
func add(fields map[string]string, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		if a.Key != "" {
			fields[group+a.Key] = v.String()
		}
		return
	}
	if a.Key != "" {
		group += a.Key + "_"
	}
	for _, member := range v.Group() {
		add(fields, group, member)
	}
}

// maxField is how long the name of a field may be; journald drops longer ones.
const maxField = 64

// field is the name of the field for an attribute: A to Z, 0 to 9 and _ are all that there may be
// (systemd.journal-fields(7)).
func field(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, "PFAR_"+name)
	return name[:min(len(name), maxField)]
}

func priority(l slog.Level) journal.Priority {
	switch {
	case l >= LevelCritical:
		return journal.PriCrit
	case l >= slog.LevelError:
		return journal.PriErr
	case l >= slog.LevelWarn:
		return journal.PriWarning
	case l >= slog.LevelInfo:
		return journal.PriInfo
	}
	return journal.PriDebug
}

// oneLine escapes a message that has more than text in it, as the attributes are escaped.
func oneLine(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 && strings.ToValidUTF8(s, "") == s {
		return s
	}
	q := strconv.Quote(s)
	return q[1 : len(q)-1]
}
