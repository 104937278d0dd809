// Package meaning decides what a message of a conversation is: its text and what the conversation waits for in, one of
// a few kinds out. It is pure. What may hold a secret is never a question, so that no model reads it.
package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// Kind says what a message is. The zero value goes nowhere.
type Kind uint8

const (
	Withheld Kind = iota // it may hold a secret that no set-up takes: it is to be deleted
	Token                // the secret that a set-up waits for
	Cancel               // a word that ends what waits
	Connect              // a wish for a set-up
	Yes                  // an answer to a plan
	No
	Question
	Empty  // nothing can be seen in it
	Unfit  // too long, or not text
	Unsure // it is none of the first two as far as can be told, and whether a set-up waits is not known
)

// Situation is what a conversation waits for.
type Situation struct {
	Wanted  *control.Wanted // the secret that a set-up waits for; nil: none waits
	Unknown bool            // whether a set-up waits cannot be found out

	// Known reports whether the catalogue has a service of that name; nil: it has none.
	Known func(service string) bool
}

// Meaning is what a message says. The zero value withholds it.
type Meaning struct {
	Kind    Kind
	Value   string // of Token: the secret itself, without what stood around it; of Cancel: the word
	Service string // of Connect: its name
}

// MaxQuestion bounds a question.
const MaxQuestion = 16 << 10 // bytes

// Of says what a text is, in this order:
//
//   - a word that cancels: "cancel", "nevermind" or "skip", in any case;
//   - while a set-up waits for a secret: the secret, if the text is one word that begins with a prefix that such
//     secrets have, or fits their pattern, or looks like a secret (setup.Credential). Quotation marks, code marks and
//     characters that nobody can see do not count;
//   - a wish to set up a service of the catalogue: "connect", "add", "setup", "set up", "integrate" or "enable", and
//     its name. A name alone is none;
//   - what may hold a secret all the same is withheld;
//   - such a wish with another name, then "yes" and "no", then a question.
func Of(text string, s Situation) Meaning {
	plain := seen(strings.ToValidUTF8(text, "\uFFFD"))
	bare := unwrapped(plain)
	switch {
	case bare == "":
		return Meaning{Kind: Empty}
	case setup.Cancels(bare):
		return Meaning{Kind: Cancel, Value: strings.ToLower(bare)}
	}
	if s.Wanted != nil && utf8.ValidString(text) {
		if value, is := setup.Credential(bare, *s.Wanted); is {
			return Meaning{Kind: Token, Value: value}
		}
	}
	service, connects := setup.Command(plain, func(name string) bool { return s.Known != nil && s.Known(name) })
	switch known := connects && s.Known != nil && s.Known(service); {
	case !known && suspected(plain, s):
		return Meaning{}
	case s.Unknown:
		return Meaning{Kind: Unsure}
	case !utf8.ValidString(text) || len(text) > MaxQuestion:
		return Meaning{Kind: Unfit}
	case connects:
		return Meaning{Kind: Connect, Service: service}
	}
	switch strings.ToLower(bare) {
	case "yes", "y":
		return Meaning{Kind: Yes}
	case "no", "n":
		return Meaning{Kind: No}
	}
	return Meaning{Kind: Question, Value: strings.TrimSpace(plain)}
}
