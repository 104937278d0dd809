package block

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"github.com/apparentlymart/go-textseg/v15/textseg"
	"github.com/hashicorp/hcl/v2"
)

// The syntaxes, as file names end.
const (
	HCL  = ".hcl"
	TOML = ".toml"
)

// SplitName returns a file's base name and its syntax; "" if it has neither.
func SplitName(filename string) (base, ext string) {
	base = path.Base(filename)
	for _, e := range []string{HCL, TOML} {
		if b, ok := strings.CutSuffix(base, e); ok {
			return b, e
		}
	}
	return base, ""
}

// Source is the text of one file, and finds the line and column of an offset.
type Source struct {
	Name    string
	Bytes   []byte
	lines   []int           // offset of each line's first byte
	columns map[int][]int32 // of the lines that were asked for: each byte's column, and the end's
}

// NewSource returns the source of a file.
func NewSource(name string, b []byte) *Source {
	s := &Source{Name: name, Bytes: b, lines: []int{0}, columns: map[int][]int32{}}
	for i, c := range b {
		if c == '\n' {
			s.lines = append(s.lines, i+1)
		}
	}
	return s
}

// Pos counts columns as hcl does, in grapheme clusters, so that both syntaxes agree.
func (s *Source) Pos(offset int) hcl.Pos {
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
func (s *Source) count(line int) []int32 {
	end := len(s.Bytes)
	if line < len(s.lines) {
		end = s.lines[line]
	}
	rest := s.Bytes[s.lines[line-1]:end]
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

// Span is the range of some bytes.
func (s *Source) Span(from, to int) hcl.Range {
	return hcl.Range{Filename: s.Name, Start: s.Pos(from), End: s.Pos(to)}
}

// Start is where the diagnostics of a whole file point.
func (s *Source) Start() hcl.Range {
	return hcl.Range{Filename: s.Name, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// inside keeps a range within the file: the parser points past the end for what it misses there.
func (s *Source) inside(r hcl.Range) hcl.Range {
	if r.Start.Byte > len(s.Bytes) {
		return s.Span(len(s.Bytes), len(s.Bytes))
	}
	if r.End.Byte > len(s.Bytes) || r.End.Byte < r.Start.Byte {
		r.End = s.Pos(len(s.Bytes))
	}
	return r
}

// line returns the text of the line that a range starts in.
func (s *Source) line(r hcl.Range) string {
	text, _, _ := strings.Cut(string(s.Bytes[s.lines[r.Start.Line-1]:]), "\n")
	return strings.TrimSpace(text)
}

// Report collects the diagnostics of a file.
type Report struct {
	Diags  hcl.Diagnostics
	Hidden Hidden
}

// Problem reports an error.
func (r *Report) Problem(at hcl.Range, summary, format string, args ...any) {
	r.Diags = append(r.Diags, Problem(at, summary, format, args...))
}

// Caution reports a warning.
func (r *Report) Caution(at hcl.Range, summary, format string, args ...any) {
	r.Diags = append(r.Diags, Caution(at, summary, format, args...))
}

// Problem returns an error at a place.
func Problem(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	return &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: &at,
	}
}

// Caution returns a warning at a place.
func Caution(at hcl.Range, summary, format string, args ...any) *hcl.Diagnostic {
	d := Problem(at, summary, format, args...)
	d.Severity = hcl.DiagWarning
	return d
}
