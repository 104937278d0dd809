package declaration

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/visible"
)

// maxSize bounds one file: a thousand times what a declaration needs, and small enough to be read again at each event.
const maxSize = 256 << 10

// refuse finds what makes a file unreadable before any syntax, and what shows a reader something else than what is
// parsed. least is what a file has to say.
func refuse(s *block.Source, least string) *hcl.Diagnostic {
	b := s.Bytes
	switch {
	case len(b) > maxSize:
		return block.Problem(s.Start(), "File too large", "A declaration has at most %d KiB. One file declares one server: "+
			"look whether this is the right file.", maxSize>>10)
	case bytes.HasPrefix(b, []byte("\xef\xbb\xbf")):
		return block.Problem(s.Start(), "Byte order mark", "The file starts with a byte order mark, which is invisible and "+
			"part of the first key. Save it as UTF-8 without one.")
	case bytes.HasPrefix(b, []byte("\xff\xfe")), bytes.HasPrefix(b, []byte("\xfe\xff")):
		return block.Problem(s.Start(), "Not UTF-8", "The file is UTF-16. Save it as UTF-8.")
	}
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n <= 1 {
			return block.Problem(s.Span(i, i+1), "Not UTF-8", "The byte 0x%02x is not UTF-8. Save the file as UTF-8.", b[i])
		}
		if r == '\r' && i+1 < len(b) && b[i+1] == '\n' {
			i += 2
			continue
		}
		if r != '\n' && r != '\t' && visible.Deceptive(r) {
			return invisible(s.Span(i, i+n), r)
		}
		i += n
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return block.Problem(s.Start(), "Empty declaration", "The file declares nothing. %s", least)
	}
	return nil
}

func invisible(at hcl.Range, r rune) *hcl.Diagnostic {
	switch r {
	case 0:
		return block.Problem(at, "Not text", "The file has a NUL byte, so it is not a text file. Remove it.")
	case '\r':
		return block.Problem(at, "Invisible character", "A carriage return without a line feed hides text on a terminal. "+
			"End lines with a line feed.")
	}
	code := fmt.Sprintf(`\u%04X`, r)
	if r > 0xffff {
		code = fmt.Sprintf(`\U%08X`, r)
	}
	return block.Problem(at, "Invisible character", "The character U+%04X is invisible, or shows text in another order "+
		"than it is read. Remove it, or write it as %s within a string.", r, code)
}
