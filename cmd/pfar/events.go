package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// event is one event of a text/event-stream.
type event struct {
	id   string
	data []byte
}

// readEvents parses a stream as HTML 9.2.6 says and calls each for every event of the default type, which is what MCP
// uses. What follows the last blank line is not an event.
func readEvents(r io.Reader, each func(event)) error {
	return readEventsUpTo(r, maxMessage, each)
}

func readEventsUpTo(r io.Reader, limit int, each func(event)) error {
	lines := eventLines{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
	var e event
	var name string
	var hasData, started bool
	for {
		line, err := lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !started {
			line, started = bytes.TrimPrefix(line, []byte("\uFEFF")), true
		}
		if len(line) == 0 {
			if hasData && (name == "" || name == "message") {
				each(e)
			}
			e, name, hasData = event{id: e.id}, "", false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if hasData {
				e.data = append(e.data, '\n')
			}
			e.data, hasData = append(e.data, value...), true
			if len(e.data) > limit {
				return errTooLong
			}
		case "event":
			name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.id = string(value)
			}
		}
	}
}

// eventLines splits a stream at CR, LF or CRLF.
type eventLines struct {
	r      *bufio.Reader
	limit  int
	skipLF bool // the last line ended with CR; waiting for the next byte there would hold back a whole event
}

// next returns a line without its end. A line that the stream's end cuts is io.EOF.
func (l *eventLines) next() ([]byte, error) {
	var line []byte
	for {
		c, err := l.r.ReadByte()
		if err != nil {
			return nil, err
		}
		skip := l.skipLF && c == '\n'
		l.skipLF = c == '\r'
		switch {
		case skip:
		case c == '\n' || c == '\r':
			return line, nil
		case len(line) == l.limit:
			return nil, errTooLong
		default:
			line = append(line, c)
		}
	}
}
