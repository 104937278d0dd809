package grant

import (
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/jsontext"
	"github.com/pfar/pfar/units/operator"
)

// What a call may hold that a grant covers. A person sees all that is longer.
const (
	maxText      = 256  // bytes of one text or number, as it is written
	maxArguments = 1024 // bytes of all of them
)

// bound is all that a grant holds for, beside what it says to people. If anything of it changes, the grant is void.
type bound struct {
	Proof   string     `json:"proof,omitempty"`
	Pin     string     `json:"pin,omitempty"` // of the one tool
	Policy  string     `json:"policy"`
	Profile string     `json:"profile"`
	Facts   gate.Facts `json:"facts"` // of the one tool, without stains
}

// question is what the gate asked when the grant was given. The grant answers no other question: not after the session
// has seen more, nor where another row or rule asks.
type question struct {
	Label gate.Label `json:"label"` // at most
	Row   string     `json:"rule"`
	Fired []string   `json:"fired"`
}

// grant is one in memory. The zero value covers nothing.
type grant struct {
	operator.Grant
	bound
	question
}

// boundTo is what a grant for the like of a call is bound to.
func boundTo(q *operator.Request, public bool) bound {
	b := bound{Proof: q.Proof, Policy: q.Policy, Profile: q.Decision.Profile}
	if !public {
		b.Pin, b.Facts = q.Pin, q.Plain
	}
	return b
}

// about reports whether a call is one of those that a grant was given for, as far as names say.
func (g *grant) about(q *operator.Request) bool {
	switch {
	case g.ID == "" || g.Client != q.Client || g.Session != q.Session:
		return false
	case g.Public:
		return publicRead(q)
	}
	return g.Server == q.Server && g.Name == q.Name
}

// void reports whether what the grant is bound to has changed.
func (g *grant) void(q *operator.Request) bool { return g.bound != boundTo(q, g.Public) }

// other says in what a call is not one that the grant was given for, and "" if it is one. Whether any grant may answer
// for the call, how much is left of this one, and where the call's words are from, is checked beside.
func (g *grant) other(q *operator.Request) string {
	switch {
	case !g.about(q):
		return "the grant is for other calls"
	case g.void(q):
		return "the tool, the policy or the client has changed since the grant was given"
	case !q.Decision.Data.Below(g.Label):
		return "the session has seen more since the grant was given"
	case q.Decision.Rule != g.Row || !slices.Equal(q.Decision.Fired, g.Fired):
		return "another rule asks than when the grant was given"
	}
	return ""
}

// grantable says why no grant answers for a call, whatever was given, and "" if one may.
func grantable(q *operator.Request) string {
	switch {
	case q.Method != string(mcp.MethodToolsCall) || q.Plain == (gate.Facts{}):
		return "only calls of tools can be granted"
	case q.Decision.Once:
		return "it could carry private data out after strangers' text came in: you see each such call"
	case len(q.Findings) > 0:
		return "an inspector found something in it"
	case q.Decision.Verdict != gate.Ask:
		return "the gate does not ask about this call"
	}
	return long(q.Arguments)
}

// publicRead reports whether a call only reads, and from where everybody can: by the word of the owner, a policy or a
// shipped service. A server that says so of itself does not count.
func publicRead(q *operator.Request) bool {
	f := q.Plain
	return f.Effect == gate.None && q.Facts.Output.Confidentiality == gate.Public &&
		vouched(f.From.Effect) && vouched(f.From.Confidentiality)
}

func vouched(from string) bool { return from != "" && from != "hint" && from != "unknown" }

// long says what is too long in arguments, "" if nothing is.
func long(arguments []byte) string {
	if len(arguments) > maxArguments {
		return fmt.Sprintf("its arguments have %d bytes, and a grant covers at most %d", len(arguments), maxArguments)
	}
	var r jsontext.Reader
	r.Reset(arguments)
	for {
		switch t, err := r.Next(); {
		case err != nil:
			return "its arguments are not JSON"
		case t.Kind == jsontext.End:
			return ""
		case t.End-t.Start > maxText:
			return fmt.Sprintf("a text in its arguments has %d bytes, and a grant covers at most %d", t.End-t.Start, maxText)
		}
	}
}
