package jsonrpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/jsontext"
)

const (
	maxCanonical = 512       // levels of what has a canonical form
	maxMoved     = 256 << 20 // bytes that are put into their places, level by level: 16 MiB in 500 levels take seconds
)

// Canonical appends a value to dst in the form in which only what matters makes a difference: members in the order of
// their names' bytes, strings decoded, no white space, and numbers as they were written, where RFC 8785 would round
// them. So equal forms are the same to every parser; 1 and 1.0 are not equal, for not every parser takes them for the
// same. What two parsers may read differently has no such form, and is an error: names that come twice, bytes that are
// not UTF-8, half a character.
func Canonical(dst, b []byte) ([]byte, error) { return rewritten(dst, b, true) }

// Compact is Canonical with the members in the order in which they stand: white space and escapes say nothing, and in
// them anything could be said.
func Compact(dst, b []byte) ([]byte, error) { return rewritten(dst, b, false) }

func rewritten(dst, b []byte, sorted bool) ([]byte, error) {
	if !utf8.Valid(b) {
		return nil, errors.New("the text is not UTF-8")
	}
	c := canon{text: b, sorted: sorted}
	c.Reset(b)
	t, err := c.Next()
	if err == nil {
		dst, err = c.value(dst, t)
	}
	if err == nil {
		_, err = c.Next() // the end
	}
	if err != nil {
		return nil, err
	}
	return dst, nil
}

// canon is one value on its way into its form.
type canon struct {
	jsontext.Reader
	text   []byte
	sorted bool // members are put in order
	moved  int  // bytes, each as often as it was
}

func (c *canon) value(dst []byte, t jsontext.Token) ([]byte, error) {
	switch {
	case c.Depth() > maxCanonical:
		return nil, fmt.Errorf("the value nests deeper than %d levels", maxCanonical)
	case t.Kind == '{':
		return c.object(dst)
	case t.Kind == '[':
		return c.array(dst)
	case t.Kind == '"':
		text, err := c.decoded(t)
		return append(dst, Quote(text)...), err
	}
	return append(dst, c.text[t.Start:t.End]...), nil
}

func (c *canon) array(dst []byte) ([]byte, error) {
	dst = append(dst, '[')
	for first := true; ; first = false {
		t, err := c.Next()
		if err != nil {
			return nil, err
		}
		if t.Kind == ']' {
			return append(dst, ']'), nil
		}
		if !first {
			dst = append(dst, ',')
		}
		if dst, err = c.value(dst, t); err != nil {
			return nil, err
		}
	}
}

// object orders the members by their names, if only to find equal ones, which are neighbours then.
func (c *canon) object(dst []byte) ([]byte, error) {
	members, err := c.members()
	if err != nil {
		return nil, err
	}
	ordered := members
	if !c.sorted {
		ordered = slices.Clone(members)
	}
	slices.SortFunc(ordered, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for k := 1; k < len(ordered); k++ {
		if ordered[k-1].name == ordered[k].name {
			return nil, fmt.Errorf("member %.100q comes twice", ordered[k].name)
		}
	}
	dst = append(dst, '{')
	for k, m := range members {
		if k > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, Quote(m.name)...), ':'), m.value...)
	}
	return append(dst, '}'), nil
}

// member is one with its value in its form.
type member struct {
	name  string
	value []byte
}

func (c *canon) members() (all []member, err error) {
	for {
		t, err := c.Next()
		if err != nil || t.Kind == '}' {
			return all, err
		}
		var m member
		if m.name, err = c.decoded(t); err != nil {
			return nil, err
		}
		if t, err = c.Next(); err != nil {
			return nil, err
		}
		if m.value, err = c.value(nil, t); err != nil {
			return nil, err
		}
		if c.moved += len(m.value); c.moved > maxMoved {
			return nil, errors.New("the value has too much in too many levels")
		}
		all = append(all, m)
	}
}

// decoded is a string's text, good beyond the next.
func (c *canon) decoded(t jsontext.Token) (string, error) {
	text, whole := jsontext.Whole(c.text[t.Start:t.End])
	if !whole {
		return "", errors.New(`it has half a character, \ud800 to \udfff alone`)
	}
	return text, nil
}
