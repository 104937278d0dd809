package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
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
	i                  int
	maxDepth, maxNodes int
	nodes              int // values read, members' names counted
	depth              int // of the deepest value, the outermost is 1
}

func (d *decoder) document() (any, error) {
	v, err := d.value(1)
	if err != nil {
		return nil, err
	}
	if d.space(); d.i < len(d.s) {
		return nil, d.malformed()
	}
	return v, nil
}

func (d *decoder) malformed() error { return fmt.Errorf("it is not JSON at byte %d", d.i) }

func (d *decoder) space() {
	for d.i < len(d.s) {
		switch d.s[d.i] {
		case ' ', '\t', '\r', '\n':
			d.i++
		default:
			return
		}
	}
}

// next skips to the next token and returns its first byte, 0 at the end.
func (d *decoder) next() byte {
	d.space()
	if d.i < len(d.s) {
		return d.s[d.i]
	}
	return 0
}

func (d *decoder) value(depth int) (any, error) {
	if depth > d.maxDepth {
		return nil, fmt.Errorf("it nests more than %d levels deep", d.maxDepth)
	}
	d.depth = max(d.depth, depth)
	if d.nodes++; d.nodes > d.maxNodes {
		return nil, fmt.Errorf("it has more than %d values", d.maxNodes)
	}
	switch c := d.next(); c {
	case '{':
		return d.object(depth)
	case '[':
		return d.array(depth)
	case '"':
		return d.string()
	case 't':
		return true, d.literal("true")
	case 'f':
		return false, d.literal("false")
	case 'n':
		return nil, d.literal("null")
	}
	return d.number()
}

func (d *decoder) literal(word string) error {
	if !strings.HasPrefix(d.s[d.i:], word) {
		return d.malformed()
	}
	d.i += len(word)
	return nil
}

func (d *decoder) object(depth int) (any, error) {
	d.i++
	m := make(map[string]any)
	if d.next() == '}' {
		d.i++
		return m, nil
	}
	for {
		if d.next() != '"' {
			return nil, d.malformed()
		}
		name, err := d.string()
		if err != nil {
			return nil, err
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("the member %.100q comes twice", name)
		}
		if d.next() != ':' {
			return nil, d.malformed()
		}
		d.i++
		if m[name], err = d.value(depth + 1); err != nil {
			return nil, err
		}
		if more, err := d.more('}'); !more {
			return m, err
		}
	}
}

func (d *decoder) array(depth int) (any, error) {
	d.i++
	list := []any{}
	if d.next() == ']' {
		d.i++
		return list, nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if more, err := d.more(']'); !more {
			return list, err
		}
	}
}

// more reads the comma before another element, or the end of them.
func (d *decoder) more(end byte) (bool, error) {
	switch d.next() {
	case ',':
		d.i++
		return true, nil
	case end:
		d.i++
		return false, nil
	}
	return false, d.malformed()
}

// string reads a string. It looks for the end with two scans that the processor does fast: most strings have no
// escape, and long ones are what costs.
func (d *decoder) string() (string, error) {
	start := d.i + 1
	end := strings.IndexByte(d.s[start:], '"')
	if end < 0 {
		return "", d.malformed()
	}
	text := d.s[start : start+end]
	if strings.IndexByte(text, '\\') < 0 {
		d.i = start + end + 1
		return validText(text), nil
	}
	text, end, err := jsonrpc.Text(unsafe.Slice(unsafe.StringData(d.s), len(d.s)), d.i)
	if err != nil {
		return "", d.malformed()
	}
	d.i = end
	return text, nil
}

var errNumber = fmt.Errorf("it has a number of more than %d digits, or a greater exponent", maxDigits)

func (d *decoder) number() (any, error) {
	start := d.i
	if err := d.numeral(); err != nil {
		return nil, err
	}
	return json.Number(d.s[start:d.i]), nil
}

// numeral reads a number that is cheap to calculate with.
func (d *decoder) numeral() error {
	start := d.i
	if d.i < len(d.s) && d.s[d.i] == '-' {
		d.i++
	}
	first := d.i
	n := d.digits()
	if n == 0 || n > 1 && d.s[first] == '0' {
		return d.malformed()
	}
	if d.i < len(d.s) && d.s[d.i] == '.' {
		d.i++
		if d.digits() == 0 {
			return d.malformed()
		}
	}
	if d.i-start > maxDigits {
		return errNumber
	}
	if d.i < len(d.s) && d.s[d.i]|0x20 == 'e' {
		return d.exponent()
	}
	return nil
}

func (d *decoder) exponent() error {
	d.i++
	if d.i < len(d.s) && (d.s[d.i] == '+' || d.s[d.i] == '-') {
		d.i++
	}
	start := d.i
	if d.digits() == 0 {
		return d.malformed()
	}
	e := 0
	for _, c := range d.s[start:d.i] {
		if e = e*10 + int(c-'0'); e > maxDigits {
			return errNumber
		}
	}
	return nil
}

func (d *decoder) digits() int {
	start := d.i
	for d.i < len(d.s) && '0' <= d.s[d.i] && d.s[d.i] <= '9' {
		d.i++
	}
	return d.i - start
}

// validText is what encoding/json reads: U+FFFD for each byte that is not UTF-8.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
