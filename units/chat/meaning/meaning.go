// Package meaning decides what a message of a conversation is: its text and what the conversation waits for in, one of
// a few kinds out. It is pure. What may hold a secret is never a question, so that no model reads it.
package meaning

import (
	"strings"
	"unicode"
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
	Unsure // a wish for a set-up, and whether one waits is not known
)

// Situation is what a conversation waits for.
type Situation struct {
	Wanted   *control.Wanted // the secret that a set-up waits for; nil: none waits
	UnderWay bool            // a set-up is under way, or has just ended
	Formed   bool            // control.Flow.Formed of that set-up
	Unknown  bool            // whether a set-up is under way cannot be found out
	Hidden   bool            // a person was asked for Wanted, by a prompt that does not show what is typed

	// Known reports whether there is a service of that name; nil: there is none.
	Known func(service string) bool
}

// strict reports whether the next thing that a person pastes is likely a secret.
func (s Situation) strict() bool { return s.Wanted != nil || s.UnderWay || s.Unknown }

// formless reports whether nothing tells a secret that may come from other words.
func (s Situation) formless() bool { return s.strict() && (!s.Formed || s.Unknown) }

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
//   - at a hidden prompt: the secret, whatever it looks like;
//   - while a set-up waits for a secret: the secret, if the text is one word that begins with a prefix that such
//     secrets have, or fits their pattern. Where neither is known, any one word is. Quotation marks, code marks and
//     characters that nobody can see do not count;
//   - a wish to set up a service that is known: "connect", "add", "setup", "set up", "integrate" or "enable", and its
//     name. A name alone is none;
//   - what may hold a secret all the same is withheld. While a set-up is under way that is any text, unless each secret
//     of the set-up has a known prefix or pattern, and the text "yes", "no" or three words or more, of which none may
//     be a part of a secret;
//   - such a wish with another name, then "yes" and "no", then a question.
func Of(text string, s Situation) Meaning {
	plain := seen(strings.ToValidUTF8(text, "\uFFFD"))
	bare := unwrapped(plain)
	switch {
	case bare == "":
		return Meaning{Kind: Empty}
	case setup.Cancels(bare):
		return Meaning{Kind: Cancel, Value: strings.ToLower(bare)}
	case s.Wanted != nil && utf8.ValidString(text):
		if value, is := wanted(text, bare, s); is {
			return Meaning{Kind: Token, Value: value}
		}
	}
	if s.Hidden {
		return Meaning{}
	}
	known := func(name string) bool { return s.Known != nil && s.Known(name) }
	service, connects := setup.Command(plain, known)
	switch is := connects && known(service); {
	case is && s.Unknown:
		return Meaning{Kind: Unsure}
	case is:
		return Meaning{Kind: Connect, Service: service}
	case suspected(plain, s) || connects && (alone(service, true) || part(service)):
		return Meaning{}
	}
	answer := Meaning{Kind: Question, Value: strings.TrimSpace(plain)}
	switch strings.ToLower(bare) {
	case "yes", "y":
		answer = Meaning{Kind: Yes}
	case "no", "n":
		answer = Meaning{Kind: No}
	}
	switch {
	case s.formless() || s.strict() && answer.Kind == Question && words(plain) < leastWords:
		return Meaning{}
	case !utf8.ValidString(text) || len(text) > MaxQuestion:
		return Meaning{Kind: Unfit}
	case connects:
		return Meaning{Kind: Connect, Service: service}
	}
	return answer
}

// leastWords is how many a question has at least while a set-up is under way.
const leastWords = 3

// words counts those with a letter in them.
func words(text string) (n int) {
	for _, w := range strings.Fields(text) {
		if strings.ContainsFunc(w, unicode.IsLetter) {
			n++
		}
	}
	return n
}

// wanted takes the secret that a set-up waits for out of a text. bare is the text without what stands around it.
func wanted(text, bare string, s Situation) (value string, is bool) {
	value, is = setup.Fitting(bare, *s.Wanted)
	switch {
	case is:
		return value, true
	case s.Hidden:
		return strings.TrimSpace(text), true
	}
	return bare, !setup.Formed(*s.Wanted) && !strings.ContainsFunc(bare, unicode.IsSpace)
}
