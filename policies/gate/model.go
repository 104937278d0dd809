package gate

import (
	"maps"
	"slices"

	"github.com/pfar/pfar/policies/inspector"
)

// Model is a model that the owner has declared for flows and pfar ask. The zero value may be asked for nothing.
type Model struct {
	inspector.External
	Plans    bool            `json:"plans,omitempty"`    // it may write the plans of pfar ask
	Answers  bool            `json:"answers,omitempty"`  // it may put results into words for pfar ask
	Nodes    bool            `json:"nodes,omitempty"`    // flows may ask it
	Local    bool            `json:"local,omitempty"`    // clients on the Unix socket alone may ask it
	Audience Confidentiality `json:"audience,omitempty"` // the most secret that may be sent to it; 0: nothing may
}

// Use is what a model is asked for. The zero value is nothing.
type Use uint8

const (
	ForPlan   Use = iota + 1 // to write a plan from the owner's words
	ForAnswer                // to put results into words
	ForNode                  // by a step of a flow
)

// Serves reports whether the owner lets a model be asked for that.
func (m *Model) Serves(u Use) bool {
	switch u {
	case ForPlan:
		return m.Plans
	case ForAnswer:
		return m.Answers
	case ForNode:
		return m.Nodes
	}
	return false
}

// Uses are the words for all that a model may be asked for.
func (m *Model) Uses() []string {
	uses := []string{}
	for i, word := range []string{"plan", "answer", "nodes"} {
		if m.Serves(Use(i + 1)) {
			uses = append(uses, word)
		}
	}
	return uses
}

// Model returns the model of a name; nil: there is none.
func (p *Policy) Model(name string) *Model {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.Models, func(m Model) bool { return m.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Models[i]
}

// ModelFor returns the first model by name that may be asked for that; nil: there is none.
func (p *Policy) ModelFor(u Use) *Model {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.Models, func(m Model) bool { return m.Serves(u) })
	if i < 0 {
		return nil
	}
	return &p.Models[i]
}

// ModelServer is the name under which models are judged and recorded, as if each were a tool of one server. No server
// can have it.
const ModelServer = "pfar.model"

// Word is what the owner's file says of a model, for the gate. Its answer is a stranger's text; what it was asked is in
// the session that gets the answer, whose label is no lower.
func (m *Model) Word() Word {
	return Word{
		Tool: Pattern(m.Name), Confidentiality: Public, Integrity: Raw, Audience: m.Audience, Effect: None,
		From: "model: " + m.Name,
	}
}

// ModelsOf are models in the order of their names, as a Policy has them.
func ModelsOf(all map[string]Model) []Model {
	var list []Model
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}
