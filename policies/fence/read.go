package fence

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/scan"
)

// View returns a text as a model might read it: escapes undone, ASCII in place of what looks like it, without accents
// and all that cannot be seen, a space for signs that are no ASCII. It is for looking for something, not for showing.
func View(text string) string {
	v := view{text: text}
	odd := unlike.In(text)
	var b strings.Builder
	done := 0
	for i := odd.Next(0); i < len(text); i = odd.Next(i) {
		r, n := v.read(i, depth)
		if n == 1 && r == rune(text[i]) && fold(r) == text[i] { // no escape begins here
			i++
			continue
		}
		b.WriteString(text[done:i])
		switch class := fold(r); class {
		case gone:
		case multi:
			b.WriteString(letters(r, nil))
		case gap:
			switch {
			case unicode.IsSpace(r) || unicode.IsPunct(r) || unicode.IsSymbol(r):
				b.WriteByte(' ')
			case !unicode.Is(unicode.Mn, r):
				b.WriteRune(r)
			}
		case other:
			b.WriteRune(r)
		default:
			b.WriteByte(class)
		}
		i += n
		done = i
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// unlike are the bytes that a text may be viewed as something else by. All others stand for themselves.
var unlike = scan.Of(func(c byte) bool {
	return c >= utf8.RuneSelf || c == 0x7f || c < ' ' && c != '\n' && c != '\t' || strings.IndexByte(`&%\`, c) >= 0
})

// Hidden counts the characters of a text that cannot be seen and do nothing for those that can, and returns what those
// of them say that are ASCII in disguise (tag characters).
func Hidden(text string) (count int, says string) {
	c := cleaner{view: view{text: text}}
	var b strings.Builder
	for i, r := range text {
		if r < 0x80 && r != 0x1b || fold(r) != gone || r != 0x1b && c.belongs(i, r, utf8.RuneLen(r)) {
			continue
		}
		count++
		if within(r, 0xe0020, 0xe007e) {
			b.WriteByte(byte(r - 0xe0000))
		}
	}
	return count, b.String()
}
