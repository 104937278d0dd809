package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// passing members of a definition are not compared. _meta is where servers put what changes from run to run: times, ids
// of requests, counters; a tool would be held for each of them, and owners learn to accept without a look. Models do not
// read it. icons are for people's eyes, and their URLs may be signed anew each time. Only members of the definition
// itself are meant: an argument that is called icons is one like any other.
var passing = []string{"_meta", "icons"}

// maxDepth bounds the nesting of a definition.
const maxDepth = 512

// canonical returns the definition in a form in which only what matters makes a difference: members in the order of their
// names, strings decoded, no white space, and numbers as they were written (in the manner of RFC 8785, which would round
// them). What two parsers may read differently has no such form, and is an error.
func canonical(raw []byte) ([]byte, error) {
	if err := wellFormed(raw); err != nil {
		return nil, err
	}
	if ms, err := jsonrpc.Object(raw, nil); err == nil {
		raw = ms.Merge(make([]byte, 0, len(raw)), func(name []byte) bool { return !slices.Contains(passing, string(name)) }, nil)
	}
	return jsonrpc.Canonical(make([]byte, 0, len(raw)), raw)
}

// digest is the SHA-256 of a definition in its canonical form, in hexadecimal.
func digest(raw []byte) (string, error) {
	c, err := canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(c)
	return hex.EncodeToString(sum[:]), nil
}

// decode reads a definition, without what is passing. Text that is no text and names that come twice are errors
// (RFC 7493 section 2): of {"description":"harmless","description":"evil"} some programs take the first.
func decode(raw []byte) (any, error) {
	if err := wellFormed(raw); err != nil {
		return nil, err
	}
	d := &decoder{Decoder: json.NewDecoder(bytes.NewReader(raw)), raw: raw}
	d.UseNumber()
	v, err := d.value(0)
	if err == nil && jsonrpc.HalfCharacter(append(d.read, raw[d.passed:]...)) {
		return nil, errors.New(`it has half a character, \ud800 to \udfff alone`)
	}
	return v, err
}

func wellFormed(raw []byte) error {
	switch {
	case !utf8.Valid(raw):
		return errors.New("it is not UTF-8")
	case !json.Valid(raw):
		return errors.New("it is not JSON")
	}
	return nil
}

// decoder reads a definition, past what is passing: whatever stands in there, nobody reads it.
type decoder struct {
	*json.Decoder
	raw    []byte
	read   []byte // of raw, up to what was passed last
	passed int64
}

// pass leaves the value out that comes next.
func (d *decoder) pass() error {
	d.read = append(d.read, d.raw[d.passed:d.InputOffset()]...)
	var value json.RawMessage
	err := d.Decode(&value)
	d.passed = d.InputOffset()
	return err
}

func (d *decoder) value(depth int) (any, error) {
	t, err := d.Token()
	switch {
	case err != nil:
		return nil, err
	case depth > maxDepth:
		return nil, fmt.Errorf("it nests deeper than %d levels", maxDepth)
	case t == json.Delim('{'):
		return d.object(depth + 1)
	case t == json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := d.value(depth + 1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.Token()
		return list, err
	}
	return t, nil
}

func (d *decoder) object(depth int) (any, error) {
	members := map[string]any{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // json.Valid has seen it
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("member %.30q comes twice", name)
		}
		if members[name] = nil; depth == 1 && slices.Contains(passing, name) {
			err = d.pass()
		} else {
			members[name], err = d.value(depth)
		}
		if err != nil {
			return nil, err
		}
	}
	if depth == 1 {
		for _, name := range passing {
			delete(members, name)
		}
	}
	_, err := d.Token()
	return members, err
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, name := range names(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, jsonrpc.Quote(name)...), ':')
			b = appendValue(b, v[name])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, e)
		}
		return append(b, ']')
	case string:
		return append(b, jsonrpc.Quote(v)...)
	case json.Number:
		return append(b, v...)
	}
	return fmt.Append(b, map[any]string{nil: "null", true: "true", false: "false"}[v])
}

func names(m map[string]any) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
