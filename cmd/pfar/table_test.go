package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
)

// TestTableOnATerminal: no line is wider than the terminal, no word is broken that fits, and nothing is left out.
func TestTableOnATerminal(t *testing.T) {
	servers := [][]cell{
		heading("NAME", "STATE", "DETAIL"),
		{{"notion", ""}, {"running", green}, {"24 tools; refused telemetry.example.com:443 (name-not-declared)", ""}},
		{{"漢字漢字", ""}, {"", ""}, {"x", ""}},
	}
	for _, tt := range []struct {
		name    string
		rows    [][]cell
		columns int
		want    string
	}{
		{"room enough", servers, 100, `
NAME      STATE    DETAIL
notion    running  24 tools; refused telemetry.example.com:443 (name-not-declared)
漢字漢字           x
`},
		{"wrapped in its column", servers, 50, `
NAME      STATE    DETAIL
notion    running  24 tools; refused
                   telemetry.example.com:443
                   (name-not-declared)
漢字漢字           x
`},
		{"blocks, where words would break", servers, 35, `
NAME    notion
STATE   running
DETAIL  24 tools; refused
        telemetry.example.com:443
        (name-not-declared)

NAME    漢字漢字
DETAIL  x
`},
		{"no heading, so the last column breaks", [][]cell{{{"log", bold}, {"/var/lib/pfar/log", ""}}}, 15, `
log  /var/lib/p
     far/log
`},
		{"a stranger's control characters", [][]cell{heading("A"), {{"x\x1b[31m\ny", ""}}}, 8, `
A  x\x1b
   [31m\
   ny
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			c := newPfar(nil, &b, &b, func(string) string { return "" }, 0)
			lines := c.tableLines(&b, tt.rows, tt.columns)
			if got := "\n" + strings.Join(lines, "\n") + "\n"; got != tt.want {
				t.Errorf("got:%s\nwant:%s", got, tt.want)
			}
			for _, line := range lines {
				if n := uniseg.StringWidth(line); n > tt.columns {
					t.Errorf("%d columns of %d: %q", n, tt.columns, line)
				}
			}
		})
	}
}

func FuzzBreakLines(f *testing.F) {
	f.Add("the session has read untrusted text and private data", uint8(10), uint8(7))
	f.Add("漢字 e\u0301\u0301 👩‍👩‍👧 aaaaaaaaaaaaaaaaaaaaa", uint8(3), uint8(1))
	f.Fuzz(func(t *testing.T, text string, first, rest uint8) {
		lines := breakLines(text, int(first), int(rest), uniseg.StringWidth)
		if joined := strings.Join(lines, ""); joined != text {
			t.Fatalf("%q became %q", text, joined)
		}
		width := int(first)
		for _, line := range lines {
			if shown := strings.TrimSuffix(line, " "); uniseg.StringWidth(shown) > width && uniseg.GraphemeClusterCount(shown) > 1 {
				t.Errorf("%q has more than %d columns", line, width)
			}
			width = int(rest)
		}
	})
}

// TestPageBreaksAtWords: the reason of an approval is readable, and no line of a stranger's text reaches the edge.
func TestPageBreaksAtWords(t *testing.T) {
	p := page{columns: 41}
	p.line("why       ", "private data would go to the public, on behalf of a stranger")
	p.line("  | ", strings.Repeat("漢", 30))
	want := `why       private data would go to the 
  + public, on behalf of a stranger
  | ` + strings.Repeat("漢", 18) + `
  + ` + strings.Repeat("漢", 12) + "\n"
	if p.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", p.String(), want)
	}
}
