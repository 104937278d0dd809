package declaration

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/mitchellh/go-wordwrap"
	"golang.org/x/text/width"

	"github.com/pfar/pfar/policies/block"
)

const (
	mask      = "***"
	narrowest = 40
	unlimited = 200 // of a source line, where no width is given
)

// Write prints diagnostics: place, kind, source line with the subject underlined, and what to write instead.
// Lines begin with "file:line:column:", which editors and compilers' output filters know. Nothing in a file reaches a
// terminal unescaped, and what may be a secret is not printed.
func Write(w io.Writer, files map[string]*hcl.File, diags hcl.Diagnostics, columns uint, color bool) error {
	for _, d := range diags {
		var out bytes.Buffer
		writeHead(&out, d, color)
		if d.Subject != nil {
			if f := files[d.Subject.Filename]; f != nil {
				writeLine(&out, f.Bytes, d, columns, color)
			}
		}
		if d.Detail != "" {
			detail := block.Escape(d.Detail)
			if columns > narrowest {
				detail = wordwrap.WrapString(detail, columns-2)
			}
			out.WriteString("  " + strings.ReplaceAll(detail, "\n", "\n  ") + "\n")
		}
		out.WriteByte('\n')
		if _, err := w.Write(out.Bytes()); err != nil {
			return fmt.Errorf("writing diagnostics: %w", err)
		}
	}
	return nil
}

func writeHead(out *bytes.Buffer, d *hcl.Diagnostic, color bool) {
	severity, code := "error", "\x1b[31m"
	if d.Severity == hcl.DiagWarning {
		severity, code = "warning", "\x1b[33m"
	}
	if color {
		severity = code + severity + "\x1b[0m"
	}
	if d.Subject != nil {
		fmt.Fprintf(out, "%s:%d:%d: ", block.Escape(d.Subject.Filename), d.Subject.Start.Line, d.Subject.Start.Column)
	}
	fmt.Fprintf(out, "%s: %s\n", severity, block.Escape(d.Summary))
}

// cell is a character of a source line as it is printed.
type cell struct {
	text   string
	width  int
	marked bool
}

// writeLine prints the line that the subject starts in.
func writeLine(out *bytes.Buffer, src []byte, d *hcl.Diagnostic, columns uint, color bool) {
	at := *d.Subject
	if at.Start.Byte < 0 || at.Start.Byte > len(src) {
		return
	}
	from := bytes.LastIndexByte(src[:at.Start.Byte], '\n') + 1
	to := len(src)
	if i := bytes.IndexByte(src[at.Start.Byte:], '\n'); i >= 0 {
		to = at.Start.Byte + i
	}
	line := bytes.TrimRight(src[from:to], "\r")
	if len(bytes.TrimSpace(line)) == 0 || len(src) > maxSize {
		return
	}
	hidden, _ := d.Extra.(*block.Hidden)
	cells := cut(cellsOf(line, from, at, merged(hidden.Parts(at.Filename, src, from, line))), columns)
	margin := fmt.Sprintf("%4d | ", at.Start.Line)
	var shown strings.Builder
	for _, c := range cells {
		shown.WriteString(c.text)
	}
	out.WriteString(strings.TrimRight("  "+margin+shown.String(), " ") + "\n")
	out.WriteString("  " + strings.Repeat(" ", len(margin)-2) + "| ")
	under := strings.TrimRight(underline(cells), " ")
	if color {
		under = strings.Replace(under, "^", "\x1b[1m^", 1) + "\x1b[0m"
	}
	out.WriteString(under + "\n")
}

func underline(cells []cell) string {
	var s strings.Builder
	for _, c := range cells {
		switch {
		case c.marked:
			s.WriteString(strings.Repeat("^", max(c.width, 1)))
		case c.text == "\t":
			s.WriteByte('\t')
		default:
			s.WriteString(strings.Repeat(" ", c.width))
		}
	}
	return s.String()
}

// cellsOf lays a line out. Each run of parts that may be a secret becomes one cell.
func cellsOf(line []byte, from int, at hcl.Range, secrets [][2]int) []cell {
	var cells []cell
	end := max(at.End.Byte, at.Start.Byte+1)
	inMask := false
	for i, r := range string(line) {
		pos := from + i
		c := cell{marked: pos >= at.Start.Byte && pos < end}
		for len(secrets) > 0 && secrets[0][1] <= pos {
			secrets = secrets[1:]
		}
		if len(secrets) > 0 && secrets[0][0] <= pos {
			if inMask {
				last := &cells[len(cells)-1]
				last.marked = last.marked || c.marked
				continue
			}
			inMask, c.text, c.width = true, mask, len(mask)
			cells = append(cells, c)
			continue
		}
		inMask = false
		c.text, c.width = printed(r)
		cells = append(cells, c)
	}
	if at.Start.Byte >= from+len(line) { // a missing end
		cells = append(cells, cell{text: " ", width: 1, marked: true})
	}
	return cells
}

func printed(r rune) (string, int) {
	if r == '\t' {
		return "\t", 1
	}
	s := block.Escape(string(r))
	if len(s) > 1 && s[0] == '\\' {
		return s, len(s)
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return s, 2
	}
	if unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r) || r == 0x200c || r == 0x200d {
		return s, 0
	}
	return s, 1
}

// cut keeps the part of a long line around what is marked.
func cut(cells []cell, columns uint) []cell {
	room := unlimited
	if columns > 0 {
		room = max(int(columns), narrowest) - 9
	}
	if len(cells) <= room {
		return cells
	}
	first := max(slices.IndexFunc(cells, func(c cell) bool { return c.marked }), 0)
	start := max(0, min(first-room/3, len(cells)-room))
	stop := min(start+room, len(cells))
	kept := slices.Clone(cells[start:stop])
	dots := cell{text: "...", width: 3}
	if start > 0 {
		kept = slices.Insert(kept, 0, dots)
	}
	if stop < len(cells) {
		kept = append(kept, dots)
	}
	return kept
}

// merged sorts parts and joins those that overlap.
func merged(parts [][2]int) [][2]int {
	slices.SortFunc(parts, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
	out := parts[:0]
	for _, p := range parts {
		if n := len(out); n > 0 && p[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], p[1])
			continue
		}
		out = append(out, p)
	}
	return out
}
