package registry

import (
	"encoding/json"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// semantics says whether a tool reads or writes, by what its server claims only if that has been reviewed.
func (i Item) semantics(owner map[string]handover.Tool) string {
	var annotations []byte
	if !i.Strange() {
		annotations = i.Member("annotations")
	}
	return semantics(annotations, wordOn(owner, i.Name).Semantics)
}

// semantics says whether a tool reads or writes. The owner's word counts; else a tool reads only if its server says
// that it does and does not also say that it destroys. Everything else writes: hints come from the confined server.
func semantics(annotations []byte, owner string) string {
	if owner == "read" || owner == "write" {
		return owner
	}
	var hints struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
	}
	if json.Unmarshal(annotations, &hints) != nil || hints.ReadOnly == nil || !*hints.ReadOnly ||
		hints.Destructive != nil && *hints.Destructive {
		return "write"
	}
	return "read"
}

// wordOn is the owner's word on a tool: of names with * the one that says most of it counts.
func wordOn(tools map[string]handover.Tool, name string) handover.Tool {
	t, ok := tools[name]
	if ok && t.Semantics != "" {
		return t
	}
	best := -1
	for p, like := range tools {
		weight := gate.Pattern(p).Weight()
		if like.Semantics == "" || !gate.Pattern(p).Match(name) || weight < best || weight == best && like.Semantics != "write" {
			continue
		}
		best, t.Semantics = weight, like.Semantics
	}
	return t
}
