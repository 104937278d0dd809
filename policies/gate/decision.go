// Package gate decides about calls: what a session has seen, and what is known of a tool, in; a verdict with its reason
// out.
package gate

// Verdict is what becomes of a call. The least value is the strictest, so that the strictest of many is their minimum;
// the zero value denies.
type Verdict uint8

const (
	Deny    Verdict = iota
	Ask             // a human decides
	Inspect         // it passes if inspectors find nothing; else, or where there are none, a human decides
	Allow
)

func (v Verdict) String() string               { return word(verdicts, v) }
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v *Verdict) UnmarshalText(b []byte) error { return read(verdicts, b, v) }

// Session is what a decision needs of a client's session. The zero value is one that nobody knows, which denies.
type Session struct {
	Label   Label    `json:"label"`             // of all that it may have seen: joined at dispatch
	Profile string   `json:"profile"`           // of its client: which table decides
	Sources []Source `json:"sources,omitempty"` // all that contributed to Label, each server once; nil: not known, and no flow applies
}

// Source is what one server contributed to a session's label.
type Source struct {
	Server string `json:"server"` // "": it is not known which; no flow is from there
	Label  Label  `json:"label"`
}

// Call is what a decision needs of a call. The zero value denies.
type Call struct {
	Client    string    `json:"client"`
	Server    string    `json:"server"`
	Name      string    `json:"name"`   // of the tool or prompt, as the server has it, or the resource's URI
	Method    string    `json:"method"` // "tools/call", …
	Pinned    bool      `json:"pinned"` // the owner has accepted its definition, and it has not changed since
	Schema    bool      `json:"schema"` // its schema is known, and the arguments are as it wants them
	Audit     bool      `json:"audit"`  // the record of this call is open
	Facts     Facts     `json:"facts"`
	Arguments Arguments `json:"arguments"`
}

// Arguments is what has been found in a call's arguments.
type Arguments struct {
	FreeText        bool            `json:"free_text"`         // some value is text that the schema does not bound to an enumeration, a number, a boolean, a date or an identifier
	Vault           string          `json:"vault,omitempty"`   // name of a secret of the vault that they hold, in any encoding
	Address         string          `json:"address,omitempty"` // why one of them is a URL that the server may not open: see Astray
	Pattern         string          `json:"pattern,omitempty"` // kind of secret that something in them looks like
	Confidentiality Confidentiality `json:"confidentiality"`   // of what they hold, if it is known to be more than the session's; else 0
}

// Decision is a verdict and all that led to it. What it points to is shared with other decisions: it is only read.
type Decision struct {
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason"`            // one sentence, for people
	Rule    string   `json:"rule"`              // the one that made the verdict: "strict.hcl:14: raw, fits, irreversible"
	Fired   []string `json:"fired"`             // all rules that said something, strictest first
	Once    bool     `json:"once,omitempty"`    // an approval of it cannot be remembered (the trifecta row)
	Flows   []string `json:"flows,omitempty"`   // the declassifications without which it would be stricter
	Inspect bool     `json:"inspect,omitempty"` // inspectors look at it, also where a human decides, who sees what they found
	Data    Label    `json:"data"`              // of what the call carries: the session's, joined with the arguments'
	Facts   Facts    `json:"facts"`             // that it was decided by
	Profile string   `json:"profile"`
	Policy  string   `json:"policy"` // its digest; "": there is none
}
