package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/pfar/pfar/units/jsonrpc"
)

// visible quotes text so that every character of it is seen for what it is: control characters, those that have no
// width or change the direction of writing, and tags are escaped. No two texts look the same but for letters that do.
func visible(s string) string {
	marks := 0 // of the character before
	doubtful := func(r rune) bool {
		if !unicode.Is(unicode.M, r) {
			marks = 0
			if !unicode.IsLetter(r) && !unicode.IsNumber(r) {
				marks = maxMarks // on what is no letter there is none to read
			}
			return hidden(r)
		}
		marks++
		return marks > maxMarks || hidden(r)
	}
	marks = maxMarks // of the quotation mark
	if !strings.ContainsFunc(s, doubtful) {
		return strconv.QuoteToGraphic(s)
	}
	marks = maxMarks
	b := []byte{'"'}
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			b = fmt.Appendf(b, `\x%02x`, s[i])
		case doubtful(r):
			b = append(b, strings.Trim(strconv.QuoteRuneToASCII(r), "'")...)
		case r == '"':
			b = append(b, `\"`...)
		case r == '\'':
			b = append(b, '\'')
		default:
			quoted := strconv.AppendQuoteRuneToGraphic(b, r)
			b = append(b, quoted[len(b)+1:len(quoted)-1]...)
		}
	}
	return string(append(b, '"'))
}

// maxMarks is how many vowel signs and accents a letter may have: with more of them text runs over its neighbours.
const maxMarks = 4

// hidden reports whether a graphic character is one that people do not see, or take for a space, or that strikes others
// out. Vowel signs and accents are no such characters: several scripts cannot be read without.
func hidden(r rune) bool {
	return r > unicode.MaxASCII && (unicode.IsSpace(r) || r == '\u2800' || // an empty Braille cell
		r >= 0x334 && r <= 0x338 || r >= 0x20d0 && r <= 0x20ff || // overlays and enclosures
		unicode.In(r, unicode.Zs, unicode.Me, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector))
}

// limits of what is shown of one definition.
const (
	maxShown      = 4 << 20  // bytes of each side of a difference
	maxDiff       = 64 << 10 // bytes of a difference
	maxShownDepth = 24       // nesting that is indented
)

// page is text for people that ends at a limit: of what is too long the beginning is kept.
type page struct {
	b    []byte
	left int // bytes that had no place
}

func (p *page) write(s string) {
	n := min(len(s), max(0, maxShown-len(p.b)))
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	if p.left > 0 {
		n = 0
	}
	p.b = append(p.b, s[:n]...)
	p.left += len(s) - n
}

// show prints a definition for people: canonical, indented, with the lines of long texts apart, and nothing in it that
// a terminal acts on or that is not to be seen. It returns how many bytes are left out.
func show(raw []byte) (string, int) {
	b, err := canonical(raw)
	if err != nil {
		return "(it cannot be read)\n", 0
	}
	if whole, err := jsonrpc.Canonical(nil, raw); err == nil { // with what no digest covers: it is served once it is accepted
		b = whole
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	_ = d.Decode(&v) // the canonical form is JSON
	var p page
	p.value(v, "\n")
	return string(p.b) + "\n", p.left
}

// value writes v; line is a line break and the indentation of what v is a part of.
func (p *page) value(v any, line string) {
	inner := line + "  "
	if len(line) > 2*maxShownDepth {
		inner = line // or the indentation would be the square of the depth
	}
	switch v := v.(type) {
	case map[string]any:
		p.write("{")
		for i, name := range slices.Sorted(maps.Keys(v)) {
			p.between(i, inner)
			p.write(visible(name) + ": ")
			p.value(v[name], inner)
		}
		p.end(len(v), line+"}")
	case []any:
		p.write("[")
		for i, e := range v {
			p.between(i, inner)
			p.value(e, inner)
		}
		p.end(len(v), line+"]")
	case string:
		for i, text := range strings.SplitAfter(v, "\n") {
			if i > 0 && text == "" {
				break
			}
			if i > 0 {
				p.write(inner)
			}
			p.write(visible(text))
		}
	default:
		b, _ := json.Marshal(v) // a number as it was written, true, false or null
		p.write(string(b))
	}
}

func (p *page) between(i int, inner string) {
	if i > 0 {
		p.write(",")
	}
	p.write(inner)
}

// end closes an object or array of n parts.
func (p *page) end(n int, closing string) {
	if n == 0 {
		closing = strings.TrimLeft(closing, "\n ")
	}
	p.write(closing)
}

// compare returns the unified difference of a definition to what was accepted, or the whole of a new one, and how many
// bytes of it are left out.
func compare(title string, accepted, now json.RawMessage) (string, int) {
	before, lost := "", 0
	from := "/dev/null"
	if accepted != nil {
		before, lost = show(accepted)
		from = "accepted"
	}
	after, more := show(now)
	d := string(diff.Diff(from, []byte(before), "offered", []byte(after)))
	if _, body, ok := strings.Cut(d, "\n"); ok {
		d = body // behind the line with the command
	}
	d = strings.Replace(d, "+++ offered\n", "+++ offered: "+visible(title)+"\n", 1)
	left := max(lost, more)
	if len(d) > maxDiff {
		cut := maxDiff
		for cut > 0 && !utf8.RuneStart(d[cut]) {
			cut--
		}
		left += len(d) - cut
		d = d[:cut] + "\n"
	}
	if left > 0 {
		d += fmt.Sprintf("(%d more bytes are not shown)\n", left)
	}
	return d, left
}
