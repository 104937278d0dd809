package pins

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// left out of what is compared: _meta is where servers put what changes from run to run, and pfar passes no icon on that
// could say or do anything.
var passing = []string{"_meta", "icons"}

// canonical returns the definition in a form in which only what matters makes a difference: members in the order of their
// names, strings decoded, no white space, and numbers as they were written (in the manner of RFC 8785, which would round
// them). Members of the definition itself that are only passing are left out.
func canonical(raw []byte) ([]byte, error) {
	v, err := decode(raw)
	if err != nil {
		return nil, err
	}
	if top, ok := v.(map[string]any); ok {
		for _, name := range passing {
			delete(top, name)
		}
	}
	return appendValue(nil, v), nil
}

func decode(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("reading a definition: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("reading a definition: there is something behind it")
	}
	return v, nil
}

func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, name := range names(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, name), ':')
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
		return appendText(b, v)
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

func appendText(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // cannot fail for a string
	return append(b, text...)
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

// show prints a definition for people: canonical, indented, with the lines of long texts apart, and nothing in it that a
// terminal acts on or that is not to be seen.
func show(raw []byte) []string {
	v, err := decode(raw)
	if err != nil {
		return []string{"(it cannot be read)"}
	}
	if top, ok := v.(map[string]any); ok {
		for _, name := range passing {
			delete(top, name)
		}
	}
	return strings.Split(string(appendShown(nil, v, "")), "\n")
}

func appendShown(b []byte, v any, indent string) []byte {
	inner := indent + "  "
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return append(b, "{}"...)
		}
		b = append(b, '{')
		for i, name := range names(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(append(b, '\n'), inner...), visible(name)...)
			b = appendShown(append(b, ": "...), v[name], inner)
		}
		return append(append(append(b, '\n'), indent...), '}')
	case []any:
		if len(v) == 0 {
			return append(b, "[]"...)
		}
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendShown(append(append(b, '\n'), inner...), e, inner)
		}
		return append(append(append(b, '\n'), indent...), ']')
	case string:
		for i, line := range strings.SplitAfter(v, "\n") {
			if i > 0 && line != "" {
				b = append(append(append(b, '\n'), inner...), "  "...)
			}
			b = append(b, visible(line)...)
		}
		return b
	}
	return appendValue(b, v)
}
