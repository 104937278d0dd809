package form

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/argument"
	"github.com/pfar/pfar/policies/flow"
)

// give notes the value of a flag.
func (d *decoder) give(at flow.At, step string, p argument.Property, text string, given map[string][]json.RawMessage) {
	value, err := p.Parse(text)
	switch {
	case err != nil:
		d.problem(at, step, fmt.Sprintf("invalid value %s of --%s: %v", quote(text), p.Name, err), "")
	case p.Kind != argument.Array && given[p.Name] != nil:
		d.problem(at, step, fmt.Sprintf("duplicate flag --%s", p.Name), "Keep one of them.")
	default:
		given[p.Name] = append(given[p.Name], value)
	}
}

// together is the value of a port that flags give.
func together(port flow.Port, values []json.RawMessage) json.RawMessage {
	if property(port).Kind != argument.Array {
		return values[0]
	}
	b, _ := json.Marshal(values) // each was read
	return b
}

func with(m map[string]json.RawMessage, name string, value json.RawMessage) map[string]json.RawMessage {
	if m == nil {
		m = map[string]json.RawMessage{}
	}
	m[name] = value
	return m
}

// property reads a port as an argument of a tool is read.
func property(p flow.Port) argument.Property {
	if p.Schema == nil {
		return argument.Property{Name: p.Name, Text: true}
	}
	return argument.Of(p.Name, p.Schema)
}

// alike reports whether a flag is a name, - and _ alike.
func alike(name, flag string) bool { return dashed(name) == dashed(flag) }

func dashed(s string) string { return strings.ReplaceAll(s, "_", "-") }

// short is a word without quotes that a problem repeats.
func short(s string) string {
	q := quote(s)
	return q[1 : len(q)-1]
}

func flagAdvice(flag string, ports []flow.Port) string {
	var names []string
	for _, p := range ports {
		names = append(names, "--"+dashed(p.Name))
	}
	if len(names) == 0 {
		return "Remove it: the node has no inputs or params."
	}
	return meant("--"+flag, names)
}
