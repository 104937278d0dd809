package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/pfar/pfar/policies/jsontext"
)

// Bounds on values.
const (
	maxDepth  = 512
	maxNodes  = 1 << 20
	maxDigits = 1 << 10 // of a number, and its exponent's magnitude: 1e1000000000 is a number of 400 MB
)

// decoder reads JSON into nil, bool, json.Number, string, []any and map[string]any. Strings share its text.
type decoder struct {
	s                  string
	maxDepth, maxNodes int
	nodes              int // values read, members' names counted
	depth              int // of the deepest value, the outermost is 1
	tokens             jsontext.Reader
}

func (d *decoder) document() (any, error) {
	d.tokens.Reset(unsafe.Slice(unsafe.StringData(d.s), len(d.s)))
	v, err := d.value(1)
	if err == nil {
		_, err = d.tokens.Next() // the end
	}
	if syntax, ok := errors.AsType[*jsontext.SyntaxError](err); ok {
		err = fmt.Errorf("not JSON at byte %d", syntax.At)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (d *decoder) value(depth int) (any, error) {
	t, err := d.tokens.Next()
	if err != nil {
		return nil, err
	}
	return d.from(t, depth)
}

// from reads the value that begins with a token.
func (d *decoder) from(t jsontext.Token, depth int) (any, error) {
	if depth > d.maxDepth {
		return nil, fmt.Errorf("more than %d levels deep", d.maxDepth)
	}
	d.depth = max(d.depth, depth)
	if d.nodes++; d.nodes > d.maxNodes {
		return nil, fmt.Errorf("more than %d values", d.maxNodes)
	}
	switch t.Kind {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		return d.string(t), nil
	case 't', 'f':
		return t.Kind == 't', nil
	case 'n':
		return nil, nil
	}
	number := d.s[t.Start:t.End]
	if !cheap(number) {
		return nil, errNumber
	}
	return json.Number(number), nil
}

func (d *decoder) object(depth int) (any, error) {
	m := make(map[string]any)
	for {
		t, err := d.tokens.Next()
		if err != nil || t.Kind == '}' {
			return m, err
		}
		name := d.string(t)
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("the member %.100q comes twice", name)
		}
		if m[name], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
}

func (d *decoder) array(depth int) (any, error) {
	list := []any{}
	for {
		t, err := d.tokens.Next()
		if err != nil || t.Kind == ']' {
			return list, err
		}
		v, err := d.from(t, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
}

func (d *decoder) string(t jsontext.Token) string {
	s := jsontext.Text(unsafe.Slice(unsafe.StringData(d.s), len(d.s))[t.Start:t.End])
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s)) // U+FFFD for each byte that is not UTF-8, as encoding/json reads it
}

var errNumber = fmt.Errorf("a number of more than %d digits, or with a greater exponent", maxDigits)

// cheap reports whether a number is cheap to calculate with.
func cheap(number string) bool {
	digits, exponent := number, ""
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		digits, exponent = number[:i], strings.TrimLeft(number[i+1:], "+-0")
	}
	e, err := strconv.Atoi("0" + exponent)
	return len(digits) <= maxDigits && err == nil && e <= maxDigits
}
