// Package events reads an event stream (text/event-stream, as WHATWG HTML section 9.2 has it) in bounded memory.
package events

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// Event is one event that the stream has dispatched.
type Event struct {
	Type string // "" for a message
	Data []byte // it belongs to the caller; nil: the event only moved the stream's last id
}

// Limits bound what one stream may cost.
type Limits struct {
	Data  int           // bytes of one event's data
	Quiet int           // bytes of comments, and of what is no event, between two events
	Name  int           // bytes of a type or an id
	Retry time.Duration // longest wait that a stream may ask for
}

// DefaultLimits take an event with a message of most bytes.
func DefaultLimits(most int) Limits {
	return Limits{Data: most, Quiet: most + 1<<20, Name: 1 << 10, Retry: 5 * time.Minute}
}

// Reader reads one stream. One goroutine uses it.
type Reader struct {
	from   *bufio.Reader
	limits Limits

	begun   bool   // the byte order mark, if there was one, is behind us
	afterCR bool   // a line feed that comes now ends no line of its own
	row     []byte // the line that is read
	quiet   int    // bytes since the last event

	data []byte
	any  bool // there was a data field
	kind string
	id   string // as the stream says; it counts from the end of its event on

	at Cursor
}

// Cursor is how far a stream has come, for one that goes on where it breaks off.
type Cursor struct {
	Last  string        // id of the last event; "": it has none
	Retry time.Duration // for how long the stream wants to be left alone then
	Asked bool          // it has said so
}

// NewReader returns a reader of a stream that begins, or goes on at another one's end.
func NewReader(from io.Reader, limits Limits, at Cursor) *Reader {
	return &Reader{from: bufio.NewReaderSize(from, 16<<10), limits: limits, id: at.Last, at: at}
}

// ErrLimit says that a stream costs more than it may.
var ErrLimit = errors.New("the event stream is over its limit")

// Cursor returns how far the stream has come.
func (r *Reader) Cursor() Cursor { return r.at }

// Next returns the next event. An event that the stream does not finish is none. Events without data are returned as
// well: whoever counts events counts them too.
func (r *Reader) Next() (Event, error) {
	for {
		row, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if len(row) > 0 {
			if err := r.field(row); err != nil {
				return Event{}, err
			}
			continue
		}
		if e, ok := r.dispatch(); ok {
			r.quiet = 0
			return e, nil
		}
	}
}

// dispatch ends an event at an empty line. It reports false if there was none.
func (r *Reader) dispatch() (Event, bool) {
	e := Event{Type: r.kind}
	moved := r.id != r.at.Last
	r.at.Last = r.id
	if r.any {
		e.Data = r.data
		if e.Data == nil {
			e.Data = []byte{}
		}
	}
	was := r.any || moved
	r.data, r.any, r.kind = nil, false, ""
	return e, was
}

// field takes one line that is not empty.
func (r *Reader) field(row []byte) error {
	name, value, _ := bytes.Cut(row, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		if len(r.data)+len(value)+1 > r.limits.Data {
			return fmt.Errorf("%w: an event has more than %d bytes", ErrLimit, r.limits.Data)
		}
		if r.any {
			r.data = append(r.data, '\n')
		}
		r.data, r.any = append(r.data, value...), true
	case "event":
		if len(value) > r.limits.Name {
			return fmt.Errorf("%w: an event's type has more than %d bytes", ErrLimit, r.limits.Name)
		}
		r.kind = string(value)
	case "id":
		if len(value) > r.limits.Name {
			return fmt.Errorf("%w: an event's id has more than %d bytes", ErrLimit, r.limits.Name)
		}
		if !bytes.ContainsAny(value, "\x00") {
			r.id = string(value)
		}
	case "retry":
		r.wait(value)
	}
	return nil
}

// wait takes a retry field: milliseconds in decimal digits.
func (r *Reader) wait(value []byte) {
	if len(value) == 0 {
		return
	}
	most := int64(r.limits.Retry / time.Millisecond)
	n := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
		n = min(n*10+int64(c-'0'), most)
	}
	r.at.Retry, r.at.Asked = time.Duration(n)*time.Millisecond, true
}

// line returns the next line without its end, which is CR, LF or both; it is valid until the next call. It does not
// wait for what comes behind a CR.
func (r *Reader) line() ([]byte, error) {
	r.row = r.row[:0]
	for {
		if _, err := r.from.Peek(1); err != nil {
			return nil, end(err)
		}
		if !r.begun {
			if err := r.mark(); err != nil {
				return nil, err
			}
			continue
		}
		b, _ := r.from.Peek(r.from.Buffered())
		if r.afterCR {
			r.afterCR = false
			if b[0] == '\n' {
				r.discard(1)
				continue
			}
		}
		i := ending(b)
		part := b
		if i >= 0 {
			part = b[:i]
			r.afterCR = b[i] == '\r'
		}
		if err := r.extend(part); err != nil {
			return nil, err
		}
		if i >= 0 {
			r.discard(i + 1)
			return r.row, nil
		}
		r.discard(len(b))
	}
}

// ending returns where the first line in b ends, -1 for not there.
func ending(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// mark passes over a byte order mark at the beginning.
func (r *Reader) mark() error {
	b, _ := r.from.Peek(1)
	if b[0] == 0xef {
		b, err := r.from.Peek(3)
		if err != nil {
			return end(err)
		}
		if string(b) == "\ufeff" {
			r.discard(3)
		}
	}
	r.begun = true
	return nil
}

// extend adds a part to the line. Of a comment nothing is kept.
func (r *Reader) extend(part []byte) error {
	r.quiet += len(part) + 1
	if r.quiet > r.limits.Quiet+len(r.data) {
		return fmt.Errorf("%w: %d bytes without an event", ErrLimit, r.limits.Quiet)
	}
	if len(r.row) > 0 && r.row[0] == ':' {
		return nil
	}
	if len(r.row)+len(part) > r.limits.Data+len("data: ") {
		return fmt.Errorf("%w: a line has more than %d bytes", ErrLimit, r.limits.Data)
	}
	r.row = append(r.row, part...)
	return nil
}

func (r *Reader) discard(n int) { _, _ = r.from.Discard(n) } // of what is buffered

// end makes the end of a body that broke off, and of one that ended well, tell apart.
func end(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
