package inspect

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pfar/pfar/policies/jsontext"
)

// Render writes the strings of a value of JSON as lines for a reader, each behind its place, so that none hides in an
// escape. What is no string is left out but for arrays of characters' numbers. Of more than so many bytes there is
// nothing, and it reports false: the places of many short strings are many times as long as the value.
func Render(value []byte, most int) (string, bool) {
	switch {
	case jsontext.Valid(value):
	case len(value) <= most:
		return string(value), true
	default:
		return "", false
	}
	var b strings.Builder
	var p place
	for b.Len() <= most {
		t := p.next(value)
		if t.Kind == jsontext.End {
			break
		}
		if t.Kind != '"' {
			continue
		}
		text := jsontext.Text(value[t.Start:t.End])
		if !t.Name {
			fmt.Fprintf(&b, "%s: %s\n", &p, text)
		} else if !identifier.MatchString(text) {
			fmt.Fprintf(&b, "a name: %s\n", text)
		}
	}
	if b.Len() <= most {
		for _, text := range codes(string(value)) {
			fmt.Fprintf(&b, "character codes: %s\n", text)
		}
	}
	if b.Len() > most {
		return "", false
	}
	return b.String(), true
}

var identifier = regexp.MustCompile(`^[A-Za-z0-9_.$/-]{1,32}$`)

// Chunks cuts a text into pieces of so many bytes at most, each of which begins with the end of the one before, so much
// of it at least. No character is cut.
func Chunks(text string, size, overlap int) []string {
	var all []string
	for {
		if len(text) <= size {
			return append(all, text)
		}
		end := boundary(text, size)
		all = append(all, text[:end])
		text = text[boundary(text, end-overlap):]
	}
}

// boundary is the last beginning of a character up to i. Of bytes that are no text it is i itself.
func boundary(text string, i int) int {
	for k := i; k > max(i-4, 0); k-- {
		if text[k]&0xc0 != 0x80 {
			return k
		}
	}
	return i
}
