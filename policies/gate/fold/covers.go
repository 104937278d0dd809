package fold

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/pfar/pfar/policies/gate"
)

// Shown is a step of a plan as a person was shown it who has approved the plan. It is kept as JSON for as long as the
// run. The zero value covers nothing.
type Shown struct {
	Verdict   gate.Verdict               `json:"verdict"` // that the fold gave
	Once      bool                       `json:"once,omitempty"`
	Before    gate.Label                 `json:"before"` // of the session, at worst
	Facts     gate.Facts                 `json:"facts"`
	Server    string                     `json:"server"`
	Name      string                     `json:"name"`
	Pin       string                     `json:"pin"`
	Declared  string                     `json:"declared"`            // digest of the server's declaration
	Policy    string                     `json:"policy"`              // digest
	Client    string                     `json:"client"`              // digest of the client's profile and rights
	Arguments map[string]json.RawMessage `json:"arguments,omitempty"` // that the plan gives, each in canonical form
	From      []string                   `json:"from,omitempty"`      // names of arguments that earlier steps may give

	// Or has the values that the plan gives to arguments that are not certain, in canonical form. One that is not in From
	// has one of them, or is not sent.
	Or map[string][]json.RawMessage `json:"or,omitempty"`
}

// Made is a call that the gate asks about, of a step that was shown.
type Made struct {
	Decision  gate.Decision
	Label     gate.Label // of the session before the call
	Server    string
	Name      string
	Pin       string
	Declared  string
	Client    string
	Arguments map[string]json.RawMessage // each in canonical form
	Clean     bool                       // inspectors have looked at the call, and found nothing
}

// Other says in what a call is worse than, or different from, the step that a person has approved, and "" if the yes
// covers it.
func (s *Shown) Other(m *Made) string {
	switch d := &m.Decision; {
	case s.Verdict != gate.Ask || d.Verdict != gate.Ask:
		return "the plan was not approved for this step"
	case s.Once || d.Once:
		return "private data and strangers' text have met: each such call is shown by itself"
	case !m.Clean:
		return "inspectors have found something in it, or could not look at it"
	case s.Server != m.Server || s.Name != m.Name:
		return "another tool is called than was shown"
	case s.Pin == "" || s.Pin != m.Pin:
		return "the tool's definition has changed since the plan was shown"
	case s.Declared != m.Declared:
		return "the server's declaration has changed since the plan was shown"
	case s.Policy == "" || s.Policy != d.Policy:
		return "the policy has changed since the plan was shown"
	case s.Client == "" || s.Client != m.Client:
		return "what the client may do has changed since the plan was shown"
	case !s.Before.Known() || !m.Label.Known() || !m.Label.Below(s.Before):
		return "the session has seen more than the plan showed"
	case !noWorse(d.Facts, s.Facts):
		return "what is known of the tool has become worse since the plan was shown"
	}
	return s.otherArguments(m)
}

// noWorse reports whether facts are as they were shown, or better.
func noWorse(f, shown gate.Facts) bool {
	return f.Audience >= shown.Audience && f.Audience <= gate.Secret &&
		f.Effect >= gate.None && f.Effect <= shown.Effect && f.Output.Known() && f.Output.Below(shown.Output) &&
		f.Forbidden == shown.Forbidden && f.Tier == shown.Tier && (!f.Remembers || shown.Remembers)
}

// otherArguments compares what the plan gave with what is sent. After strangers' text a call that may carry data past
// its audience is covered only if all of it was shown: a stranger may have chosen what earlier steps give.
func (s *Shown) otherArguments(m *Made) string {
	past := m.Label.Integrity != gate.Clean && m.Decision.Data.Confidentiality > m.Decision.Facts.Audience
	if past && len(s.From)+len(s.Or) > 0 {
		return "after strangers' text, this call may carry data past its audience, and its arguments were not shown whole"
	}
	given := make(map[string]bool, len(s.From))
	for _, name := range s.From {
		given[name] = true
	}
	for name, value := range s.Arguments {
		if !bytes.Equal(m.Arguments[name], value) || m.Arguments[name] == nil {
			return "an argument is not as it was shown"
		}
	}
	for name, value := range m.Arguments {
		_, shown := s.Arguments[name]
		same := func(one json.RawMessage) bool { return bytes.Equal(one, value) }
		if !shown && !given[name] && !slices.ContainsFunc(s.Or[name], same) {
			return "it has an argument that was not shown"
		}
	}
	return ""
}
