package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/jsontext"
	"github.com/pfar/pfar/policies/scan"
)

// maxMembers bounds an object that is looked into; finding a duplicate compares each name with each.
const maxMembers = 256

// Member is one member of an object: where its name and its value stand in the object's bytes.
type Member struct {
	Name       []byte // decoded
	NameStart  int    // of the opening quote
	ValueStart int
	ValueEnd   int
	Depth      int // nesting of the value
	raw        []byte
}

// Raw returns the value as it came.
func (m Member) Raw() []byte { return m.raw[m.ValueStart:m.ValueEnd:m.ValueEnd] }

// Members is an object's members in their order.
type Members []Member

// Get returns the value of name as it came, or nil.
func (ms Members) Get(name string) []byte {
	if i := ms.Index(name); i >= 0 {
		return ms[i].Raw()
	}
	return nil
}

// Index returns the index of name, or -1.
func (ms Members) Index(name string) int {
	for i := range ms {
		if string(ms[i].Name) == name {
			return i
		}
	}
	return -1
}

// Depth returns how deep the object nests that these are the members of.
func (ms Members) Depth() int {
	deepest := 1
	for i := range ms {
		deepest = max(deepest, ms[i].Depth+1)
	}
	return deepest
}

// LookAlike returns the first name that is one of known, which are ASCII, but for the case of its letters: encoding/json and
// others take it for the same, so that a check here and a program behind it would see two different messages.
func (ms Members) LookAlike(known ...string) error {
	for i := range ms {
		name := ms[i].Name
		longer := !ascii(name) // two letters that are not fold to ASCII: the long s, and the sign for kelvin
		for _, k := range known {
			if (longer || len(name) == len(k)) && string(name) != k && strings.EqualFold(string(name), k) {
				return fmt.Errorf("member %q looks like %q", name, k)
			}
		}
	}
	return nil
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Object splits an object into its members, appended to dst. A name that comes twice is an error, however it is
// escaped, because parsers differ in which of the two they take.
func Object(b []byte, dst Members) (Members, error) {
	var s scanner
	s.reset(b)
	ms, i, err := s.object(0, dst)
	if err != nil {
		return nil, err
	}
	if i = s.space(i); i < len(b) {
		return nil, s.at(i, "the end")
	}
	return ms, nil
}

func (s *scanner) object(i int, ms Members) (Members, int, error) {
	i = s.space(i)
	if i >= len(s.b) || s.b[i] != '{' {
		return nil, i, s.at(i, "an object")
	}
	i = s.space(i + 1)
	if i < len(s.b) && s.b[i] == '}' {
		return ms, i + 1, nil
	}
	for {
		m := Member{NameStart: i, raw: s.b}
		end, err := s.key(i)
		if err != nil {
			return nil, i, err
		}
		if m.Name, err = name(s.b[i:end]); err != nil {
			return nil, i, err
		}
		if ms.Index(string(m.Name)) >= 0 {
			return nil, i, fmt.Errorf("member %.100q comes twice", m.Name)
		}
		m.ValueStart = s.space(end)
		s.deepest = 0
		if m.ValueEnd, err = s.value(end); err != nil {
			return nil, i, err
		}
		m.Depth = s.deepest
		if ms = append(ms, m); len(ms) > maxMembers {
			return nil, i, fmt.Errorf("object has more than %d members", maxMembers)
		}
		if i = s.space(m.ValueEnd); i < len(s.b) && s.b[i] == '}' {
			return ms, i + 1, nil
		}
		if i >= len(s.b) || s.b[i] != ',' {
			return nil, i, s.at(i, `"," or "}"`)
		}
		i = s.space(i + 1)
	}
}

// name decodes a member name, of which b begins with the opening quote and ends with the colon.
func name(b []byte) ([]byte, error) {
	b = b[:bytes.LastIndexByte(b, '"')+1]
	if bytes.IndexByte(b, '\\') < 0 {
		return b[1 : len(b)-1], nil
	}
	s, err := String(b)
	return []byte(s), err
}

var errNoString = errors.New("not a string")

// String decodes a JSON string.
func String(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errNoString
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	s, end, err := Text(raw, 0)
	if err == nil && end < len(raw) {
		return "", errNoString
	}
	return s, err
}

// Text decodes the string that begins at i, and returns where it ends. What is not UTF-8 in it, and half a character, is U+FFFD, as in
// encoding/json. A string in which nothing is escaped shares b's memory.
func Text(b []byte, i int) (text string, end int, err error) {
	var s scanner
	s.reset(b)
	if end, err = s.text(i); err != nil {
		return "", 0, err
	}
	text, _ = jsontext.Text(b, i+1)
	if !utf8.ValidString(text) {
		text = string([]rune(text))
	}
	return text, end, nil
}

// Quote encodes a string as JSON.
func Quote(s string) []byte {
	if harmless(s) { // most are names
		b := make([]byte, 0, len(s)+2)
		return append(append(append(b, '"'), s...), '"')
	}
	b, _ := json.Marshal(s) // cannot fail for a string
	return b
}

// harmless reports whether encoding/json would leave all of s as it is: it escapes what HTML and JavaScript act on, and
// what is not ASCII may be no text.
func harmless(s string) bool { return !harmful.Any(s) }

var harmful = scan.Of(func(c byte) bool {
	return c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&'
})

// Array splits an array into its values as they came, appended to dst. More than limit of them are an error.
func Array(b []byte, dst [][]byte, limit int) ([][]byte, error) {
	var s scanner
	s.reset(b)
	i := s.space(0)
	if i >= len(b) || b[i] != '[' {
		return nil, s.at(i, "an array")
	}
	i = s.space(i + 1)
	if i < len(b) && b[i] == ']' {
		return dst, nil
	}
	for {
		start := s.space(i)
		end, err := s.value(start)
		if err != nil {
			return nil, err
		}
		if len(dst) == limit {
			return nil, fmt.Errorf("array has more than %d values", limit)
		}
		dst = append(dst, b[start:end:end])
		if i = s.space(end); i < len(b) && b[i] == ']' {
			return dst, nil
		}
		if i >= len(b) || b[i] != ',' {
			return nil, s.at(i, `"," or "]"`)
		}
		i++
	}
}

// Depth returns how deep a value nests; b is known to be JSON.
func Depth(b []byte) int {
	var s scanner
	s.reset(b)
	_, _ = s.value(0)
	return s.deepest
}
