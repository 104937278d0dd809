package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	maxCanonical = 512       // levels of what has a canonical form
	maxMoved     = 256 << 20 // bytes that are put into their places, level by level: 16 MiB within 500 levels would take seconds
)

// Canonical appends a value to dst in the form in which only what matters makes a difference: members in the order of
// their names' bytes, strings decoded, no white space, and numbers as they were written, where RFC 8785 would round them.
// So equal forms are the same to every parser; 1 and 1.0 are not equal, for not every parser takes them for the same.
// What two parsers may read differently has no such form, and is an error: names that come twice, bytes that are not
// UTF-8, half a character.
func Canonical(dst, b []byte) ([]byte, error) { return rewritten(dst, b, true) }

// Compact is Canonical with the members in the order in which they stand: white space and escapes say nothing, and in them anything
// could be said.
func Compact(dst, b []byte) ([]byte, error) { return rewritten(dst, b, false) }

func rewritten(dst, b []byte, sorted bool) ([]byte, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("it is not UTF-8")
	}
	s := scanner{sorted: sorted}
	s.reset(b)
	dst, i, err := s.canonical(dst, 0, 0)
	if err != nil {
		return nil, err
	}
	if i = s.space(i); i < len(b) {
		return nil, s.at(i, "the end")
	}
	return dst, nil
}

func (s *scanner) canonical(dst []byte, i, depth int) ([]byte, int, error) {
	i = s.space(i)
	switch {
	case i >= len(s.b):
		return nil, i, errEnd
	case depth > maxCanonical:
		return nil, i, fmt.Errorf("it nests deeper than %d levels", maxCanonical)
	case s.b[i] == '{':
		return s.canonicalObject(dst, i, depth+1)
	case s.b[i] == '[':
		return s.canonicalArray(dst, i, depth+1)
	case s.b[i] == '"':
		text, end, err := s.decoded(i)
		return append(dst, Quote(text)...), end, err
	}
	end, err := s.scalar(i)
	return append(dst, s.b[i:end]...), end, err
}

func (s *scanner) canonicalArray(dst []byte, i, depth int) ([]byte, int, error) {
	dst = append(dst, '[')
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == ']' {
		return append(dst, ']'), i + 1, nil
	}
	for {
		var err error
		if dst, i, err = s.canonical(dst, i, depth); err != nil {
			return nil, i, err
		}
		more := false
		if i, more, err = s.next(i, ']'); err != nil || !more {
			return append(dst, ']'), i, err
		}
		dst = append(dst, ',')
	}
}

// canonicalObject orders the members by their names, if only to find equal ones, which are neighbours then.
func (s *scanner) canonicalObject(dst []byte, i, depth int) ([]byte, int, error) {
	type member struct {
		name  string
		value []byte
	}
	var members []member
	i = s.space(i + 1)
	more := true
	if i < len(s.b) && s.b[i] == '}' {
		i, more = i+1, false
	}
	for more {
		var m member
		var err error
		if i = s.space(i); i >= len(s.b) || s.b[i] != '"' {
			return nil, i, s.at(i, "a member name")
		}
		if m.name, i, err = s.decoded(i); err != nil {
			return nil, i, err
		}
		if i = s.space(i); i >= len(s.b) || s.b[i] != ':' {
			return nil, i, s.at(i, `":"`)
		}
		if m.value, i, err = s.canonical(nil, i+1, depth); err != nil {
			return nil, i, err
		}
		if s.moved += len(m.value); s.moved > maxMoved {
			return nil, i, errors.New("it has too much in too many levels")
		}
		members = append(members, m)
		if i, more, err = s.next(i, '}'); err != nil {
			return nil, i, err
		}
	}
	ordered := members
	if !s.sorted {
		ordered = slices.Clone(members)
	}
	slices.SortFunc(ordered, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for k := 1; k < len(ordered); k++ {
		if ordered[k-1].name == ordered[k].name {
			return nil, i, fmt.Errorf("member %.100q comes twice", ordered[k].name)
		}
	}
	dst = append(dst, '{')
	for k, m := range members {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, Quote(m.name)...), ':'), m.value...)
	}
	return append(dst, '}'), i, nil
}

// next returns the index behind the comma or the closing bracket at or after i, and whether another value follows.
func (s *scanner) next(i int, closing byte) (int, bool, error) {
	i = s.space(i)
	switch {
	case i < len(s.b) && s.b[i] == ',':
		return i + 1, true, nil
	case i < len(s.b) && s.b[i] == closing:
		return i + 1, false, nil
	}
	return i, false, s.at(i, strconv.Quote(","+string(closing)))
}

// decoded reads the string at i and returns the index behind it.
func (s *scanner) decoded(i int) (string, int, error) {
	end, err := s.text(i)
	if err != nil {
		return "", end, err
	}
	if halfCharacter(s.b[i:end]) {
		return "", end, errors.New(`it has half a character, \ud800 to \udfff alone`)
	}
	text, err := String(s.b[i:end])
	return text, end, err
}

// halfCharacter reports whether an escape in valid JSON is one half of a UTF-16 pair without the other, which
// encoding/json reads as U+FFFD, whichever half it is, and other programs as it stands there.
func halfCharacter(raw []byte) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return false
	}
	unit := func(i int) (int, bool) {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return int(n), err == nil
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		first, escaped := unit(i)
		switch {
		case !escaped:
			i++ // the escaped character
		case first >= 0xd800 && first < 0xdc00:
			if second, ok := unit(i + 6); !ok || second < 0xdc00 || second > 0xdfff {
				return true
			}
			i += 11
		case first >= 0xdc00 && first <= 0xdfff:
			return true
		default:
			i += 5
		}
	}
	return false
}
