package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
)

// cell is one field of a table.
type cell struct{ text, colour string }

const (
	columnGap   = 2  // spaces between two columns
	longestWord = 32 // columns; a longer word may be broken, but not in the first column, which has names and ids
)

// table prints rows in columns and escapes every text. On a terminal, texts that do not fit are wrapped in their
// column; if even their words do not fit, a table with a heading becomes one block for each row. Elsewhere each row is
// one line.
func (c *streams) table(w io.Writer, rows [][]cell) {
	columns := widthOf(w)
	if columns == 0 {
		columns = math.MaxInt
	}
	for _, line := range c.tableLines(w, rows, columns) {
		fmt.Fprintln(w, line)
	}
}

func (c *streams) tableLines(w io.Writer, rows [][]cell, columns int) []string {
	widths, fit := tableWidths(rows, columns)
	if !fit && headed(rows) {
		return c.blocks(w, rows, columns)
	}
	var lines []string
	for _, row := range rows {
		lines = append(lines, c.wrapped(w, row, widths)...)
	}
	return lines
}

// aligned returns one line for each row. The first columns, as many as words says, begin at the left; the others have
// numbers and end at the right. It escapes every text.
func (c *streams) aligned(w io.Writer, rows [][]cell, words int) []string {
	widths, _ := tableWidths(rows, math.MaxInt)
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var b strings.Builder
		pad := 0
		for i, f := range row {
			text := escape(f.text, oneLine)
			space := widths[i] - uniseg.StringWidth(text)
			if i >= words {
				pad, space = pad+space, 0
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", pad))
				b.WriteString(c.paint(w, f.colour, text))
				pad = 0
			}
			pad += space + columnGap
		}
		lines = append(lines, b.String())
	}
	return lines
}

// heading makes the first row of a table.
func heading(names ...string) []cell {
	row := make([]cell, len(names))
	for i, n := range names {
		row[i] = cell{n, bold}
	}
	return row
}

// headed reports whether the first row of a table is a heading.
func headed(rows [][]cell) bool {
	return len(rows) > 0 && !slices.ContainsFunc(rows[0], func(f cell) bool { return f.colour != bold })
}

// tableWidths returns the width of each column, and whether all of them fit. It narrows the widest column first, down
// to its longest word.
func tableWidths(rows [][]cell, columns int) (widths []int, fit bool) {
	var least []int
	for _, row := range rows {
		for i, f := range row {
			if i == len(widths) {
				widths, least = append(widths, 0), append(least, 0)
			}
			text := escape(f.text, oneLine)
			widths[i] = max(widths[i], uniseg.StringWidth(text))
			for word := range strings.FieldsSeq(text) {
				n := uniseg.StringWidth(word)
				if i > 0 {
					n = min(n, longestWord)
				}
				least[i] = max(least[i], n)
			}
		}
	}
	over := columnGap*(len(widths)-1) - columns
	for _, n := range widths {
		over += n
	}
	for ; over > 0; over-- {
		widest := -1
		for i, n := range widths {
			if n > least[i] && (widest < 0 || n > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	if over > 0 && len(widths) > 0 { // no heading may be there to make blocks with: the last column breaks its words
		last := &widths[len(widths)-1]
		*last = max(*last-over, 1)
	}
	return widths, over <= 0
}

// wrapped returns the lines of one row.
func (c *streams) wrapped(w io.Writer, row []cell, widths []int) []string {
	parts := make([][]string, len(row))
	height := 1
	for i, f := range row {
		parts[i] = breakLines(escape(f.text, oneLine), widths[i], widths[i], uniseg.StringWidth)
		height = max(height, len(parts[i]))
	}
	lines := make([]string, height)
	for n := range lines {
		var b strings.Builder
		pad := 0
		for i, f := range row {
			text := ""
			if n < len(parts[i]) {
				text = strings.TrimRight(parts[i][n], " ")
			}
			if text != "" {
				b.WriteString(strings.Repeat(" ", pad))
				b.WriteString(c.paint(w, f.colour, text))
				pad = 0
			}
			pad += widths[i] - uniseg.StringWidth(text) + columnGap
		}
		lines[n] = b.String()
	}
	return lines
}

// event prints one row of a table whose other rows are not known. Its first columns have at least the widths of fixed.
func (c *streams) event(w io.Writer, row []cell, fixed ...int) error {
	rest := widthOf(w)
	if rest == 0 {
		rest = math.MaxInt
	}
	widths := make([]int, len(row))
	for i, f := range row[:len(row)-1] {
		widths[i] = uniseg.StringWidth(escape(f.text, oneLine))
		if i < len(fixed) {
			widths[i] = max(widths[i], fixed[i])
		}
		rest -= widths[i] + columnGap
	}
	const least = 20
	widths[len(row)-1] = max(rest, least)
	for _, line := range c.wrapped(w, row, widths) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// blocks returns the rows of a table below each other, one line or more for each field that is not empty.
func (c *streams) blocks(w io.Writer, rows [][]cell, columns int) []string {
	var lines []string
	for i, row := range rows[1:] {
		if i > 0 {
			lines = append(lines, "")
		}
		var fields [][]cell
		for k, f := range row {
			if f.text != "" && k < len(rows[0]) {
				fields = append(fields, []cell{{rows[0][k].text, bold}, f})
			}
		}
		widths, _ := tableWidths(fields, columns)
		for _, f := range fields {
			lines = append(lines, c.wrapped(w, f, widths)...)
		}
	}
	return lines
}

// breakLines breaks a text into lines of at most first columns, then of at most rest. It breaks after a space where
// there is one, and that space may stand one column too far. The lines joined are the text. measure returns the columns
// of one character.
func breakLines(text string, first, rest int, measure func(string) int) []string {
	var lines []string
	width, start, used, space := first, 0, 0, 0 // space is where the word begins that is being read
	for at := 0; at < len(text); {
		character, _, _, _ := uniseg.FirstGraphemeClusterInString(text[at:], -1)
		n := measure(character)
		if used+n > width && at > start && !(character == " " && used == width) {
			end := at
			if space > start {
				end = space
			}
			lines = append(lines, text[start:end])
			at, used = end, 0 // the next line may be shorter, so that the word does not fit there either
			start, width = end, rest
			continue
		}
		used += n
		if at += len(character); character == " " {
			space = at
		}
	}
	return append(lines, text[start:])
}
