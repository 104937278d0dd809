package main

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/argument"
)

// printToolHelp shows a tool and its flags. Every word of it is the server's, so every word is escaped.
func (c toolsVerb) printToolHelp(t tool, properties []property, known facts) {
	w := c.stdout
	fmt.Fprintf(w, "%s (label %s)\n", c.paint(w, bold, escape(t.id(), oneLine)), escape(t.Meta.Label, oneLine))
	if d := strings.TrimSpace(t.Description); d != "" {
		fmt.Fprintf(w, "\n%s\n", indent(escape(d, keepLines), "  "))
	}
	if rows := known.words(t); rows != nil {
		fmt.Fprintf(w, "\n%s\n", c.paint(w, bold, "The gate goes by:"))
		c.table(w, rows)
	}
	names := listedOf([]tool{t})[0]
	others := escape(strings.Join(append([]string{names.Wire()}, names.Aliases...), ", "), oneLine)
	fmt.Fprintf(w, "\n%s\n  %s\n", c.paint(w, bold, "Also called:"), others)
	fmt.Fprintf(w, "\n%s\n  pfar call %s [FLAGS]\n", c.paint(w, bold, "Usage:"), escape(t.id(), oneLine))
	var rows [][]cell
	var unnamed []string
	for _, p := range properties {
		if p.flag == "" {
			unnamed = append(unnamed, escape(fmt.Sprintf("%q", p.Name), oneLine))
			continue
		}
		rows = append(rows, []cell{{"  --" + p.flag, ""}, {p.takes(), cyan}, {p.remarks(), ""}})
	}
	if len(rows) > 0 {
		fmt.Fprintf(w, "\n%s\n", c.paint(w, bold, "Flags of the tool:"))
		c.table(w, rows)
	}
	if len(unnamed) > 0 {
		fmt.Fprintf(w, "\nOnly by --json: %s\n", strings.Join(unnamed, ", "))
	}
	fmt.Fprintf(w, "\n%s\n", c.paint(w, bold, "Flags of pfar:"))
	own, _ := c.callFlags()
	fmt.Fprint(w, own.FlagUsages())
}

// takes says what the flag's value is.
func (p property) takes() string {
	switch {
	case len(p.Enum) > 0:
		s := strings.Join(argument.EnumTexts(p.Enum), "|")
		if p.Kind == argument.Array {
			s += "..."
		}
		return s
	case p.Kind == argument.Array:
		return p.Item.String() + "..."
	case p.Kind == argument.Boolean:
		return ""
	}
	return p.Kind.String()
}

func (p property) remarks() string {
	s := strings.Join(strings.Fields(p.Description), " ")
	var notes []string
	if p.Required {
		notes = append(notes, "required")
	}
	if len(p.Default) > 0 && string(p.Default) != "null" {
		notes = append(notes, "default "+string(p.Default))
	}
	if len(notes) > 0 {
		s = strings.TrimSpace(s + " (" + strings.Join(notes, ", ") + ")")
	}
	return s
}
