package policies

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

// MaxSize bounds one file, in bytes.
const MaxSize = 256 << 10

// refuse finds what makes a file unreadable, and what shows a reader something else than what is parsed.
func refuse(name string, src []byte) *hcl.Diagnostic {
	at := hcl.Range{Filename: name, Start: hcl.InitialPos, End: hcl.InitialPos}
	if len(src) > MaxSize {
		return block.Problem(at, "File too large", "Such a file has at most %d KiB. Split it.", MaxSize>>10)
	}
	if !utf8.Valid(src) {
		return block.Problem(at, "Not UTF-8", "Save the file as UTF-8.")
	}
	line, first := 1, 0 // number and offset of the line
	for i, r := range string(src) {
		switch {
		case r == '\n':
			line, first = line+1, i+1
		case r == '\t', r == '\r' && bytes.HasPrefix(src[i:], []byte("\r\n")):
		case visible.Deceptive(r), unicode.Is(unicode.Cf, r):
			at.Start = hcl.Pos{Line: line, Column: utf8.RuneCount(src[first:i]) + 1, Byte: i}
			at.End = at.Start
			return block.Problem(at, "Invisible character", "The character U+%04X is invisible, or shows text in another "+
				"order than it is read. Remove it.", r)
		}
	}
	return nil
}
