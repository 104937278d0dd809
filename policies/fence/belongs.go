package fence

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	nonJoiner = '\u200c'
	joiner    = '\u200d'
)

// belongs reports whether the invisible character r of n bytes at i does what Unicode has it for: without it, an emoji
// or a word would be another. Everywhere else it can only hide something.
func (c *cleaner) belongs(i int, r rune, n int) bool {
	before := c.before(i)
	after, _ := utf8.DecodeRuneInString(c.text[i+n:])
	switch {
	case r == joiner && isEmoji(before) && isEmoji(after) && after != '\ufe0f':
		return true
	case r == joiner || r == nonJoiner: // one of them, behind a letter that takes other forms for it
		return isJoining(before)
	case r == '\u200b': // where words are written without spaces
		return spaceless(before) && spaceless(after)
	case r == '\ufe0f' || r == '\ufe0e':
		if before < 0x80 {
			return strings.ContainsRune("0123456789#*", before) && after == '\u20e3'
		}
		return isEmoji(before) && !within(before, 0xfe00, 0xfe0f)
	case within(r, 0xfe00, 0xfe02):
		return unicode.Is(unicode.Han, before) || unicode.Is(unicode.Sm, before) || unicode.Is(unicode.Myanmar, before)
	case within(r, 0x180b, 0x180f):
		return unicode.Is(unicode.Mongolian, before) && !invisible(before)
	case within(r, 0xe0100, 0xe01ef):
		return unicode.Is(unicode.Han, before)
	case within(r, 0xe0020, 0xe007f):
		return c.inFlag(i, n)
	}
	return false
}

// flags are the sequences of tag characters that have a flag: of England, Scotland, Wales (UTS #51,
// RGI_Emoji_Tag_Sequence).
var flags = [...]string{tagged("gbeng"), tagged("gbsct"), tagged("gbwls")}

func tagged(s string) string {
	b := []rune{'\U0001F3F4'}
	for _, r := range s {
		b = append(b, 0xe0000+r)
	}
	return string(append(b, 0xe007f))
}

// inFlag reports whether the tag character of n bytes at i is one of a flag.
func (c *cleaner) inFlag(i, n int) bool {
	for _, f := range flags {
		for at := utf8.RuneLen('\U0001F3F4'); at < len(f); at += n {
			if start := i - at; start >= c.done && strings.HasPrefix(c.text[start:], f) {
				return true
			}
		}
	}
	return false
}

func isEmoji(r rune) bool {
	return within(r, 0x1f000, 0x1faff) || within(r, 0x2190, 0x2bff) || r == 0x203c || r == 0x2049 || r == 0x20e3 ||
		r == 0x2122 || r == 0x2139 || r == 0x3030 || r == 0x303d || r == 0x3297 || r == 0x3299 || r == 0xa9 || r == 0xae || r == 0xfe0f
}

// isJoining reports whether a letter or sign is of a script whose letters join.
func isJoining(r rune) bool {
	return within(r, 0x0620, 0x08ff) || within(r, 0x0900, 0x0dff) || within(r, 0x0f00, 0x109f) ||
		within(r, 0x1780, 0x17b3) || within(r, 0x17b6, 0x180a) ||
		within(r, 0x1820, 0x18aa) || within(r, 0xa840, 0xa877) || within(r, 0xfb50, 0xfdff) || within(r, 0xfe70, 0xfefc) ||
		within(r, 0x11000, 0x11fff)
}

func spaceless(r rune) bool {
	return within(r, 0x0e00, 0x0eff) || within(r, 0x1000, 0x109f) || within(r, 0x1780, 0x17b3) || within(r, 0x17b6, 0x17ff)
}
