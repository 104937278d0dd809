package gate

import (
	"encoding"
	"fmt"
)

// Confidentiality says who may read something, least secret first. The zero value is not known, which denies.
type Confidentiality uint8

const (
	Public Confidentiality = iota + 1
	Internal
	Sensitive
	Regulated
	Secret
)

// Integrity says who can have written something. The zero value is not known, which denies.
type Integrity uint8

const (
	Clean     Integrity = iota + 1 // the owner, and those whom the owner trusts
	Extracted                      // strangers, but only typed values without free text
	Raw                            // strangers, anything
)

// Label is a point of the lattice: what is known of a text, or of all that a session has seen.
type Label struct {
	Confidentiality Confidentiality `json:"confidentiality"`
	Integrity       Integrity       `json:"integrity"`
}

// Start is the label of a session that has seen nothing.
var Start = Label{Public, Clean}

// Join is what has been made of both: the worse of each.
func (l Label) Join(m Label) Label {
	return Label{max(l.Confidentiality, m.Confidentiality), max(l.Integrity, m.Integrity)}
}

// Known reports whether both halves are.
func (l Label) Known() bool {
	return l.Confidentiality >= Public && l.Confidentiality <= Secret && l.Integrity >= Clean && l.Integrity <= Raw
}

// Below reports whether m is at least as bad as l in both halves.
func (l Label) Below(m Label) bool { return l.Join(m) == m }

// worstUnknown puts the worst in place of each half that is not known.
func (l Label) worstUnknown() Label {
	if l.Confidentiality < Public || l.Confidentiality > Secret {
		l.Confidentiality = Secret
	}
	if l.Integrity < Clean || l.Integrity > Raw {
		l.Integrity = Raw
	}
	return l
}

// String is both words, as policies write them: "sensitive raw".
func (l Label) String() string { return l.Confidentiality.String() + " " + l.Integrity.String() }

var (
	confidentialities = []string{"unknown", "public", "internal", "sensitive", "regulated", "secret"}
	integrities       = []string{"unknown", "clean", "extracted", "raw"}
	effects           = []string{"unknown", "none", "reversible", "irreversible"}
	verdicts          = []string{"deny", "ask", "inspect", "allow"}
)

func (c Confidentiality) String() string { return word(confidentialities, c) }
func (i Integrity) String() string       { return word(integrities, i) }

// MarshalText writes the word; a value that is none is written as "unknown".
func (c Confidentiality) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the word; any other is an error, and leaves what is not known.
func (c *Confidentiality) UnmarshalText(b []byte) error { return read(confidentialities, b, c) }

func (i Integrity) MarshalText() ([]byte, error)  { return []byte(i.String()), nil }
func (i *Integrity) UnmarshalText(b []byte) error { return read(integrities, b, i) }

var _ encoding.TextUnmarshaler = new(Confidentiality)

func word[T ~uint8](words []string, v T) string {
	if int(v) >= len(words) {
		return words[0]
	}
	return words[v]
}

func read[T ~uint8](words []string, b []byte, v *T) error {
	*v = 0
	for i, w := range words {
		if w == string(b) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%.50q is not one of %q", b, words[1:])
}

// Confidentialities are the words for them, least secret first.
func Confidentialities() []string { return append([]string(nil), confidentialities[1:]...) }
