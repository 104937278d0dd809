package block

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/pfar/pfar/policies/visible"
)

// MaxQuoted is how much of a value a message repeats.
const MaxQuoted = 60

// Quote quotes what a user wrote for a message: shortened, escaped, and not at all if it may be a secret.
func Quote(s string) string {
	if SecretWithin(s) {
		return `"***"`
	}
	short := []rune(s)
	if len(short) > MaxQuoted {
		return Escape(`"` + string(short[:MaxQuoted]) + `..."`)
	}
	return Escape(`"` + s + `"`)
}

// QuoteName quotes what should be an identifier, in ASCII: a letter of another script may look like the right one.
func QuoteName(s string) string {
	if SecretWithin(s) {
		return `"***"`
	}
	if short := []rune(s); len(short) > MaxQuoted {
		s = string(short[:MaxQuoted]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// OneOf joins words for a sentence.
func OneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// OneQuoted joins quoted words for a sentence.
func OneQuoted(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return OneOf(quoted)
}

// UpperFirst begins a sentence.
func UpperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Escape writes what a terminal would obey or hide as its code, as HCL and TOML have it: neither reads the \x of
// visible.Escape.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == unicode.ReplacementChar:
			b.WriteString(`\ufffd`)
		case visible.Deceptive(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case visible.Deceptive(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// oneLine writes what a parser says in paragraphs as one.
func oneLine(s string) string { return Escape(strings.Join(strings.Fields(s), " ")) }
