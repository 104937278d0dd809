package pins

import "github.com/pfar/pfar/units/operator"

// What the operator's socket tells of definitions.
type (
	Kind         = operator.Kind
	ServerStatus = operator.ServerPins
	Held         = operator.Held
	Known        = operator.Known
)

// Kinds of definitions.
const (
	Tool         Kind = "tool"
	Prompt       Kind = "prompt"
	Instructions Kind = "instructions"
	Program           = operator.Program // fingerprint of the server's program
	Resource     Kind = "resource"
	Template     Kind = "template"
)

// isData reports whether definitions of this kind come and go with the server's data. They are never held: there are
// many, and nobody could accept them one by one. What is remembered is who has accepted the ones that are there.
func isData(k Kind) bool { return k == Resource || k == Template }

// Definition is one thing that a server says and a model reads.
type Definition struct {
	Kind Kind
	Name string
	Raw  []byte // the whole object as the server sent it; of instructions, a JSON string
}

// Offer is all of it, at one discovery.
type Offer struct {
	Server      string
	Version     string // the server's own name and version, as it says them
	Program     string // SHA-256 of its command and arguments, in hexadecimal
	TrustFirst  bool   // what is offered the first time is accepted, if inspectors find nothing suspicious in it
	Definitions []Definition
	Shipped     Shipped // definitions of this server's package that pfar's makers have reviewed; nil: none

	others []string // tools of other servers: what speaks of one of them is suspicious
}

// Shipped is what pfar's makers have reviewed of one package.
type Shipped interface {
	Version(title string) bool // reports whether title is the name and version that the reviewed package says of itself
	Has(kind, digest string) bool
}

// State says whether a definition may be served. The zero value may not.
type State int

const (
	New     State = iota // held: it has never been accepted
	Changed              // held: another one of its name has
	Accepted
)

// String is the word for it.
func (s State) String() string {
	switch s {
	case Accepted:
		return "accepted"
	case Changed:
		return "changed"
	}
	return "new"
}

// Verdict is what becomes of one definition.
type Verdict struct {
	Kind   Kind
	Name   string
	State  State
	Digest string // SHA-256 in hexadecimal; "": the definition is none that can be accepted
	Person bool   // of Accepted: a person has, who may have looked at it
	Pure   bool   // of Person: a tool, and that person has said that it is pure (Store.Trust)

	// Reviewed: a person has accepted it, or pfar ships its digest. A definition that is accepted but not reviewed was
	// only the first of its name, and its words are still a stranger's.
	Reviewed bool
	Raw      []byte // of Reviewed: the definition as it was then, with the members that no digest covers
}

// Review is what becomes of an offer: a verdict for each definition, in the same order.
type Review struct {
	Verdicts []Verdict
	Program  State    // unless it is Accepted, nothing of the server may be served, whatever the verdicts are
	Version  bool     // the name and version that the server says have been reviewed, as a definition is
	Drift    []string // what is not as it was at the last acceptance, in words; it holds nothing back
	Broken   error    // the pins of the server cannot be read, and everything is held; or not be written
}
