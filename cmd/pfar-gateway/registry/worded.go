package registry

import (
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// worded applies the owner's words on tools: which of them read, which no client has, and what clients see in place of
// the server's name and description. taken are the names that it
// does not apply, because another tool has them. Pins and
// the gate go by the server's own name and definition.
func worded(server string, tools []Item, owner map[string]handover.Tool) (list []Item, taken []string) {
	known := make(names)
	for _, i := range tools {
		_ = known.take(Tools, server, i.Name) // a tool that is switched off keeps its name
	}
	for _, i := range tools {
		word := owner[i.Name]
		if !enabled(owner, i.Name) {
			continue
		}
		i.Reads = i.semantics(owner) == "read"
		if word.Rename != "" && word.Rename != i.Name {
			if known.take(Tools, server, word.Rename) == nil {
				i.shown = word.Rename
			} else {
				taken = append(taken, word.Rename)
			}
		}
		if word.Description != "" {
			i.describe(word.Description)
		}
		list = append(list, i)
	}
	return list, taken
}

// enabled reports whether clients have a tool. Of the blocks that match, the one that says most of the name counts, and
// of two such blocks the one that switches it off.
func enabled(owner map[string]handover.Tool, name string) bool {
	on, best := true, -1
	for p, word := range owner {
		pattern := gate.Pattern(p)
		if word.Enabled == nil || !pattern.Match(name) {
			continue
		}
		switch weight := pattern.Weight(); {
		case weight > best:
			on, best = *word.Enabled, weight
		case weight == best:
			on = on && *word.Enabled
		}
	}
	return on
}
