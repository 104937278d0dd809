package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/inspector"
)

// Policy is all that decisions are made by. It is plain data; Compile makes it ready, and one that is not ready denies
// everything, as nil does. Marshalled and unmarshalled it is the same, and ready.
type Policy struct {
	Digest     string               `json:"digest"` // SHA-256 over the rest, in hexadecimal: Compile fills it in
	Profiles   map[string]Profile   `json:"profiles"`
	Rules      []Rule               `json:"rules,omitempty"`
	Flows      []Flow               `json:"flows,omitempty"`
	Services   map[string]Service   `json:"services,omitempty"`   // shipped, by name
	Words      []Word               `json:"words,omitempty"`      // of the folder of policies: about servers and services
	Inspectors []inspector.External `json:"inspectors,omitempty"` // of the folder of policies, as Declared returns them
	Notices    []inspector.External `json:"notices,omitempty"`    // likewise: who is told that calls wait
	Models     []Model              `json:"models,omitempty"`     // of the folder models.d, by name
	Relaxed    []Relaxation         `json:"relaxed,omitempty"`    // what it allows beyond what is shipped, for audit

	tables map[string]*table // by profile; nil: not compiled
}

// Profile is a decision table and what goes with it; each client has one.
type Profile struct {
	Description string   `json:"description,omitempty"`
	At          string   `json:"at"`                   // where it stands: "strict.hcl:3"
	Inspect     Verdict  `json:"inspect"`              // what becomes of the verdict inspect: Inspect, or Ask, as in strict
	Inspectors  []string `json:"inspectors,omitempty"` // who have to have looked, beside the one that is built in (Policy.Inspectors)
	Clean       bool     `json:"clean,omitempty"`      // only tools whose output is clean may be called
	Tiers       []string `json:"tiers,omitempty"`      // "browser/vision": further ones than those that everybody has
	Keep        bool     `json:"keep,omitempty"`       // audit keeps what calls carry and what is withheld, not only the digests
	Rows        []Row    `json:"rows"`                 // in their order: see Row.Relax. A case that no row is about is denied
}

// Row is a line of a decision table.
type Row struct {
	Sessions []Integrity `json:"sessions"`        // that it is about
	Data     Data        `json:"data"`            // that it is about
	Outcomes [3]Outcome  `json:"outcomes"`        // for the effects none, reversible and irreversible
	Relax    string      `json:"relax,omitempty"` // why it takes the place of the rows before it; "": the strictest of all counts
	At       string      `json:"at"`
}

// Outcome is what a row says of an effect. The zero value denies.
type Outcome struct {
	Verdict Verdict
	Once    bool // with Ask: a human's answer is not remembered
}

// outcomes are the words for them, strictest first.
var outcomes = []struct {
	word    string
	outcome Outcome
}{{"deny", Outcome{}}, {"ask once", Outcome{Ask, true}}, {"ask", Outcome{Verdict: Ask}},
	{"inspect", Outcome{Verdict: Inspect}}, {"allow", Outcome{Verdict: Allow}}}

// OutcomeWords are the words that UnmarshalText knows, strictest first.
func OutcomeWords() []string {
	var words []string
	for _, o := range outcomes {
		words = append(words, o.word)
	}
	return words
}

func (o Outcome) String() string {
	for _, known := range outcomes {
		if known.outcome == o {
			return known.word
		}
	}
	return outcomes[0].word
}

// MarshalText writes the word.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the word; any other is an error, and leaves the zero value.
func (o *Outcome) UnmarshalText(b []byte) error {
	*o = Outcome{}
	for _, known := range outcomes {
		if known.word == string(b) {
			*o = known.outcome
			return nil
		}
	}
	return fmt.Errorf("%.50q is not one of %q", b, OutcomeWords())
}

// Stricter reports whether o allows less than p.
func (o Outcome) Stricter(p Outcome) bool {
	return o.Verdict < p.Verdict || o.Verdict == p.Verdict && o.Once && !p.Once
}

// Data is the column of a table that says how what a call carries and who gets it go together. The zero value is not
// known.
type Data uint8

const (
	Fits             Data = iota + 1 // it is no more secret than the audience may see
	FitsTyped                        // the same, and there is no free text in it
	FitsFree                         // the same, and there is
	InternalToPublic                 // it is internal, the audience public
	SensitiveToLower
	RegulatedToLower
	SecretToLower
	SecretPattern // something in it looks like a secret; whatever else holds
)

var datas = []string{
	"unknown", "fits", "fits, typed arguments", "fits, free text", "internal to public", "sensitive to lower",
	"regulated to lower", "secret to lower", "secret-like pattern",
}

// DataWords are the words that UnmarshalText knows.
func DataWords() []string { return append([]string(nil), datas[1:]...) }

func (d Data) String() string { return word(datas, d) }

// MarshalText writes the word.
func (d Data) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the word; any other is an error.
func (d *Data) UnmarshalText(b []byte) error { return read(datas, b, d) }

// Rule has calls denied, or a human asked, whatever the table says. Of each list one pattern has to fit; an empty one
// fits all.
type Rule struct {
	Verdict  Verdict   `json:"verdict"` // Deny or Ask
	Name     string    `json:"name"`
	Reason   string    `json:"reason"`
	Profiles []string  `json:"profiles,omitempty"`
	Clients  []Pattern `json:"clients,omitempty"`
	Servers  []Pattern `json:"servers,omitempty"`
	Tools    []Pattern `json:"tools,omitempty"` // names of tools and prompts, URIs of resources
	Methods  []Pattern `json:"methods,omitempty"`
	At       string    `json:"at"`
}

// Flow is the owner's standing declassification for one pair: what a session has from one server may go to another,
// although it is more secret than that one's audience. It counts in clean sessions only, for in others a stranger may
// have chosen what is sent, and never for what is regulated or secret.
type Flow struct {
	From   string  `json:"from"`           // a server
	To     string  `json:"to"`             // a server
	Tool   Pattern `json:"tool,omitempty"` // of To; "": each
	Reason string  `json:"reason"`
	At     string  `json:"at"`
}

// Relaxation is what a policy allows beyond what is shipped.
type Relaxation struct {
	At     string `json:"at"`     // "/etc/pfar/policies.d/local.hcl:3"
	What   string `json:"what"`   // in words
	Reason string `json:"reason"` // the owner's
}

// Asks are the inspectors that a profile needs. Of one that there is none of, nothing is clean.
func (p *Policy) Asks(profile string) []string {
	if p == nil {
		return nil
	}
	return p.Profiles[profile].Inspectors
}

// Keeps reports whether audit keeps what calls of a profile carry, and what is withheld from them.
func (p *Policy) Keeps(profile string) bool { return p != nil && p.Profiles[profile].Keep }

// MaxPolicy bounds a policy as JSON, in bytes.
const MaxPolicy = 8 << 20

// policyData is a Policy without its methods.
type policyData Policy

// UnmarshalJSON reads what json.Marshal wrote of a policy that was ready, and makes it ready. A digest that is not the
// policy's is an error, and what there was stays.
func (p *Policy) UnmarshalJSON(b []byte) error {
	if len(b) > MaxPolicy {
		return fmt.Errorf("reading a policy: %d bytes, more than %d", len(b), MaxPolicy)
	}
	var d policyData
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return fmt.Errorf("reading a policy: %w", err)
	}
	q := Policy(d)
	digest := q.Digest
	if err := q.Compile(); err != nil {
		return err
	}
	if q.Digest != digest {
		return fmt.Errorf("reading a policy: its digest is %.64q, and it says %.64q", q.Digest, digest)
	}
	*p = q
	return nil
}

// Compile checks the policy and makes it ready. It is to be called again when something in it has changed.
func (p *Policy) Compile() error {
	p.Digest, p.tables = "", nil
	b, err := json.Marshal((*policyData)(p))
	if err != nil {
		return fmt.Errorf("compiling a policy: %w", err)
	}
	tables := map[string]*table{}
	for name, profile := range p.Profiles {
		if tables[name], err = profile.compile(name); err != nil {
			return err
		}
	}
	for _, r := range p.Rules {
		if r.Verdict != Deny && r.Verdict != Ask {
			return fmt.Errorf("compiling a policy: the rule %q says %s, and rules deny or ask", r.Name, r.Verdict)
		}
	}
	sum := sha256.Sum256(b)
	p.Digest, p.tables = hex.EncodeToString(sum[:]), tables
	return nil
}
