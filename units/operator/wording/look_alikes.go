package wording

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
)

// scripts that share letters with others by their looks.
var scripts = map[string]*unicode.RangeTable{
	"Latin": unicode.Latin, "Cyrillic": unicode.Cyrillic, "Greek": unicode.Greek, "Armenian": unicode.Armenian,
	"Cherokee": unicode.Cherokee, "Coptic": unicode.Coptic, "Lisu": unicode.Lisu, "Georgian": unicode.Georgian,
	"Hebrew": unicode.Hebrew, "Arabic": unicode.Arabic,
}

// suspicion says what is odd in a text, beside letters of two scripts in one word and letters in another width or face.
type suspicion int

const (
	ofText    suspicion = iota // nothing more: people write in all scripts
	ofAddress                  // any other script than Latin
	ofName                     // anything that is not ASCII
)

// lookAlikes names the words of a text that may not be what they look like, at most a few of them.
func lookAlikes(text string, s suspicion) []string {
	const most = 4
	var found []string
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) }
	for word := range strings.FieldsFuncSeq(text, between) {
		var of []string
		for _, r := range word {
			if r < 0x80 && !unicode.IsLetter(r) {
				continue
			}
			script := scriptOf(r)
			if script != "" && !slices.Contains(of, script) {
				of = append(of, script)
			}
		}
		foreign := strings.IndexFunc(word, func(r rune) bool { return r >= 0x80 })
		odd := len(of) > 1 || slices.Contains(of, faces) || s == ofName ||
			s == ofAddress && !slices.Equal(of, []string{"Latin"})
		if foreign < 0 || !odd {
			continue
		}
		r, _ := utf8.DecodeRuneInString(word[foreign:])
		if slices.Sort(of); len(found) < most {
			found = append(found, fmt.Sprintf("%q has U+%04X (%s)", visible.Reveal(word), r, strings.Join(of, ", ")))
		}
	}
	return found
}

// faces are letters that stand for others: of another width, or of mathematics.
const faces = "letters in another face"

func scriptOf(r rune) string {
	if r >= 0xff01 && r <= 0xff5e || r >= 0x1d400 && r <= 0x1d7ff || r >= 0x2460 && r <= 0x24ff {
		return faces
	}
	for name, table := range scripts {
		if unicode.Is(table, r) {
			return name
		}
	}
	return ""
}

// rightToLeft reports whether a terminal may write a letter, and what is around it, in the other direction.
func rightToLeft(r rune) bool {
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan,
		unicode.Mandaic, unicode.Adlam)
}
