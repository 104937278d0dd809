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

// LookAlike returns the first name that is one of known, which are ASCII, but for the case of its letters:
// encoding/json and others take it for the same, so that a check here and a program behind it would see two different
// messages.
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
	var r jsontext.Reader
	r.Reset(b)
	if t, err := r.Next(); err != nil || t.Kind != '{' {
		return nil, not("an object", err)
	}
	for {
		t, err := r.Next()
		switch {
		case err != nil:
			return nil, err
		case t.Kind == '}':
			if _, err = r.Next(); err != nil { // the end
				return nil, err
			}
			return dst, nil
		case len(dst) == maxMembers:
			return nil, fmt.Errorf("object has more than %d members", maxMembers)
		}
		m := Member{Name: name(b[t.Start:t.End]), NameStart: t.Start, raw: b}
		if dst.Index(string(m.Name)) >= 0 {
			return nil, fmt.Errorf("member %.100q comes twice", m.Name)
		}
		if t, err = r.Next(); err != nil {
			return nil, err
		}
		m.ValueStart = t.Start
		if m.ValueEnd, m.Depth, err = r.Skip(t); err != nil {
			return nil, err
		}
		dst = append(dst, m)
	}
}

func not(what string, err error) error {
	if err == nil {
		err = errors.New("not " + what)
	}
	return err
}

// name decodes a string in memory of its own, or in that of the text.
func name(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(valid(jsontext.Text(quoted)))
}

// valid is what encoding/json reads: U+FFFD for each byte that is not UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

var errNoString = errors.New("not a string")

// String decodes a JSON string. What is not UTF-8 in one with escapes, and half a character, is U+FFFD, as in
// encoding/json.
func String(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errNoString
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var r jsontext.Reader
	r.Reset(raw)
	t, err := r.Next()
	if err != nil {
		return "", err
	}
	if t.End < len(raw) {
		return "", errNoString
	}
	return valid(jsontext.Text(raw)), nil
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
	var r jsontext.Reader
	r.Reset(b)
	if t, err := r.Next(); err != nil || t.Kind != '[' {
		return nil, not("an array", err)
	}
	for {
		t, err := r.Next()
		switch {
		case err != nil:
			return nil, err
		case t.Kind == ']':
			return dst, nil
		}
		end, _, err := r.Skip(t)
		if err != nil {
			return nil, err
		}
		if len(dst) == limit {
			return nil, fmt.Errorf("array has more than %d values", limit)
		}
		dst = append(dst, b[t.Start:end:end])
	}
}

// Depth returns how deep a value nests; b is known to be JSON.
func Depth(b []byte) int {
	var r jsontext.Reader
	r.Reset(b)
	t, _ := r.Next()
	_, depth, _ := r.Skip(t)
	return depth
}
