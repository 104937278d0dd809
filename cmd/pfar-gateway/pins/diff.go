package pins

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/rogpeppe/go-internal/diff"
)

// visible quotes text so that every character of it is seen for what it is: control characters, those that have no
// width or change the direction of writing, and tags are escaped.
func visible(s string) string {
	q := strconv.QuoteToGraphic(s)
	if !strings.ContainsFunc(q, hidden) {
		return q
	}
	var b strings.Builder
	for _, r := range q {
		if hidden(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hidden reports whether a graphic character is one that people do not see, or not as one of its own: spaces that are
// none of ASCII's, and those that belong to the character before.
func hidden(r rune) bool {
	return r > unicode.MaxASCII && (unicode.IsSpace(r) || unicode.Is(unicode.M, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r))
}

// maxDiff bounds a difference, in bytes.
const maxDiff = 64 << 10

// compare returns the unified difference of two definitions, or the whole of a new one.
func compare(name string, old, now []byte) string {
	var a []byte
	if old != nil {
		a = []byte(strings.Join(show(old), "\n") + "\n")
	}
	d := string(diff.Diff(name+" (accepted)", a, name+" (now)", []byte(strings.Join(show(now), "\n")+"\n")))
	if len(d) > maxDiff {
		cut := strings.LastIndexByte(d[:maxDiff], '\n') + 1
		d = d[:cut] + "(" + strconv.Itoa(len(d)-cut) + " more bytes are not shown)\n"
	}
	return d
}
