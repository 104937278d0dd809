package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/pfar/pfar/policies/visible"
)

// SGR parameters, ECMA-48 8.3.117.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// fileOf is the file that v, a reader or writer, is.
func fileOf(v any) (*os.File, bool) {
	if w, ok := v.(*keptWriter); ok {
		v = w.Writer
	}
	f, ok := v.(*os.File)
	return f, ok
}

// isTerminal reports whether v, a reader or writer, is one.
func isTerminal(v any) bool {
	f, ok := fileOf(v)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf is the width of the terminal that w is; 0 if it is none, or does not say.
func widthOf(w io.Writer) (columns int) {
	if f, ok := fileOf(w); ok {
		columns, _, _ = term.GetSize(int(f.Fd()))
	}
	return columns
}

// coloured reports whether colour may go to w: only to a terminal that can, and never against NO_COLOR (no-color.org).
func (c *streams) coloured(w io.Writer) bool {
	return isTerminal(w) && c.getenv("NO_COLOR") == "" && c.getenv("TERM") != "dumb"
}

func (c *streams) paint(w io.Writer, colour, s string) string {
	if colour == "" || s == "" || !c.coloured(w) {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// lines says what escape does with line breaks.
type lines bool

const (
	oneLine   lines = false
	keepLines lines = true
)

// escape makes a stranger's text safe to look at: control characters, which a terminal obeys, and the format characters
// that reorder or hide what a person reads (CVE-2021-42574) become visible as \x1b or \u202e.
func escape(s string, l lines) string {
	return visible.Escape(s, func(r rune) bool { return hostile(r, l) })
}

func hostile(r rune, l lines) bool {
	if r == '\n' || r == '\t' {
		return l == oneLine
	}
	return visible.Deceptive(r)
}

// escapeJSON does the same to encoded JSON and keeps its meaning: outside of strings JSON has of such characters the
// carriage return alone, which is a space there, and inside \uXXXX stands for itself.
func escapeJSON(b []byte) []byte {
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r == '\r':
			out.WriteByte(' ')
		case r == utf8.RuneError || !hostile(r, keepLines):
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		}
	}
	return []byte(out.String())
}
