package inspect

import (
	"fmt"
	"math/bits"
	"regexp"
	"strings"
	"sync"

	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/scan"
)

var theLexicon = sync.OnceValue(newLexicon)

// reach is how many words an instruction that sets others aside may be spread over.
const reach = 9

// instructions looks for what speaks to a model in a text, which may be ordinary. Only at words that begin like one of
// the lexicon it looks closely.
func (in *Inspection) instructions(text string, plain bool, within []string) {
	l, view := theLexicon(), text
	if !plain {
		view = normal(text)
	}
	in.index()
	in.met = 0
	var marks, beginnings [scan.Ahead]uint64
	inWord := uint64(0) // the block before ended in one
	for at := 0; at < len(view); {
		blocks := inWords.Mark(marks[:], view, at)
		in.begins.words.Mark(beginnings[:], view, at)
		for k, is := range marks[:blocks] {
			starts := is &^ (is<<1 | inWord) & beginnings[k]
			inWord = is >> 63
			for ; starts != 0; starts &= starts - 1 {
				from := bits.TrailingZeros64(starts)
				i, n := at+from, bits.TrailingZeros64(^(is >> from))
				if from+n == scan.Block {
					_, end := wordAt(view, i)
					n = end - i
				}
				if i+4 > len(view) || in.begins.has(three(view, i), n) {
					in.word(view, i, i+n, within)
				}
			}
			at += scan.Block
		}
	}
	if !plain && !ascii(view) {
		joined := strings.ReplaceAll(view, " ", "")
		for _, s := range l.sequences {
			if k := strings.Index(joined, s); k >= 0 {
				in.add("instruction", Suspicious, within, around(joined, k, k+len(s)), s)
			}
		}
	}
	if !in.Fenced || len(within) > 0 {
		in.forged(text, within)
	}
}

// inWords are the bytes that words are made of.
var inWords = scan.Of(func(c byte) bool { return isPlain.Has(c) || c >= 0x80 })

// wordAt returns where the first word ends that begins at i or later, and itself; -1 if there is none.
func wordAt(view string, i int) (start, end int) {
	for i < len(view) && !inWords.Has(view[i]) {
		i++
	}
	if i == len(view) {
		return -1, -1
	}
	start = i
	for i < len(view) && inWords.Has(view[i]) {
		i++
	}
	return start, i
}

// wordBefore returns where the word begins that is the last one before i, and where it ends; -1 if there is none.
func wordBefore(view string, i int) (start, end int) {
	for i > 0 && !inWords.Has(view[i-1]) {
		i--
	}
	if i == 0 {
		return -1, -1
	}
	end = i
	for i > 0 && inWords.Has(view[i-1]) {
		i--
	}
	return i, end
}

// word looks closely at the word from i to end.
func (in *Inspection) word(view string, i, end int, within []string) {
	var lower [maxWord]byte
	word := small(&lower, view[i:end])
	if len(in.others) > 0 && in.others[string(word)] != nil {
		in.other(view, i, string(word), within)
	}
	e, ok := theLexicon().entries[string(word)]
	if !ok {
		return
	}
	for _, p := range e.phrases {
		if from, to := p.around(view, i); to > 0 {
			in.add("instruction", Suspicious, within, strings.ToLower(around(view, from, to)), p.text)
		}
	}
	if e.sign != "" && i > 0 && strings.HasPrefix(view[i-1:], e.sign) {
		in.call(view, i-1, e.sign, within)
	}
	if in.met |= e.is; e.is&setsAside != 0 {
		in.aside(view, i, within)
	}
}

// call notes what looks like a call of a tool. Honest text has arguments, too.
func (in *Inspection) call(view string, i int, sign string, within []string) {
	switch {
	case sign != arguments:
		in.add("tool call", Suspicious, within, around(view, i, i+len(sign)), sign)
	case strings.Contains(view[max(i-200, 0):min(i+200, len(view))], `"name"`):
		in.add("tool call", Note, within, around(view, i, i+len(sign)), "")
	}
}

const maxWord = 64

// small puts a word into small letters. One that is longer is none that is looked for.
func small(dst *[maxWord]byte, word string) []byte {
	if len(word) > maxWord {
		return nil
	}
	for k := range len(word) {
		c := word[k]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst[k] = c
	}
	return dst[:len(word)]
}

// aside looks whether the word at i, which sets something aside, is followed by a word for what a model has to obey.
func (in *Inspection) aside(view string, i int, within []string) {
	l := theLexicon()
	var lower [maxWord]byte
	is := func(start, end int) byte { return l.entries[string(small(&lower, view[start:end]))].is }
	met := byte(0)
	if start, end := wordBefore(view, i); start >= 0 {
		met = is(start, end) & earlier
	}
	for n, from := 0, i; n < reach; n++ {
		start, end := wordAt(view, from)
		if start < 0 {
			return
		}
		what := is(start, end)
		if n > 0 && what&setsAside != 0 {
			return // it is looked at for itself
		}
		if met |= what & earlier; what&order != 0 {
			severity := Note
			if met != 0 {
				severity = Suspicious
			}
			in.add("instruction", severity, within, strings.ToLower(around(view, i, end)), strings.ToLower(view[i:end]))
			return
		}
		from = end
	}
}

// around returns where the phrase begins and ends of which this word is at i, with anything between its words that is
// no word; 0, 0 if it is not there.
func (p *phrase) around(view string, i int) (from, to int) {
	for range p.before {
		if i, _ = wordBefore(view, i); i < 0 {
			return 0, 0
		}
	}
	from, to = i, i
	for w := range strings.SplitSeq(p.text, " ") {
		var start int
		if start, to = wordAt(view, to); start < 0 || !strings.EqualFold(view[start:to], w) {
			return 0, 0
		}
	}
	return from, to
}

// index makes what words are looked for by, once: the lexicon's, and the names of other servers' tools by their first
// word.
func (in *Inspection) index() {
	if in.begins != nil {
		return
	}
	in.begins = &theLexicon().begins
	if len(in.Others) > 0 {
		own := *in.begins
		in.begins = &own
	}
	in.others = map[string][]string{}
	for _, name := range in.Others {
		name = strings.ToLower(name)
		first := name[:length(name, isPlain)]
		if len(first) > 1 {
			in.others[first] = append(in.others[first], name)
			in.begins.with(first, int(first[0]))
		}
	}
}

// other notes that a text names a tool of another server: what comes of one has no reason to.
func (in *Inspection) other(view string, i int, word string, within []string) {
	for _, name := range in.others[word] {
		end := i + len(name)
		if end <= len(view) && strings.EqualFold(view[i:end], name) && (end == len(view) || !isPlain.Has(view[end])) &&
			strings.ContainsAny(name, "._-") {
			in.add("tool of another server", Suspicious, within, strings.ToLower(around(view, i, end)), name)
		}
	}
}

// forged looks for marks of pfar's and for the words of chat templates.
func (in *Inspection) forged(text string, within []string) {
	cleaned, changed := fence.Clean(text)
	if !changed {
		return
	}
	if n := strings.Count(cleaned, fence.Neutral) - strings.Count(text, fence.Neutral); n > 0 {
		k := strings.Index(cleaned, fence.Neutral)
		in.add(Forged(n, "").Kind, Suspicious, within, forgedNear(n, around(cleaned, k, k)), "")
	}
}

// Forged is the finding that so many words of marks or of chat templates stood in a text, the first of them near these.
func Forged(count int, near string) Finding {
	return Finding{Inspector: Name, Kind: "forged mark or template", Severity: Suspicious, Excerpt: Escape(forgedNear(count, near))}
}

// Unmarked is the finding that a text of strangers cannot be marked where it stands, and why.
func Unmarked(why error) Finding {
	return Finding{Inspector: Name, Kind: "unmarked text", Severity: Suspicious, Place: "/structuredContent", Excerpt: Escape(why.Error())}
}

func forgedNear(count int, near string) string {
	return fmt.Sprintf("%d of them, the first near: %s", count, near)
}

const manyHidden = 16

// hidden looks for what a person does not see where a model does.
func (in *Inspection) hidden(text string, plain bool, within []string) {
	count, says := 0, ""
	if !plain {
		count, says = fence.Hidden(text)
	}
	switch {
	case len(says) > 3:
		in.add("hidden text", Severe, within, says, says)
		in.text(says, append(within[:len(within):len(within)], "tag characters"))
	case count >= manyHidden:
		in.add("hidden text", Suspicious, within, fmt.Sprintf("%d invisible characters", count), "")
	case count > 0:
		in.add("hidden text", Note, within, fmt.Sprintf("%d invisible characters", count), "")
	}
	for rest := text; ; {
		_, behind, ok := strings.Cut(rest, "<!--")
		if !ok {
			break
		}
		comment, after, closed := strings.Cut(behind, "-->")
		if inner := (Inspection{Builtin: in.Builtin, direction: in.direction, limits: in.limits, begins: in.begins,
			others: in.others}); len(comment) > 12 {
			inner.instructions(comment, ordinary(comment), nil)
			if len(inner.findings) > 0 {
				in.add("hidden text", Severe, within, comment, comment)
			}
		}
		if rest = after; !closed {
			break
		}
	}
	in.styles(text, within)
}

// styles notes what makes a text of HTML invisible. Honest pages have it, too.
func (in *Inspection) styles(text string, within []string) {
	if in.met&styled == 0 {
		return
	}
	lower := strings.ToLower(text)
	for _, style := range [...]string{"display:none", "display: none", "visibility:hidden", "visibility: hidden",
		"font-size:0", "font-size: 0", "opacity:0;", "opacity: 0;", "color:transparent", "left:-9999", "left: -9999"} {
		if k := strings.Index(lower, style); k >= 0 {
			in.add("hidden text", Note, within, around(lower, k, k+len(style)), "")
		}
	}
}

const (
	manyParameters = 64 // characters of a query, or of one part of a path
	maxAddress     = 2 << 10
)

// exfiltration looks for images whose address carries data: a client that shows one sends it. Each address is read
// anew, which is work.
func (in *Inspection) exfiltration(text string, within []string) {
	for rest := text; ; {
		alt, behind, ok := strings.Cut(rest, "](")
		if !ok {
			break
		}
		rest = behind
		if open := opening(alt); open < 1 || alt[open-1] != '!' {
			continue
		}
		url := destination(rest)
		if !in.works(len(url), within) {
			return
		}
		in.image(url, within)
	}
	for rest := text; ; {
		_, behind, ok := strings.Cut(rest, "<")
		if !ok {
			break
		}
		rest = behind
		if len(rest) < 4 || !strings.EqualFold(rest[:3], "img") {
			continue
		}
		tag, _, _ := strings.Cut(rest[:min(maxAddress, len(rest))], ">")
		if !in.works(len(tag), within) {
			return
		}
		if src := source.FindStringSubmatch(tag); src != nil {
			in.image(src[1], within)
		}
	}
}

// source is where an image of HTML comes from.
var source = regexp.MustCompile(`(?i)\bsrc\s*=\s*["']?([^\s"']+)`)

// opening is where the bracket is that one behind this text closes; -1 if there is none.
func opening(text string) int {
	depth := 0
	for i := len(text) - 1; i >= 0; i-- {
		switch text[i] {
		case ']':
			depth++
		case '[':
			if depth == 0 {
				return i
			}
			depth--
		}
	}
	return -1
}

// destination is the address of a link of Markdown that begins here. There may be parentheses in it, if as many are
// closed.
func destination(text string) string {
	text = text[:min(maxAddress, len(text))]
	if inner, ok := strings.CutPrefix(text, "<"); ok {
		inner, _, _ = strings.Cut(inner, ">")
		return inner
	}
	depth := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ', c == ')' && depth == 0:
			return text[:i]
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
	}
	return text
}

// image looks at the address of one.
func (in *Inspection) image(url string, within []string) {
	_, rest, ok := strings.Cut(url, "//")
	if !ok {
		return
	}
	_, query, _ := strings.Cut(rest, "?")
	longest := 0
	for part := range strings.FieldsFuncSeq(rest, func(r rune) bool { return r == '/' || r == '?' || r == '&' }) {
		longest = max(longest, len(part))
	}
	switch {
	case strings.ContainsAny(query, "{}[]<>$") || strings.HasSuffix(query, "=") || strings.Contains(query, "%7B"):
		in.add("image that carries data", Suspicious, within, url, url)
	case longest >= manyParameters || len(query) >= manyParameters:
		in.add("image that carries data", Suspicious, within, url, url)
	case query != "":
		in.add("image that carries data", Note, within, url, url)
	}
}
