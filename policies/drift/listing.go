package drift

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Bounds on what a server may offer, all lists together.
const (
	MaxListing     = 20 << 20 // bytes of a Listing in JSON
	MaxDefinitions = 4 * 4096
	maxFailed      = 500 // bytes
)

// Listing is all that a server offers, or why it could not be asked. A server that is hostile has written it, whoever
// seems to have.
type Listing struct {
	Definitions []Definition `json:"definitions,omitempty"`
	Failed      string       `json:"failed,omitempty"` // in words; "": it has been asked
}

// ReadListing reads one. A text that is none is an error without a word of it.
func ReadListing(text []byte) (l Listing, err error) {
	if len(text) > MaxListing {
		return l, fmt.Errorf("the listing has more than %d bytes", MaxListing)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if d.Decode(&l) != nil || d.Decode(new(any)) != io.EOF {
		return Listing{}, errors.New("the listing is not one object of definitions")
	}
	if len(l.Failed) > maxFailed {
		l.Failed = l.Failed[:maxFailed]
	}
	if len(l.Definitions) > MaxDefinitions {
		return Listing{}, fmt.Errorf("the listing has more than %d definitions", MaxDefinitions)
	}
	seen := map[[2]string]bool{}
	for _, d := range l.Definitions {
		at := [2]string{d.Kind, d.Name}
		switch {
		case !known(d.Kind):
			return Listing{}, errors.New("the listing has a definition of an unknown kind")
		case d.Name == "" || len(d.Raw) == 0 || d.Raw[0] != '{':
			return Listing{}, errors.New("the listing has a definition without name or object")
		case seen[at]:
			return Listing{}, errors.New("the listing has a definition twice")
		}
		seen[at] = true
	}
	return l, nil
}

// Kinds of definitions.
const (
	Tool     = "tool"
	Prompt   = "prompt"
	Resource = "resource"
	Template = "template"
)

func known(kind string) bool {
	return kind == Tool || kind == Prompt || kind == Resource || kind == Template
}
