package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
)

// reveal makes a text that somebody is to decide about show all that is in it: beside what escape does, whatever has no
// picture of its own, or could hide in another's. Only ASCII's space is left a space.
func reveal(s string) string {
	marks := 0 // combining ones in a row
	return visible.Escape(s, func(r rune) bool {
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
	return r == braille || r == notehead || unicode.In(r, unicode.Cf, unicode.Zs, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// scripts that share letters with others by their looks.
var scripts = map[string]*unicode.RangeTable{
	"Latin": unicode.Latin, "Cyrillic": unicode.Cyrillic, "Greek": unicode.Greek, "Armenian": unicode.Armenian, "Cherokee": unicode.Cherokee,
	"Coptic": unicode.Coptic, "Lisu": unicode.Lisu, "Georgian": unicode.Georgian, "Hebrew": unicode.Hebrew, "Arabic": unicode.Arabic,
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
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) }) {
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
		odd := len(of) > 1 || slices.Contains(of, faces) || s == ofName || s == ofAddress && !slices.Equal(of, []string{"Latin"})
		if foreign < 0 || !odd {
			continue
		}
		r, _ := utf8.DecodeRuneInString(word[foreign:])
		if slices.Sort(of); len(found) < most {
			found = append(found, fmt.Sprintf("%q has U+%04X (%s)", reveal(word), r, strings.Join(of, ", ")))
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
	return unicode.In(r, unicode.Hebrew, unicode.Arabic, unicode.Syriac, unicode.Thaana, unicode.Nko, unicode.Samaritan, unicode.Mandaic, unicode.Adlam)
}

// shownArgument is one value among the arguments of a call: a text, a number, an empty list.
type shownArgument struct {
	pointer string // RFC 6901
	value   any
}

// flatten lists the values in a JSON text, those first that say where something goes or what is done; the others in the
// order of their names.
func flatten(raw []byte) ([]shownArgument, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	var list []shownArgument
	walkArguments(v, "", func(a shownArgument) { list = append(list, a) })
	slices.SortStableFunc(list, func(a, b shownArgument) int { return rank(a.pointer) - rank(b.pointer) })
	return list, nil
}

func walkArguments(v any, at string, each func(shownArgument)) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walkArguments(v[name], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), each)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		for i, e := range v {
			walkArguments(e, fmt.Sprintf("%s/%d", at, i), each)
		}
		if len(v) > 0 {
			return
		}
	}
	each(shownArgument{at, v})
}

// decisive are names of arguments that say where something goes, or what is done, the most telling first.
var decisive = []string{
	"to", "cc", "bcc", "recipient", "recipients", "url", "uri", "host", "channel", "channel_id", "address", "email", "user", "repo", "owner",
	"path", "source", "destination", "file", "filename", "command", "cmd", "code", "sql", "query", "method", "action", "amount", "price",
}

func rank(pointer string) int {
	first, _, _ := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if i := slices.Index(decisive, strings.ToLower(first)); i >= 0 {
		return i
	}
	return len(decisive)
}
