package jsonrpc

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pfar/pfar/policies/scan"
)

// maxNesting bounds what is scanned at all; a limit that means something is the caller's (Message.Depth).
const maxNesting = 1 << 20

// errEnd is the one error that more bytes could mend.
var errEnd = errors.New("JSON ends too early")

// scanner checks the grammar of RFC 8259 without building anything: it keeps no stack but the brackets that are open,
// so that nesting costs a byte a level (MS deep-json).
type scanner struct {
	b       []byte
	signs   scan.Finder // in b
	open    []byte
	deepest int
	sorted  bool     // of what is rewritten: members are put in order
	moved   int      // bytes of it, each as often as it was
	first   [64]byte // backs open for what is usual
}

func (s *scanner) reset(b []byte) {
	s.b, s.open, s.deepest, s.signs = b, s.first[:0], 0, signs.In(unsafe.String(unsafe.SliceData(b), len(b)))
}

func (s *scanner) at(i int, what string) error {
	if i >= len(s.b) {
		return errEnd
	}
	return fmt.Errorf("want %s at byte %d, found %q", what, i, s.b[i])
}

func (s *scanner) space(i int) int {
	for i < len(s.b) {
		switch s.b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// value returns the index behind the value that begins at or after i.
func (s *scanner) value(i int) (int, error) {
	floor := len(s.open)
	for {
		var err error
		i = s.space(i)
		if i >= len(s.b) {
			return i, errEnd
		}
		switch c := s.b[i]; c {
		case '{', '[':
			if i, err = s.enter(i); err != nil {
				return i, err
			}
			if s.b[i-1] != c+2 { // not closed at once
				continue
			}
		case '"':
			i, err = s.text(i)
		default:
			i, err = s.scalar(i)
		}
		if err != nil {
			return i, err
		}
		more := false
		if i, more, err = s.after(i, floor); err != nil || !more {
			return i, err
		}
	}
}

// enter opens the bracket at i and returns the index of the first value in it, or behind it if it is empty. '}' and
// ']' are their opening brackets plus two.
func (s *scanner) enter(i int) (int, error) {
	c := s.b[i]
	if len(s.open) == maxNesting {
		return i, fmt.Errorf("JSON nests deeper than %d", maxNesting)
	}
	s.open = append(s.open, c)
	s.deepest = max(s.deepest, len(s.open))
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == c+2 {
		s.open = s.open[:len(s.open)-1]
		return i + 1, nil
	}
	if c == '{' {
		return s.key(i)
	}
	if i >= len(s.b) {
		return i, errEnd
	}
	return i, nil
}

// after closes what ends behind a value. It reports whether another value follows before the level of floor is reached.
func (s *scanner) after(i, floor int) (int, bool, error) {
	for len(s.open) > floor {
		i = s.space(i)
		top := s.open[len(s.open)-1]
		switch {
		case i < len(s.b) && s.b[i] == ',':
			i++
			if top == '{' {
				var err error
				i, err = s.key(s.space(i))
				return i, true, err
			}
			return i, true, nil
		case i < len(s.b) && s.b[i] == top+2:
			s.open = s.open[:len(s.open)-1]
			i++
		default:
			return i, false, s.at(i, `"," or the closing bracket`)
		}
	}
	return i, false, nil
}

// key returns the index behind the colon of the member name at i.
func (s *scanner) key(i int) (int, error) {
	if i >= len(s.b) || s.b[i] != '"' {
		return i, s.at(i, "a member name")
	}
	i, err := s.text(i)
	if err != nil {
		return i, err
	}
	if i = s.space(i); i >= len(s.b) || s.b[i] != ':' {
		return i, s.at(i, `":"`)
	}
	return i + 1, nil
}

// signs are what ends a string, escapes something in it, or must not stand there.
var signs = scan.Of(func(c byte) bool { return c == '"' || c == '\\' || c < 0x20 })

// text returns the index behind the string whose opening quote is at i.
func (s *scanner) text(i int) (int, error) {
	i++
	for {
		if i = s.signs.Next(i); i >= len(s.b) {
			return i, errEnd
		}
		switch s.b[i] {
		case '"':
			return i + 1, nil
		case '\\':
			var err error
			if i, err = s.escape(i + 1); err != nil {
				return i, err
			}
		default:
			return i, fmt.Errorf("control character %q in a string at byte %d", s.b[i], i)
		}
	}
}

func (s *scanner) escape(i int) (int, error) {
	if i >= len(s.b) {
		return i, errEnd
	}
	switch s.b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1, nil
	case 'u':
		for k := range 4 {
			if j := i + 1 + k; j >= len(s.b) || !hex(s.b[j]) {
				return j, s.at(j, "a hexadecimal digit")
			}
		}
		return i + 5, nil
	}
	return i, s.at(i, "an escape")
}

func hex(c byte) bool { return digit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

func digit(c byte) bool { return '0' <= c && c <= '9' }

// scalar returns the index behind the number, true, false or null at i.
func (s *scanner) scalar(i int) (int, error) {
	for _, word := range [...]string{"true", "false", "null"} {
		if s.b[i] == word[0] {
			if len(s.b)-i < len(word) || string(s.b[i:i+len(word)]) != word {
				return i, s.at(i, word)
			}
			return i + len(word), nil
		}
	}
	return s.number(i)
}

func (s *scanner) number(i int) (int, error) {
	if s.b[i] == '-' {
		i++
	}
	switch {
	case i < len(s.b) && s.b[i] == '0':
		i++
	case i < len(s.b) && digit(s.b[i]):
		i = s.digits(i)
	default:
		return i, s.at(i, "a value")
	}
	if i < len(s.b) && s.b[i] == '.' {
		j := s.digits(i + 1)
		if j == i+1 {
			return j, s.at(j, "a digit")
		}
		i = j
	}
	if i < len(s.b) && s.b[i]|0x20 == 'e' {
		i++
		if i < len(s.b) && (s.b[i] == '+' || s.b[i] == '-') {
			i++
		}
		j := s.digits(i)
		if j == i {
			return j, s.at(j, "a digit")
		}
		i = j
	}
	return i, nil
}

func (s *scanner) digits(i int) int {
	for i < len(s.b) && digit(s.b[i]) {
		i++
	}
	return i
}
