package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// facts are what the gateway knows of tools, by their ids; nil: it does not tell this user.
type facts map[string]operator.ToolFacts

// facts asks the gateway. Who may not ask sees the tools without them.
func (c toolsVerb) facts(ctx context.Context) facts {
	var list []operator.ToolFacts
	if err := c.askOperator(ctx, http.MethodGet, "/facts", nil, &list); err != nil {
		return nil
	}
	known := facts{}
	for _, k := range list {
		known[k.Server+"."+k.Tool] = k
	}
	return known
}

// factColumns is how many columns are left out where there is little room: they are the last ones.
const factColumns = 3

func (f facts) heading() []cell {
	if f == nil {
		return heading("DOES", "LABEL")
	}
	return heading("DOES", "PIN", "FROM", "OUTPUT", "AUDIENCE", "EFFECT")
}

func (f facts) cells(t tool) []cell {
	if f == nil {
		return []cell{{f.does(t), ""}, {t.Meta.Label, ""}}
	}
	known := f.of(t)
	return []cell{
		{f.does(t), ""}, {f.pin(t), ""}, {origin(known.From), ""},
		{known.Output.String(), ""}, {known.Audience.String(), ""}, {known.Effect.String(), ""},
	}
}

// does says whether a call reads or writes: as the gate assumes, or else as clients are told.
func (f facts) does(t tool) string {
	if f != nil && f.of(t).Effect == gate.None || f == nil && t.Meta.Semantics == "read" {
		return "read"
	}
	return "write"
}

// pin says who has accepted the definition.
func (f facts) pin(t tool) string {
	if t.Meta.Held != "" {
		return "held, " + t.Meta.Held
	}
	pin := cmp.Or(f[t.id()].Pin, "unreviewed")
	if f[t.id()].Pure {
		pin += ", " + flowSafe
	}
	return pin
}

// of are the facts of a tool. The gate assumes the worst of a tool that the gateway does not name.
func (f facts) of(t tool) gate.Facts {
	if known, ok := f[t.id()]; ok {
		return known.Facts
	}
	return gate.Worst
}

// origin is who says the facts, each once, in the order output, audience, effect.
func origin(from gate.From) string {
	var who []string
	for _, s := range []string{from.Confidentiality, from.Integrity, from.Audience, from.Effect} {
		if s, _, _ = strings.Cut(s, ":"); !slices.Contains(who, s) {
			who = append(who, s)
		}
	}
	return strings.Join(who, ", ")
}

// with are the tools' definitions, in whose _meta stands what is known of them.
func (f facts) with(tools []tool) []json.RawMessage {
	list := make([]json.RawMessage, len(tools))
	for i, t := range tools {
		list[i] = t.raw
		known, ok := f[t.id()]
		var whole, meta map[string]json.RawMessage
		if !ok || json.Unmarshal(t.raw, &whole) != nil || json.Unmarshal(whole["_meta"], &meta) != nil {
			continue
		}
		meta["pfar/facts"], _ = json.Marshal(known.Facts) // words
		whole["_meta"], _ = json.Marshal(meta)            // was JSON
		list[i], _ = json.Marshal(whole)
	}
	return list
}

// words is a line for each fact of a tool, with who says so.
func (f facts) words(t tool) [][]cell {
	if f == nil {
		return nil
	}
	return factRows("  ", f.of(t))
}

// factRows is a line for each fact, with who says so.
func factRows(head string, known gate.Facts) [][]cell {
	from := func(s string) cell { return cell{"(" + s + ")", ""} }
	return [][]cell{
		{{head + "output", ""}, {known.Output.Confidentiality.String(), cyan}, from(known.From.Confidentiality)},
		{{head + "written by", ""}, {known.Output.Integrity.String(), cyan}, from(known.From.Integrity)},
		{{head + "audience", ""}, {known.Audience.String(), cyan}, from(known.From.Audience)},
		{{head + "effect", ""}, {known.Effect.String(), cyan}, from(known.From.Effect)},
	}
}
