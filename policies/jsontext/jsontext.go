// Package jsontext reads texts of JSON token by token and decodes their strings: every reader of messages, schemas and
// results stands on it.
//
// Each guarantees something else:
//   - Reader: the grammar of RFC 8259, with nothing before or behind the one value, and at most 2^20 levels. Numbers
//     stay as they are written. Names may come twice, bytes need not be UTF-8, and half a character is U+FFFD.
//   - jsonrpc.Object and Parse: no name twice in the object that is split, however it is escaped, and at most 256
//     members. Every value is the bytes that came. Parse returns the message beside the error that it is not UTF-8.
//   - jsonrpc.Canonical and Compact: no name twice on any level, only UTF-8, no half character, at most 512 levels.
//   - policies/schema: no name twice on any level, bounds on levels, values and digits. Bytes that are not UTF-8 become
//     U+FFFD.
//   - redact, inspect, gateway/fenced: each string and its place. They change or judge strings; all other bytes stay.
//
// The reader is pfar's own. The successor of encoding/json gives up at 10,000 levels, before the id of the message is
// known, and its sender would wait in vain. It also takes twice as long for 64 KiB of text.
package jsontext

import (
	"bytes"
	"fmt"
	"strings"
	"unsafe"

	"github.com/pfar/pfar/policies/scan"
)

// maxNesting bounds what is read at all; a limit that means something is the caller's.
const maxNesting = 1 << 20

// Token is a bracket, the name of a member, or a value that is neither an array nor an object.
type Token struct {
	Kind  byte // one of { } [ ] " t f n, 0 for a number, and End
	Name  bool // a string that names a member
	Start int  // of its first byte
	End   int  // behind its last
}

// Kinds of tokens that are not their first byte.
const (
	Number byte = '0'
	End    byte = 0 // of the text
)

// Long is how many bytes a long string has, at least.
const Long = 1 << 10

// SyntaxError says where a text is not JSON.
type SyntaxError struct {
	At   int
	what string
}

func (e *SyntaxError) Error() string { return e.what }

// Reader reads one text. It builds nothing: it keeps one byte for each bracket that is open.
type Reader struct {
	text  []byte
	last  Token
	again bool
	at    int // where the next token is looked for
	state state
	open  []byte
	signs scan.Finder // in text
	long  []byte      // the content of the last long string
	own   *[]byte     // what Text returns
	first [64]byte    // backs open for usual texts
}

// state is what may come next.
type state byte

const (
	value   state = iota
	opening       // behind an opening bracket
	behind        // behind a value
)

// signs are what ends a string, escapes something in it, or must not stand there.
var signs = scan.Of(func(c byte) bool { return c == '"' || c == '\\' || c < 0x20 })

// Reset begins to read a text, which must not change while it is read. The last long string stays known.
func (r *Reader) Reset(text []byte) {
	r.text, r.at, r.state, r.open, r.signs = text, 0, value, r.first[:0], signs.In(shared(text))
}

// Remember takes over the last long string of another reader.
func (r *Reader) Remember(other *Reader) { r.long = other.long }

// Depth returns how many brackets are open.
func (r *Reader) Depth() int { return len(r.open) }

// Again reports whether the last token is a long string, and the same as the last long one before it: results of tools
// have their text as structured content, too.
func (r *Reader) Again() bool { return r.again }

// Next returns the next token.
func (r *Reader) Next() (Token, error) {
	if err := r.step(); err != nil {
		return Token{}, err
	}
	return r.last, nil
}

// step reads the next token.
func (r *Reader) step() error {
	i := r.space(r.at)
	switch {
	case r.state == value:
		return r.value(i)
	case len(r.open) == 0:
		if i < len(r.text) {
			return r.wrong(i, "the end")
		}
		r.last = Token{Start: i, End: i}
		return nil
	}
	top := r.open[len(r.open)-1]
	switch {
	case i < len(r.text) && r.text[i] == top+2: // '}' and ']' are their opening brackets plus two
		r.open, r.at, r.state = r.open[:len(r.open)-1], i+1, behind
		r.last = Token{Kind: top + 2, Start: i, End: i + 1}
		return nil
	case r.state == opening:
	case i < len(r.text) && r.text[i] == ',':
		i = r.space(i + 1)
	default:
		return r.wrong(i, `"," or the closing bracket`)
	}
	if top == '{' {
		return r.name(i)
	}
	return r.value(i)
}

// Known is Next for a text that has been found to be JSON, or is empty. It panics if the text is neither, so that no
// reader passes on bytes that it has not read.
func (r *Reader) Known() Token {
	if len(r.text) == 0 {
		return Token{}
	}
	if err := r.step(); err != nil {
		panic(err)
	}
	return r.last
}

// Skip reads the rest of the value that begins with a token. It returns where the value ends, and how deep it nests.
func (r *Reader) Skip(t Token) (end, depth int, err error) {
	if t.Kind != '{' && t.Kind != '[' {
		return t.End, 0, nil
	}
	for floor := len(r.open) - 1; err == nil && len(r.open) > floor; err = r.step() {
		depth = max(depth, len(r.open)-floor)
	}
	return r.at, depth, err
}

// Valid reports whether a text is JSON.
func Valid(text []byte) bool {
	var r Reader
	r.Reset(text)
	for {
		if t, err := r.Next(); err != nil || t.Kind == End {
			return err == nil
		}
	}
}

func (r *Reader) wrong(i int, want string) error {
	if i >= len(r.text) {
		return &SyntaxError{len(r.text), "JSON ends too early"}
	}
	return &SyntaxError{i, fmt.Sprintf("want %s at byte %d, found %q", want, i, r.text[i])}
}

func (r *Reader) space(i int) int {
	for i < len(r.text) {
		switch r.text[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// name reads the name of a member and the colon behind it.
func (r *Reader) name(i int) error {
	if i >= len(r.text) || r.text[i] != '"' {
		return r.wrong(i, "a member name")
	}
	end, err := r.quoted(i)
	if err != nil {
		return err
	}
	r.last = Token{Kind: '"', Name: true, Start: i, End: end}
	if i = r.space(end); i >= len(r.text) || r.text[i] != ':' {
		return r.wrong(i, `":"`)
	}
	r.at, r.state = i+1, value
	return nil
}

func (r *Reader) value(i int) error {
	if i >= len(r.text) {
		return r.wrong(i, "")
	}
	var end int
	var err error
	kind := r.text[i]
	switch kind {
	case '{', '[':
		if len(r.open) == maxNesting {
			return &SyntaxError{i, fmt.Sprintf("JSON nests deeper than %d", maxNesting)}
		}
		r.open, r.at, r.state = append(r.open, kind), i+1, opening
		r.last = Token{Kind: kind, Start: i, End: i + 1}
		return nil
	case '"':
		end, err = r.quoted(i)
	case 't':
		end, err = r.word(i, "true")
	case 'f':
		end, err = r.word(i, "false")
	case 'n':
		end, err = r.word(i, "null")
	default:
		kind = Number
		end, err = r.number(i)
	}
	if err != nil {
		return err
	}
	r.at, r.state = end, behind
	r.last = Token{Kind: kind, Start: i, End: end}
	return nil
}

// quoted returns where the string ends whose opening quote is at i.
func (r *Reader) quoted(i int) (int, error) {
	r.again = false
	if len(r.long) > 0 && r.same(i+1) {
		r.again = true
		return i + 2 + len(r.long), nil
	}
	start := i + 1
	for i = start; ; {
		if i = r.signs.Next(i); i >= len(r.text) {
			return 0, r.wrong(i, "")
		}
		switch r.text[i] {
		case '"':
			if i-start >= Long {
				r.long = r.text[start:i]
			}
			return i + 1, nil
		case '\\':
			var err error
			if i, err = r.escape(i + 1); err != nil {
				return 0, err
			}
		default:
			return 0, &SyntaxError{i, fmt.Sprintf("control character %q in a string at byte %d", r.text[i], i)}
		}
	}
}

// same reports whether the content of the string at i is that of the last long one.
func (r *Reader) same(i int) bool {
	end := i + len(r.long)
	return end < len(r.text) && r.text[end] == '"' && bytes.Equal(r.text[i:end], r.long)
}

func (r *Reader) escape(i int) (int, error) {
	if i >= len(r.text) {
		return i, r.wrong(i, "")
	}
	switch r.text[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		for j := i + 1; j < i+5; j++ {
			if j >= len(r.text) || !hex(r.text[j]) {
				return j, r.wrong(j, "a hexadecimal digit")
			}
		}
		return i + 5, nil
	}
	return i, r.wrong(i, "an escape")
}

func hex(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

func (r *Reader) word(i int, word string) (int, error) {
	if !strings.HasPrefix(shared(r.text[i:]), word) {
		return 0, r.wrong(i, word)
	}
	return i + len(word), nil
}

func (r *Reader) number(i int) (int, error) {
	if r.text[i] == '-' {
		i++
	}
	end := r.digits(i)
	switch {
	case end == i:
		return 0, r.wrong(i, "a value")
	case r.text[i] == '0':
		end = i + 1
	}
	if end < len(r.text) && r.text[end] == '.' {
		if i, end = end+1, r.digits(end+1); end == i {
			return 0, r.wrong(i, "a digit")
		}
	}
	if end < len(r.text) && r.text[end]|0x20 == 'e' {
		if i = end + 1; i < len(r.text) && (r.text[i] == '+' || r.text[i] == '-') {
			i++
		}
		if end = r.digits(i); end == i {
			return 0, r.wrong(i, "a digit")
		}
	}
	return end, nil
}

func (r *Reader) digits(i int) int {
	for i < len(r.text) && digit(r.text[i]) {
		i++
	}
	return i
}

// shared is a string in the memory of a text.
func shared(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }
