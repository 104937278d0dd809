package declaration

import (
	"bytes"
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/apparentlymart/go-textseg/v15/textseg"
	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/visible"
)

// maxSize bounds one file: a thousand times what a declaration needs, and small enough to be read again at each event.
const maxSize = 256 << 10

// source is the text of one file, with what is needed to say where something stands in it.
type source struct {
	name    string
	bytes   []byte
	lines   []int           // offset of each line's first byte
	columns map[int][]int32 // of the lines that were asked for: each byte's column, and the end's
}

func newSource(name string, b []byte) *source {
	s := &source{name: name, bytes: b, lines: []int{0}, columns: map[int][]int32{}}
	for i, c := range b {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// pos counts columns as hcl does, in grapheme clusters, so that both syntaxes agree.
func (s *source) pos(offset int) hcl.Pos {
	line := sort.SearchInts(s.lines, offset+1)
	first := s.lines[line-1]
	columns, ok := s.columns[line]
	if !ok {
		columns = s.count(line)
		s.columns[line] = columns
	}
	return hcl.Pos{Line: line, Column: int(columns[offset-first]), Byte: offset}
}

// count is done once for a line: a file may be one line of a thousand values.
func (s *source) count(line int) []int32 {
	end := len(s.bytes)
	if line < len(s.lines) {
		end = s.lines[line]
	}
	rest := s.bytes[s.lines[line-1]:end]
	columns := make([]int32, 0, len(rest)+1)
	column := int32(1)
	for len(rest) > 0 {
		n, _, err := textseg.ScanGraphemeClusters(rest, true)
		if err != nil || n == 0 { // never, says the scanner's documentation
			n = len(rest)
		}
		columns = append(columns, column)
		for range n - 1 {
			columns = append(columns, column+1)
		}
		rest, column = rest[n:], column+1
	}
	return append(columns, column)
}

func (s *source) span(from, to int) hcl.Range {
	return hcl.Range{Filename: s.name, Start: s.pos(from), End: s.pos(to)}
}

// start is where the diagnostics of a whole file point.
func (s *source) start() hcl.Range {
	return hcl.Range{Filename: s.name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// refuse finds what makes a file unreadable before any syntax, and what shows a reader something else than what is
// parsed.
func (s *source) refuse() *hcl.Diagnostic {
	b := s.bytes
	switch {
	case len(b) > maxSize:
		return problem(s.start(), "File too large", "A declaration has at most %d KiB. One file declares one server: look whether this is the right file.", maxSize>>10)
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return problem(s.start(), "Byte order mark", "The file starts with a byte order mark, which is invisible and part of the first key. Save it as UTF-8 without one.")
	case bytes.HasPrefix(b, []byte("\xff\xfe")), bytes.HasPrefix(b, []byte("\xfe\xff")):
		return problem(s.start(), "Not UTF-8", "The file is UTF-16. Save it as UTF-8.")
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return problem(s.span(i, i+1), "Not UTF-8", "The byte 0x%02x is not UTF-8. Save the file as UTF-8.", b[i])
		}
		if r == '\r' && i+1 < len(b) && b[i+1] == '\n' {
			i += 2
			continue
		}
		if r != '\n' && r != '\t' && visible.Deceptive(r) {
			return invisible(s.span(i, i+n), r)
		}
		i += n
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return problem(s.start(), "Empty declaration", `The file declares nothing. Write at least the command of the server: command = "node" and args = ["/path/to/server.js"].`)
	}
	return nil
}

func invisible(at hcl.Range, r rune) *hcl.Diagnostic {
	switch r {
	case 0:
		return problem(at, "Not text", "The file has a NUL byte, so it is not a text file. Remove it.")
	case '\r':
		return problem(at, "Invisible character", "A carriage return without a line feed hides text on a terminal. End lines with a line feed.")
	}
	code := fmt.Sprintf(`\u%04X`, r)
	if r > 0xffff {
		code = fmt.Sprintf(`\U%08X`, r)
	}
	return problem(at, "Invisible character", "The character U+%04X is invisible, or shows text in another order than it is read. Remove it, or write it as %s within a string.", r, code)
}

func problem(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at}
}

func caution(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := problem(at, summary, format, args...)
	d.Severity = hcl.DiagWarning
	return d
}
