package fence

import (
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// What fold makes of a character that is no ASCII.
const (
	gone  byte = 0x80 + iota // it cannot be seen
	gap                      // neither letter nor digit
	other                    // a letter that looks like none of ASCII's
	multi                    // several letters in one: a ligature, a unit
)

// fold is the ASCII character that one looks like, or what else it is.
func fold(r rune) byte {
	switch {
	case r < 0x20 || r == 0x7f:
		switch r {
		case '\t', '\f':
			return gap
		case '\n', '\r':
			return '\n'
		}
		return gone
	case r < 0x80:
		return byte(r)
	case r >= 0x20000:
		if r>>12 == 0xe0 {
			return gone
		}
		return other
	}
	return folded()[r>>8][r&0xff]
}

// folded is fold as a table, in pages of 256 characters. Most pages are one of two.
var folded = sync.OnceValue(func() *[0x200]*[256]byte {
	table, pages := new([0x200]*[256]byte), make(map[[256]byte]*[256]byte)
	alike := make(map[rune]byte)
	for _, s := range lookalikes {
		for _, r := range s[1:] {
			alike[r] = s[0]
		}
	}
	for i := range table {
		var page [256]byte
		for k := range page {
			page[k] = foldSlowly(rune(i<<8|k), alike)
		}
		if pages[page] == nil {
			pages[page] = &page
		}
		table[i] = pages[page]
	}
	return table
})

func foldSlowly(r rune, alike map[rune]byte) byte {
	switch {
	case invisible(r):
		return gone
	case r == '\u0085' || r == '\u2028' || r == '\u2029':
		return '\n'
	case alike[r] != 0:
		return alike[r]
	case r >= 0x1f1e6 && r <= 0x1f1ff: // regional indicators
		return byte('A' + r - 0x1f1e6)
	case r >= 0x1f150 && r <= 0x1f169: // white on a black disc
		return byte('A' + r - 0x1f150)
	case r >= 0x1f170 && r <= 0x1f189: // white on a black square
		return byte('A' + r - 0x1f170)
	case within(r, 0x3400, 0x9fff) || within(r, 0xac00, 0xd7a3): // Han, Hangul: the most, and nothing else
		return other
	}
	switch s := letters(r, alike); {
	case len(s) == 1:
		return s[0]
	case len(s) > 1:
		return multi
	}
	if d := []rune(norm.NFKD.String(string(r))); unicode.IsLetter(d[0]) || unicode.IsDigit(d[0]) {
		return other
	}
	return gap
}

// letters are the ASCII characters of which a character is made, without accents; "" if it is made of others. Brackets
// around a letter are left out.
func letters(r rune, alike map[rune]byte) string {
	var b strings.Builder
	for _, d := range norm.NFKD.String(string(r)) {
		switch {
		case d < 0x80:
			b.WriteRune(d)
		case alike[d] != 0:
			b.WriteByte(alike[d])
		case !unicode.Is(unicode.Mn, d) && d != '\u2044':
			return ""
		}
	}
	s := strings.TrimSpace(b.String())
	if len(s) > 1 {
		return strings.Trim(s, "()., ")
	}
	return s
}

func within(r, first, last rune) bool { return first <= r && r <= last }

// invisible reports whether nothing is seen of a character, or only what it does to others: Unicode's
// Default_Ignorable_Code_Point, controls of direction, of interlinear annotation and of terminals.
func invisible(r rune) bool {
	switch {
	case r == '\u0085':
		return false
	case r < 0x20 && r != '\t' && r != '\n' && r != '\r' && r != '\f', within(r, 0x7f, 0x9f):
		return true
	case r == 0xad, r == 0x34f, r == 0x61c, within(r, 0x115f, 0x1160), within(r, 0x17b4, 0x17b5), within(r, 0x180b, 0x180f):
		return true
	case within(r, 0x200b, 0x200f), within(r, 0x202a, 0x202e), within(r, 0x2060, 0x206f), r == 0x3164, within(r, 0xfe00, 0xfe0f):
		return true
	case r == 0xfeff, r == 0xffa0, within(r, 0xfff0, 0xfffb), within(r, 0x1bca0, 0x1bca3), within(r, 0x1d173, 0x1d17a),
		within(r, 0xe0000, 0xe0fff):
		return true
	}
	return false
}
