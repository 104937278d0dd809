package main

import (
	"cmp"
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
	columns := widthOf(w)
	return min(max(cmp.Or(columns, usual), least), most) - 1
}

// render is the whole call, in the order of what matters. Every line of a stranger's text has something before it that
// is not the stranger's, so that none of it passes for a part of the question.
func (w *waitingCall) render(columns int) string {
	b := page{columns: columns}
	row := func(name, text string) { b.line(fmt.Sprintf("%-9s ", name), text) }
	whole := wording.Read(&w.Shown)
	for _, r := range whole.Head {
		row(r.Name, r.Text)
	}
	renderGrants(func(name, text string) { row(name, visible.Reveal(text)) }, w.Grants)
	fmt.Fprintf(&b, "%s:\n", whole.Title)
	for _, v := range whole.Values {
		renderValue(&b, v)
	}
	for _, r := range whole.Foot {
		row(r.Name, r.Text)
	}
	return b.String()
}

// renderValue shows one argument.
func renderValue(b *page, v wording.Value) {
	if v.Head != "" {
		b.line("  ", v.Head)
	}
	for _, line := range v.Lines {
		b.line("  | ", line)
	}
	if v.Unended {
		fmt.Fprintf(b, "  (%s)\n", wording.Unended)
	}
	for _, warning := range v.Warnings {
		b.line("  WARNING: ", warning)
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
