package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/units"
)

type plainWriter struct{ io.Writer }

// escapingWriter escapes what it is given. A character that two writes split is written whole, with the second.
type escapingWriter struct {
	w    io.Writer
	part []byte // of a character
}

// maxLogLine bounds what is kept of a line that does not end; pfar-sandbox writes none that long.
const maxLogLine = 1 << 20

// jsonLines writes each line of a log as an object.
type jsonLines struct {
	w      io.Writer
	server string // if lines of several servers are printed
	part   []byte // of a line that has not ended
}

// logWriter is standard output; on a terminal a server's log must not be obeyed. Close writes what is left of a line.
func (c *streams) logWriter() io.WriteCloser {
	switch {
	case c.json():
		return &jsonLines{w: c.stdout}
	case isTerminal(c.stdout):
		return &escapingWriter{w: c.stdout}
	}
	return plainWriter{c.stdout}
}

func (plainWriter) Close() error { return nil }

func (e *escapingWriter) Write(b []byte) (int, error) {
	text := append(e.part, b...)
	whole := len(text)
	for i := max(0, whole-utf8.UTFMax+1); i < whole; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			whole = i
		}
	}
	if _, err := io.WriteString(e.w, escape(string(text[:whole]), keepLines)); err != nil {
		return 0, err
	}
	e.part = bytes.Clone(text[whole:])
	return len(b), nil
}

func (e *escapingWriter) Close() error {
	_, err := io.WriteString(e.w, escape(string(e.part), keepLines))
	return err
}

func (l *jsonLines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	rest := l.part
	for {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if !ended && len(line) < maxLogLine {
			break
		}
		if err := l.object(string(line)); err != nil {
			return 0, err
		}
		rest = after
	}
	l.part = append(l.part[:0], rest...)
	return len(b), nil
}

func (l *jsonLines) Close() error {
	if len(l.part) == 0 {
		return nil
	}
	line := string(l.part)
	l.part = nil
	return l.object(line)
}

func (l *jsonLines) object(line string) error {
	var o struct {
		Time   *time.Time `json:"time,omitempty"`
		Server string     `json:"server,omitempty"`
		From   string     `json:"from,omitempty"`
		Text   string     `json:"text"`
	}
	o.Text, o.Server = line, l.server
	if stamp, text, ok := strings.Cut(line, " "); ok { // pfar-sandbox puts it before each line
		if t, err := time.Parse(time.RFC3339, stamp); err == nil {
			o.Time, o.Text = &t, text
		}
	}
	if text, ok := strings.CutPrefix(o.Text, units.ServerMark); ok {
		o.From, o.Text = "server", text
	}
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(l.w, "%s\n", escapeJSON(b))
	return err
}
