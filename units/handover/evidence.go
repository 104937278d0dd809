package handover

import (
	"encoding/json"
	"regexp"

	"github.com/pfar/pfar/units"
)

// Evidence is the part of a Server by which the gateway finds out whether it is what its owner takes it for.
type Evidence struct {
	// Files is a fingerprint.Fingerprint of its program, read at this start; nil: it is not known.
	Files json.RawMessage `json:"files,omitempty"`
	Trial *Trial          `json:"trial,omitempty"` // nil: no call is known that shows its secrets to be right
}

// Trial is a call that shows whether a server's secrets are right, and what a person does if they are not. That it only
// reads is the word of the service's entry: the gateway asks the gate before it makes the call.
type Trial struct {
	Tool         string          `json:"tool"`
	Arguments    json.RawMessage `json:"arguments,omitempty"` // an object; nil: an empty one
	Answer       string          `json:"answer,omitempty"`    // expression that a good answer fits; "": any but an error
	units.Remedy                 // what stores another value
	Where        string          `json:"where,omitempty"` // how a person gets one, in words
}

// Good reports whether an answer shows that the secrets are right. Many servers answer with the error of their API as
// if it were none.
func (t Trial) Good(isError bool, text string) bool {
	ok, err := regexp.MatchString(t.Answer, text)
	return !isError && ok && err == nil
}

// Refused says in words that a server's secrets are wrong, and what to do about it.
func Refused(v units.Verification) string {
	text := v.Tool + " refuses them: " + v.Words
	if v.Remedy.Act != "" {
		text += "; " + v.Remedy.Command
	}
	if v.Where != "" {
		text += "; " + v.Where
	}
	return text
}
