// Package drift says what a server offers otherwise than before: two lists of definitions in, changes out, those that
// break its callers first.
package drift

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
)

// Definition is what a server says of one tool, prompt, resource or template.
type Definition struct {
	Kind string          `json:"kind"` // Tool, Prompt, Resource or Template
	Name string          `json:"name"`
	Raw  json.RawMessage `json:"definition"`
}

// Change is one definition that is new, gone, or another one.
type Change struct {
	Kind   string   `json:"kind"`
	Name   string   `json:"name"`
	What   string   `json:"what"`             // Gone, Changed or New
	Breaks []string `json:"breaks,omitempty"` // why calls that were right before fail, in words
	Held   bool     `json:"held,omitempty"`   // no client sees it until its owner accepts it
}

// What a definition may have become.
const (
	Gone    = "gone"
	Changed = "changed"
	New     = "new"
)

// Breaking reports whether callers may have to change.
func (c Change) Breaking() bool { return c.What == Gone || len(c.Breaks) > 0 }

// rank orders changes.
func (c Change) rank() int {
	switch {
	case c.What == Gone:
		return 0
	case c.Breaking():
		return 1
	case c.What == Changed:
		return 2
	}
	return 3
}

// Compare returns what has changed, first what breaks callers.
func Compare(before, now []Definition) []Change {
	list := []Change{}
	was, is := index(before), index(now)
	for at, old := range was {
		next, ok := is[at]
		c := Change{Kind: old.Kind, Name: old.Name}
		switch {
		case !ok:
			c.What = Gone
		case same(old.Raw, next.Raw):
			continue
		default:
			c.What = Changed
			if old.Kind == Tool {
				c.Breaks = narrowed(old.Raw, next.Raw)
			}
		}
		list = append(list, c)
	}
	for at, next := range is {
		if _, ok := was[at]; !ok {
			list = append(list, Change{Kind: next.Kind, Name: next.Name, What: New})
		}
	}
	slices.SortFunc(list, func(a, b Change) int {
		return cmp.Or(a.rank()-b.rank(), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return list
}

func index(list []Definition) map[[2]string]Definition {
	all := make(map[[2]string]Definition, len(list))
	for _, d := range list {
		all[[2]string{d.Kind, d.Name}] = d
	}
	return all
}

// same compares two JSON texts without regard to blanks and the order of members.
func same(a, b []byte) bool {
	x, err := canonical(a)
	y, err2 := canonical(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

func canonical(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v) // which sorts members
}

// schema is the part of a JSON Schema that says which calls are right.
type schema struct {
	Type       any                        `json:"type"`
	Enum       []json.RawMessage          `json:"enum"`
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	More       any                        `json:"additionalProperties"`
	Items      json.RawMessage            `json:"items"`

	Ref   string            `json:"$ref"`
	AnyOf []json.RawMessage `json:"anyOf"`
	OneOf []json.RawMessage `json:"oneOf"`
}

// defs are the schemas that others refer to.
type defs struct {
	Defs map[string]json.RawMessage `json:"$defs"`
	Old  map[string]json.RawMessage `json:"definitions"` // of drafts before 2019-09
}

// alternatives are the schemas of which a value has to fit one. One that cannot be read is none of them.
func (d defs) alternatives(raw []byte, depth int) (list []schema) {
	var s schema
	if depth > maxDepth || json.Unmarshal(raw, &s) != nil {
		return nil
	}
	name, is := strings.CutPrefix(s.Ref, "#/$defs/")
	old, was := strings.CutPrefix(s.Ref, "#/definitions/")
	branches := slices.Concat(s.AnyOf, s.OneOf)
	switch {
	case is:
		branches = []json.RawMessage{d.Defs[name]}
	case was:
		branches = []json.RawMessage{d.Old[old]}
	case s.Ref != "":
		return nil
	case len(branches) == 0:
		return []schema{s}
	}
	for _, b := range branches[:min(len(branches), maxBranches)] {
		list = append(list, d.alternatives(b, depth+1)...)
		list = list[:min(len(list), maxBranches)]
	}
	return list
}

// Bounds of what is said of one tool, and of how deep and wide is looked.
const (
	maxBreaks   = 20
	maxDepth    = 16
	maxBranches = 16
	maxLooks    = 10000
)

// narrowed says why calls fail by a tool's new definition that were right by the old one.
func narrowed(before, now []byte) []string {
	var was, is struct {
		Input json.RawMessage `json:"inputSchema"`
	}
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(now, &is) != nil {
		return nil
	}
	looks := maxLooks
	w := words{looks: &looks}
	if json.Unmarshal(was.Input, &w.before) != nil || json.Unmarshal(is.Input, &w.now) != nil {
		return nil
	}
	w.compare("", was.Input, is.Input, 0)
	return w.list
}

type words struct {
	list        []string
	before, now defs
	looks       *int // that are left
}

func (w *words) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); len(w.list) < maxBreaks && !slices.Contains(w.list, text) {
		w.list = append(w.list, text)
	}
}

// compare compares what may stand at a place. Each alternative of before has to fit one of those of now; if it fits
// none, the one that it nearly fits is told.
func (w *words) compare(at string, before, now []byte, depth int) {
	if depth > maxDepth || len(before) == 0 {
		return
	}
	next := w.now.alternatives(now, depth)
	for _, was := range w.before.alternatives(before, depth) {
		var best []string
		for i, is := range next {
			if *w.looks--; *w.looks < 0 {
				return
			}
			one := words{before: w.before, now: w.now, looks: w.looks}
			if one.plain(at, was, is, depth); i == 0 || len(one.list) < len(best) {
				best = one.list
			}
		}
		for _, text := range best {
			w.say("%s", text)
		}
	}
}

// plain compares two schemas without alternatives.
func (w *words) plain(at string, was, is schema, depth int) {
	if at == "" { // arguments are an object, whatever a schema says
		was.Type, is.Type = nil, nil
	}
	if lost := missing(types(was.Type), types(is.Type)); len(lost) > 0 && is.Type != nil {
		w.say("%s may no longer be %s", place(at), strings.Join(lost, " or "))
	}
	if was.Type == nil && is.Type != nil {
		w.say("%s may only be %s", place(at), strings.Join(types(is.Type), " or "))
	}
	switch lost := missing(values(was.Enum), values(is.Enum)); {
	case len(was.Enum) == 0 && len(is.Enum) > 0:
		w.say("%s may only be one of %d values", place(at), len(is.Enum))
	case len(is.Enum) > 0 && len(lost) > 0:
		w.say("%s may no longer be %s", place(at), strings.Join(lost, ", "))
	}
	for _, name := range missing(is.Required, was.Required) {
		w.say("needs %s", shown(join(at, name)))
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		if next, ok := is.Properties[name]; ok {
			w.compare(join(at, name), was.Properties[name], next, depth+1)
		} else {
			w.say("no longer has %s", shown(join(at, name)))
		}
	}
	if was.More != false && is.More == false && len(is.Properties) > 0 {
		w.say("%s takes no other members any more", place(at))
	}
	if len(was.Items) > 0 && len(is.Items) > 0 {
		w.compare(at+"[]", was.Items, is.Items, depth+1)
	}
}

// missing are those of list that others lacks.
func missing(list, others []string) (lost []string) {
	for _, one := range list {
		if !slices.Contains(others, one) {
			lost = append(lost, one)
		}
	}
	slices.Sort(lost)
	return lost
}

// types are the names of the types that a schema allows; a number may be an integer.
func types(v any) (list []string) {
	switch v := v.(type) {
	case string:
		list = []string{v}
	case []any:
		for _, one := range v {
			if name, ok := one.(string); ok {
				list = append(list, name)
			}
		}
	}
	if slices.Contains(list, "number") {
		list = append(list, "integer")
	}
	return list
}

func values(list []json.RawMessage) []string {
	all := make([]string, len(list))
	for i, v := range list {
		all[i] = shown(string(v))
	}
	return all
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func place(at string) string {
	if at == "" {
		return "the arguments"
	}
	return shown(at)
}

// shown is a stranger's text of one line.
func shown(text string) string {
	const most = 80
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return visible.Reveal(text)
}
