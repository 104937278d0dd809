package gate

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/egress"
)

// Word is what somebody says of a server's tools. What is zero is not said.
type Word struct {
	Server  string  `json:"server,omitempty"`  // the one that it is about, by name; in a Policy's Words
	Service string  `json:"service,omitempty"` // or all servers of a service
	Tool    Pattern `json:"tool,omitempty"`    // the tools that it is about; "": all that the server offers, prompts and resources too

	Confidentiality Confidentiality `json:"confidentiality,omitzero"` // of what comes out
	Integrity       Integrity       `json:"integrity,omitzero"`       // of what comes out
	Audience        Confidentiality `json:"audience,omitzero"`
	Effect          Effect          `json:"effect,omitzero"`
	Semantics       Semantics       `json:"semantics,omitzero"`
	Trust           Trust           `json:"trust,omitzero"`
	Forbidden       string          `json:"forbidden,omitempty"` // why nobody may call them
	Addresses       []string        `json:"addresses,omitempty"` // arguments of them that the server opens as URLs
	Forwards        bool            `json:"forwards,omitempty"`  // the service hands their arguments on

	Relax string `json:"relax,omitempty"` // in a Policy's Words: why it may say less than what is shipped
	From  string `json:"from"`            // where it stands, as Facts.From has it
}

// Trust is the four flags of a block trust. "forbidden" denies: of the first two every call, of the others what is not
// a read.
type Trust struct {
	PublicSource    Flag `json:"public_source,omitzero"`    // strangers can write what comes out: it is raw, and else clean
	SecretData      Flag `json:"secret_data,omitzero"`      // what comes out is sensitive at least, and else internal at most
	PublicSink      Flag `json:"public_sink,omitzero"`      // what goes in reaches the open world: the audience is public, and else sensitive
	DangerousWrites Flag `json:"dangerous_writes,omitzero"` // what is not a read is irreversible, and else reversible
}

// Flag is one of them. The zero value is not said.
type Flag uint8

const (
	No Flag = iota + 1
	Yes
	Forbidden
)

var flags = []string{"unknown", "false", "true", "forbidden"}

func (f Flag) String() string { return word(flags, f) }

// MarshalText writes the word.
func (f Flag) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the word; any other is an error.
func (f *Flag) UnmarshalText(b []byte) error { return read(flags, b, f) }

// Semantics is whether a tool reads or writes, as a declaration may say in place of its effect. The zero value is not
// said.
type Semantics uint8

const (
	Reads Semantics = iota + 1
	Writes
)

var semantics = []string{"unknown", "read", "write"}

func (s Semantics) String() string { return word(semantics, s) }

// MarshalText writes the word.
func (s Semantics) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word; any other is an error.
func (s *Semantics) UnmarshalText(b []byte) error { return read(semantics, b, s) }

// Service is what is shipped about the servers of one service.
type Service struct {
	Packages []string `json:"packages,omitempty"` // a server that runs one is of this service: "NAME" is of npm, "pypi:NAME"
	Words    []Word   `json:"words"`
	Tiers    []Tier   `json:"tiers,omitempty"` // if there are any, a tool that is in none is forbidden
	At       string   `json:"at"`
}

// Tier is a set of tools that profiles have or do not have.
type Tier struct {
	Name    string    `json:"name"`
	Default bool      `json:"default,omitempty"` // every profile has it
	Tools   []Pattern `json:"tools"`
}

// Declared is what the owner's declaration says of a server.
type Declared struct {
	Server   string   `json:"server"`
	Of       string   `json:"of,omitempty"`       // the server that it is a named instance of
	Service  string   `json:"service,omitempty"`  // "": the one of its packages, of the server's name or of Of
	Packages []string `json:"packages,omitempty"` // that its command certainly runs, as Service.Packages has them
	Rests    []string `json:"rests,omitempty"`    // the files and folders of the host that Packages is certain by
	Doubt    *Doubt   `json:"doubt,omitempty"`    // the package that its command may run; nil: none
	Words    []Word   `json:"words,omitempty"`

	Reach egress.Policy `json:"reach,omitzero"`  // where it may connect to, and so which URLs it may be told to open
	Holds []Place       `json:"holds,omitempty"` // what of its data is not its own alone: folders of the host, accounts
	Owned bool          `json:"owned,omitempty"` // each name of Reach has one owner: none is a public suffix
	Asks  []string      `json:"asks,omitempty"`  // what it may ask of clients that leads out: "elicitation", "sampling"

	// Every folder that it writes to and that outlives it can be restored to what it was before a call (pfar undo). It
	// has no other folders: a server that pfar does not start may have any.
	Kept bool `json:"kept,omitempty"`
	// There is such a folder: before a call that may write, its launcher is asked to keep what is there.
	Keeps bool `json:"keeps,omitempty"`
}

// Doubt is a package that a program says it is of, and why that is not certain, for a sentence that begins "but".
type Doubt struct {
	Package string `json:"package"`
	Why     string `json:"why"`
}

// Place is where servers can leave data for others: a folder of the host, by its path, or an account, by the name of
// the secret that opens it ("vault:KEY", "$NAME").
type Place struct {
	Name   string `json:"name"`
	Writes bool   `json:"writes,omitempty"` // the server may change what is there, and else only read it
}

// Reaches reports whether what is written in one place can be read in the other: it is the same one, or a folder within
// the other.
func (p Place) Reaches(q Place) bool {
	if p.Name == q.Name {
		return true
	}
	below := func(a, b string) bool {
		return strings.HasPrefix(b, "/") && strings.HasPrefix(a, strings.TrimSuffix(b, "/")+"/")
	}
	return below(p.Name, q.Name) || below(q.Name, p.Name)
}

// ParseLabel reads what an output is said to be: "sensitive raw", or one of the two words. The other half stays zero.
func ParseLabel(text string) (Label, error) {
	var l Label
	for w := range strings.FieldsSeq(text) {
		var half Label
		switch {
		case l.Confidentiality == 0 && half.Confidentiality.UnmarshalText([]byte(w)) == nil && half.Confidentiality != 0:
			l.Confidentiality = half.Confidentiality
		case l.Integrity == 0 && half.Integrity.UnmarshalText([]byte(w)) == nil && half.Integrity != 0:
			l.Integrity = half.Integrity
		default:
			return Label{}, fmt.Errorf("%.50q is not a label", text)
		}
	}
	if l == (Label{}) {
		return l, fmt.Errorf("%.50q is not a label", text)
	}
	return l, nil
}
