package meaning

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// seen is a text without the characters that nobody can see. Line breaks and tabs stay. A secret that was copied from a
// page may have such characters in it.
func seen(text string) string {
	const zwnj, zwj = 0x200c, 0x200d
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r':
			return '\n'
		case r == zwnj, r == zwj, visible.Deceptive(r), unicode.Is(unicode.Variation_Selector, r):
			return -1
		}
		return r
	}, text)
}

// marks are pairs that people and chat programs put around a word.
var marks = [][2]string{
	{"`", "`"}, {`"`, `"`}, {"'", "'"}, {"“", "”"}, {"„", "“"}, {"‘", "’"}, {"«", "»"}, {"<", ">"}, {"(", ")"}, {"[", "]"},
	{"*", "*"}, {"||", "||"},
}

// unwrapped is a text without code marks, quotation marks and blanks around it.
func unwrapped(text string) string {
	for {
		before := text
		text = strings.TrimSpace(text)
		if inner, ok := between(text, "```", "```"); ok {
			language, rest, lines := strings.Cut(inner, "\n")
			if text = inner; lines && len(language) <= maxLanguage && !strings.ContainsAny(language, " \t") {
				text = rest
			}
		}
		for _, m := range marks {
			if inner, ok := between(text, m[0], m[1]); ok {
				text = inner
			}
		}
		if text == before {
			return text
		}
	}
}

const maxLanguage = 12 // bytes of the name of a language after the mark of a code block

func between(text, open, closing string) (inner string, ok bool) {
	if len(text) < len(open)+len(closing) || !strings.HasPrefix(text, open) || !strings.HasSuffix(text, closing) {
		return "", false
	}
	return text[len(open) : len(text)-len(closing)], true
}

// suspected reports whether a text may hold a secret. While a set-up waits, or may wait, more is suspected than else:
// the next thing that a person pastes is likely the secret.
func suspected(text string, s Situation) bool {
	text = norm.NFKC.String(text) // letters of another width are those letters
	strict := s.strict()
	bare, joined := unwrapped(text), withoutBlanks(text)
	pieces := strings.FieldsFunc(text, separates)
	switch {
	case inspected(text) || inspected(bare):
		return true
	case alone(bare, strict):
		return true
	case slices.ContainsFunc(strings.FieldsFunc(text, divides), func(p string) bool {
		return prefixed(p, prefixesOf(s.Wanted), leastBody)
	}):
		return true
	case strings.ContainsFunc(strings.TrimSpace(text), unicode.IsSpace) && within(joined, prefixesOf(s.Wanted), strict):
		return true
	}
	return strict && (slices.ContainsFunc(pieces, piece) || chopped(text) || part(bare))
}

// inspected reports whether the inspector of the gate finds a secret, in whatever encoding.
func inspected(text string) bool {
	value, err := json.Marshal(text)
	if err != nil {
		return true
	}
	var builtin inspect.Builtin
	report := builtin.Inspect(inspector.Outbound, value)
	return report.Vault() != "" || report.Pattern() != ""
}

// alone reports whether a message is one word that looks like a secret. Words of small letters and addresses of pages
// do not, unless strict.
func alone(word string, strict bool) bool {
	if strings.ContainsFunc(word, unicode.IsSpace) {
		return false
	}
	if prefixed(word, prefixesOf(nil), 1) {
		return true
	}
	if _, is := setup.Credential(word, control.Wanted{}); !is {
		return false
	}
	return strict || mixed(word) && !strings.HasPrefix(word, "https://") && !strings.HasPrefix(word, "http://")
}

const (
	leastBody   = 8  // characters after a prefix, for a word that may be a secret
	leastJoined = 16 // if blanks were taken out between them
)

// prefixesOf are those of well-known services, and of the secret that a set-up waits for.
func prefixesOf(w *control.Wanted) []string {
	list := broker.TokenPrefixes()
	if w != nil {
		list = append(list, w.Prefixes...)
	}
	return list
}

// prefixed reports whether a word begins with one of the prefixes, in any case, and goes on for least characters. So
// much as that, words begin with many prefixes: they need a digit, too, unless all of the word is asked for (least 1).
func prefixed(word string, prefixes []string, least int) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		if p == "" || len(word) < len(p) || !same(word[:len(p)], p) {
			return false
		}
		body := word[len(p):]
		n := runOf(body)
		whole := least == 1 && n == len(body) && strings.ContainsAny(p, "_-")
		return n >= least && (whole || n >= leastBody && digits(body[:n]) > 0)
	})
}

// same compares a beginning with a prefix. Only what has a mark of its own in it is a prefix in any case: "asia" is a
// word, and ASIA begins keys.
func same(begin, prefix string) bool {
	if len(prefix) >= 4 && strings.ContainsAny(prefix, "_-") {
		return strings.EqualFold(begin, prefix)
	}
	return begin == prefix
}

// within reports whether a text without its blanks has a secret in it: somebody wrote blanks or line breaks into it.
func within(joined string, prefixes []string, strict bool) bool {
	least := leastJoined
	if strict {
		least = leastBody
	}
	for _, p := range prefixes {
		if len(p) < 3 || !strings.ContainsAny(p, "_-") {
			continue
		}
		for from := 0; from+len(p) <= len(joined); from++ {
			if !strings.EqualFold(joined[from:from+len(p)], p) {
				continue
			}
			body := joined[from+len(p):]
			if n := runOf(body); n >= least && digits(body[:n]) > 0 {
				return true
			}
		}
	}
	return false
}

// guessed reports whether a piece of a text looks like a secret of which nothing is known: long, and letters and digits
// or capital and small ones mixed.
func guessed(piece string) bool {
	_, is := setup.Credential(piece, control.Wanted{})
	return is && mixed(piece)
}

// piece reports whether a word among others may be a secret or a part of one.
func piece(word string) bool {
	_, is := setup.Credential(word, control.Wanted{})
	return is || part(word) || digits(word) >= leastBody
}

// chopped reports whether a text is a secret in several short pieces, of which most have a digit or are one character.
func chopped(text string) bool {
	pieces := strings.Fields(text)
	odd := 0
	for _, p := range pieces {
		if utf8.RuneCountInString(p) == 1 || digits(p) > 0 {
			odd++
		}
	}
	return len(pieces) > 1 && 2*odd >= len(pieces) && guessed(withoutBlanks(text))
}

// part reports whether a message is one word that may be a part of a secret: in a terminal each line is a message.
func part(word string) bool {
	return len(word) >= leastBody && !strings.ContainsFunc(word, unicode.IsSpace) && mixed(word)
}

func mixed(s string) bool {
	lower, upper := strings.ToLower(s), strings.ToUpper(s)
	letters := lower != upper
	return letters && digits(s) > 0 || s != lower && s != upper && strings.IndexFunc(s[1:], unicode.IsUpper) >= 0
}

func digits(s string) (n int) {
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			n++
		}
	}
	return n
}

// runOf counts the bytes at the beginning that secrets are made of.
func runOf(s string) int {
	n := strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.=+/~%", r))
	})
	if n < 0 {
		return len(s)
	}
	return n
}

// separates reports whether a character stands between words, and in no secret.
func separates(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("\"'`“”„‘’«»<>()[]{}|,;:!?*\\", r)
}

// divides reports whether a prefix of a secret may follow a character.
func divides(r rune) bool { return separates(r) || strings.ContainsRune("=/@&#%", r) }

func withoutBlanks(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}
