package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

// waitingCall is a call that waits for the operator, as it is shown.
type waitingCall struct{ operator.Shown }

// maxOnScreen is how long a call may be, as it is shown, to be approved without being named by its digest: nobody reads
// more on a terminal, and its beginning may have been written to be all that is read.
const maxOnScreen = 64 << 10

// what is the tool or other thing that is called.
func (w *waitingCall) what() string { return w.Server + "." + w.Name }

// page is text for a screen of so many columns. No line is longer: where a terminal breaks one, what follows would
// stand at the left edge, and a stranger who counts columns could draw a line of ours there.
type page struct {
	strings.Builder
	columns int
}

// line writes a text behind a head. It breaks the text at words and puts a mark, which no text can write, before each
// further line.
func (p *page) line(head, text string) {
	const more = "  + "
	width := p.columns - 1 // a space may stand one column too far
	for _, line := range breakLines(text, width-utf8.RuneCountInString(head), width-len(more), mostColumns) {
		fmt.Fprintf(p, "%s%s\n", head, line)
		head = more
	}
}

// trimmed is the page without the spaces that its lines were broken at.
func (p *page) trimmed() string {
	var b strings.Builder
	for line := range strings.Lines(p.String()) {
		fmt.Fprintln(&b, strings.TrimRight(line, " \n"))
	}
	return b.String()
}

// item writes pfar's own words behind a head, and further lines below the first.
func (p *page) item(head, text string) {
	width := p.columns - 1 - utf8.RuneCountInString(head)
	for _, line := range breakLines(text, width, width, mostColumns) {
		fmt.Fprintln(p, strings.TrimRight(head+line, " "))
		head = strings.Repeat(" ", utf8.RuneCountInString(head))
	}
}

// words writes words of pfar's own, which need no mark on further lines.
func (p *page) words(text string) {
	for _, line := range breakLines(text, p.columns-1, p.columns-1, mostColumns) {
		fmt.Fprintln(p, strings.TrimRight(line, " "))
	}
}

// mostColumns returns how many columns a character may take on any terminal. East Asian characters and pictures take
// two; a character that takes fewer only makes the line break early.
func mostColumns(character string) int {
	n := 0
	for _, r := range character {
		if n++; r >= 0x1100 {
			n++
		}
	}
	return n
}

// columnsOf is how many columns there are to write to.
func columnsOf(w io.Writer) int {
	const usual, least, most = 80, 40, 120
	columns, _ := sizeOf(w)
	return min(max(cmp.Or(columns, usual), least), most) - 1
}

// render is the whole call, in the order of what matters. Every line of a stranger's text has something before it that
// is not the stranger's, so that none of it passes for a part of the question.
func (w *waitingCall) render(columns int) string {
	b := page{columns: columns}
	row := func(name, text string) { b.line(fmt.Sprintf("%-9s ", name), visible.Reveal(text)) }
	b.line(fmt.Sprintf("%-9s ", "asks"), wording.Sentence(&w.Shown))
	row("call", w.what())
	if w.Method != "tools/call" {
		row("method", w.Method)
	}
	for _, odd := range append(lookAlikes(w.Server, ofName), lookAlikes(w.Name, ofName)...) {
		row("WARNING", "letters that look like others: "+odd)
	}
	row("client", w.Client+", session "+w.Session)
	if w.Silent > 0 {
		row("silent", silentWords(w.Silent, w.Client+"/"+w.Session))
	}
	row("effect", fmt.Sprintf("%s (%s)", w.Facts.Effect, w.Facts.From.Effect))
	row("audience", fmt.Sprintf("%s (%s)", w.Facts.Audience, w.Facts.From.Audience))
	row("carries", w.Decision.Data.String()+", at most")
	row("why", w.Decision.Reason)
	row("rule", w.Decision.Rule)
	if w.Decision.Once {
		row("WARNING", "private data and strangers' text have met in this session: this call could carry the one out on behalf of the other")
	}
	for _, f := range w.Findings {
		row("WARNING", "an inspector says: "+f)
	}
	for _, s := range w.Sources {
		row("seen", fmt.Sprintf("%s.%s at %s: %s", s.Server, s.Tool, stamp(s.At), s.Label))
	}
	if len(w.Masked) > 0 {
		row("hidden", "secrets of the vault: "+strings.Join(w.Masked, ", "))
	}
	renderGrants(row, w.Grants)
	w.renderArguments(&b)
	row("id", w.ID)
	row("digest", w.Digest)
	return b.String()
}

func (w *waitingCall) renderArguments(b *page) {
	sum := sha256.Sum256(w.Arguments)
	shown := ""
	if len(w.Masked) == 0 {
		shown = ", SHA-256 " + hex.EncodeToString(sum[:])[:16]
	}
	list, err := wording.Arguments(w.Arguments)
	if err != nil {
		fmt.Fprintf(b, "arguments of %d bytes that are not JSON%s:\n", len(w.Arguments), shown)
		b.line("  | ", visible.Reveal(string(w.Arguments)))
		return
	}
	fmt.Fprintf(b, "arguments, %d bytes%s:\n", len(w.Arguments), shown)
	for _, a := range list {
		renderArgument(b, a)
	}
}

// pointerName is where an argument stands.
func pointerName(pointer string) string {
	name := visible.Reveal(pointer)
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./~") != "" || name == "" {
		return wording.Quoted(pointer) // or it could look like a name with its value
	}
	return name
}

// renderArgument shows one value: a text of several lines as lines, anything else as JSON would write it.
func renderArgument(b *page, a wording.Argument) {
	name := pointerName(a.Pointer)
	text, isText := a.Value.(string)
	switch {
	case !isText:
		value, _ := json.Marshal(a.Value) // a number, true, null, {} or []
		b.line("  ", name+": "+string(value))
	case strings.Contains(strings.TrimSuffix(text, "\n"), "\n"):
		b.line("  ", fmt.Sprintf("%s: text of %d characters", name, utf8.RuneCountInString(text)))
		for line := range strings.Lines(text) {
			whole, ended := strings.CutSuffix(line, "\n")
			b.line("  | ", visible.Reveal(whole))
			if !ended {
				fmt.Fprintf(b, "  (no line feed at the end)\n")
			}
		}
	default:
		b.line("  ", name+": "+wording.Quoted(text))
	}
	s := ofText
	if wording.Decisive(a.Pointer) {
		s = ofAddress
	}
	for _, odd := range append(lookAlikes(a.Pointer, ofName), lookAlikes(text, s)...) {
		b.line("  WARNING: ", "letters that look like others: "+odd)
	}
	if strings.ContainsFunc(a.Pointer+text, rightToLeft) {
		b.line("  WARNING: ", "letters that are written from right to left: it may not read in its order")
	}
}

// printWaiting shows the call to a person.
func printWaiting(c *streams, out io.Writer, w *waitingCall) {
	for line := range strings.Lines(w.render(columnsOf(out))) {
		fmt.Fprintln(out, c.paint(out, colourOf(line), strings.TrimSuffix(line, "\n")))
	}
}

// colourOf is the colour of a line of a call that is shown whole.
func colourOf(line string) string {
	if strings.HasPrefix(line, "WARNING") || strings.HasPrefix(line, "  WARNING") {
		return red
	}
	return ""
}
