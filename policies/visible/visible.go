// Package visible makes a stranger's text safe to look at: characters that a terminal obeys or a person cannot see
// become their codes.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Deceptive reports whether a character is shown as nothing or changes how others are shown: controls, bidirectional
// overrides, zero width characters, fillers, tags. The joiners of emoji and of several scripts are none.
func Deceptive(r rune) bool {
	const zwnj, zwj = 0x200c, 0x200d
	return r != zwnj && r != zwj && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// Escape writes each character of s that is hidden as its code: \n, \x1b or \u202e. Bytes that are not UTF-8 become
// \xNN. It asks about each character once, in their order.
func Escape(s string, hidden func(rune) bool) string {
	var b strings.Builder
	b.Grow(len(s))
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hidden(r):
			b.WriteRune(r)
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// Reveal makes a text that somebody is to decide about show all that is in it. Beside what Deceptive hides it writes
// the code of each character that has no picture of its own, or could hide in another's. Only ASCII's space stays.
func Reveal(s string) string {
	marks := 0 // combining ones in a row
	return Escape(s, func(r rune) bool {
		if unicode.Is(unicode.M, r) {
			marks++
		} else {
			marks = 0
		}
		return r < ' ' || r == '\\' || r == 0x7f || r > 0x7f && (marks >= 3 || !unicode.IsPrint(r) || invisible(r))
	})
}

// invisible reports whether a character shows nothing, though it may count as printed: fillers, marks that join or
// vary, spaces.
func invisible(r rune) bool {
	const braille, notehead = 0x2800, 0x1d159 // of which there are empty ones
	return r == braille || r == notehead ||
		unicode.In(r, unicode.Cf, unicode.Zs, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
