// Package jsonrpc reads and writes JSON-RPC 2.0 messages as raw bytes: values pass through as they came, and what two
// parsers could read differently is refused.
package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
)

// Message is one message; its members are the bytes that came, nil where there is none.
type Message struct {
	Members Members
	Version bool // "jsonrpc" is "2.0"
	ID      []byte
	Method  string
	Params  []byte
	Result  []byte
	Error   []byte
	Depth   int // nesting, the message itself counted
}

// ErrUTF8 says that a message is not text.
var ErrUTF8 = errors.New("invalid UTF-8")

// Parse reads one message with nothing behind it. The message shares b's memory. If all that is wrong is the encoding,
// it returns the message with ErrUTF8, so that whoever waits for an answer can be told.
func Parse(b []byte) (Message, error) {
	ms, err := Object(b, make(Members, 0, 4))
	if err != nil {
		return Message{}, err
	}
	m := Message{Members: ms, Depth: ms.Depth()}
	for i := range ms {
		raw := ms[i].Raw()
		switch string(ms[i].Name) {
		case "jsonrpc":
			m.Version = string(raw) == `"2.0"`
		case "id":
			m.ID = raw
		case "method":
			if m.Method, err = String(raw); err != nil || m.Method == "" {
				return Message{}, errors.New(`"method" is not the name of one`)
			}
		case "params":
			m.Params = raw
		case "result":
			m.Result = raw
		case "error":
			m.Error = raw
		}
	}
	if !utf8.Valid(b) {
		return m, ErrUTF8
	}
	return m, nil
}

// maxID bounds what is echoed to a client and kept while its call runs.
const maxID = 256

// ValidID reports whether raw may be a request's id: a string or an integer (MCP forbids null).
func ValidID(raw []byte) bool {
	if len(raw) == 0 || len(raw) > maxID {
		return false
	}
	if raw[0] == '"' {
		return true
	}
	i := 0
	if raw[0] == '-' {
		i = 1
	}
	for _, c := range raw[i:] {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(raw) > i
}

// AppendRequest appends a request as one line, with id 0 a notification. Line breaks between the tokens of params
// become spaces: there are none within strings, and one more would be a message of the client's making.
func AppendRequest(dst []byte, id int64, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		dst = append(dst, `"id":`...)
		dst = strconv.AppendInt(dst, id, 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"method":`...)
	dst = append(dst, Quote(method)...)
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		start := len(dst)
		dst = append(dst, params...)
		oneLine(dst[start:])
	}
	return append(dst, "}\n"...)
}

// OneLine makes spaces of the line breaks in b but the last byte, in place, and returns it.
func OneLine(b []byte) []byte {
	oneLine(b[:len(b)-1])
	return b
}

func oneLine(b []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for rest := b; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// AppendNotification appends a notification, without a line end.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","method":`...)
	dst = append(dst, Quote(method)...)
	if len(params) > 0 {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendHead appends a response up to the value of its member, "result" or "error"; "}" completes it.
func AppendHead(dst, id []byte, member string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	if len(id) == 0 {
		id = []byte("null")
	}
	dst = append(dst, id...)
	dst = append(dst, `,"`...)
	dst = append(dst, member...)
	return append(dst, `":`...)
}

// Error is a refusal in the protocol's own terms.
type Error struct {
	Code int
	Text string
	Data []byte // JSON, or nil
	Raw  []byte // the whole error object where a server sent one; then the rest is not set
}

// Errorf returns an error of the code.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string {
	if e.Raw != nil {
		text := fmt.Sprintf("the server answered with error %d", e.Number())
		ms, _ := Object(e.Raw, make(Members, 0, 4))
		if said, _ := String(ms.Get("message")); said != "" {
			text += ": " + Quoted(said)
		}
		return text
	}
	return e.Text
}

// maxQuoted bounds what Quoted returns of a text, in bytes.
const maxQuoted = 1 << 10

// Quoted is the beginning of a server's text for a person who reads it: safe to look at, and between quotation marks,
// of which it has none itself.
func Quoted(text string) string {
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "..."
	}
	shown := visible.Escape(text, func(r rune) bool { return visible.Deceptive(r) || !unicode.IsPrint(r) })
	return `"` + strings.ReplaceAll(shown, `"`, "'") + `"`
}

// Number returns the code, also of an error that a server sent; 0 if that has none.
func (e *Error) Number() int {
	if e.Raw == nil {
		return e.Code
	}
	ms, err := Object(e.Raw, make(Members, 0, 4))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(string(ms.Get("code")))
	return n
}

// JSON returns the error object.
func (e *Error) JSON() []byte {
	if e.Raw != nil {
		return e.Raw
	}
	b := append([]byte(`{"code":`), strconv.Itoa(e.Code)...)
	b = append(b, `,"message":`...)
	b = append(b, Quote(e.Text)...)
	if e.Data != nil {
		b = append(b, `,"data":`...)
		b = append(b, e.Data...)
	}
	return append(b, '}')
}

// ValidError reports whether raw is an error object: an integer code and a message.
func ValidError(raw []byte) bool {
	ms, err := Object(raw, make(Members, 0, 3))
	if err != nil {
		return false
	}
	code, text := ms.Get("code"), ms.Get("message")
	return len(code) > 0 && code[0] != '"' && ValidID(code) && len(text) > 0 && text[0] == '"'
}
