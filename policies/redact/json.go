package redact

import (
	"bytes"
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/jsontext"
)

// ReplaceJSON is Replace for a text of JSON, which stays one: a string keeps its quotation marks and whole escapes, a
// number becomes a string, and what stands between them stays. Of what is no JSON it is Replace.
//
// What is in no single string or number is not replaced: it is not what the sender says but how that is written, so
// that whoever chooses a secret, as a token endpoint does, cannot take {"jsonrpc":"2.0", from all servers. For the same
// reason in the name of a member only what has a digit and 16 bytes or more is replaced: no protocol has such a name.
func (s *Set) ReplaceJSON(text []byte) ([]byte, []Hit) { return s.replaceJSON(text, named) }

// HideJSON is ReplaceJSON for a reader who must not learn which secret stood there: the mark is "[redacted]".
func (s *Set) HideJSON(text []byte) ([]byte, []Hit) { return s.replaceJSON(text, nameless) }

func (s *Set) replaceJSON(text []byte, mark marker) ([]byte, []Hit) {
	hits := s.find(text)
	switch {
	case len(hits) == 0:
		return text, nil
	case !jsontext.Valid(text):
		return replace(text, merge(hits), mark)
	}
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Compare(a.start, b.start) })
	w := rewriting{text: text, as: mark}
	var r jsontext.Reader
	r.Reset(text)
	for t := r.Known(); t.Kind != jsontext.End && len(hits) > 0; t = r.Known() {
		from, end := t.Start, t.End
		switch t.Kind {
		case '{', '}', '[', ']':
			continue
		case '"':
			from, end = from+1, end-1
		}
		var within []Hit
		for ; len(hits) > 0 && hits[0].start < t.End; hits = hits[1:] {
			if hits[0].start >= from && hits[0].end <= end {
				within = append(within, hits[0])
			}
		}
		switch {
		case len(within) == 0:
		case t.Kind == '"':
			w.string(t, merge(within))
		default:
			w.number(t, merge(within)[0])
		}
	}
	if len(w.done) == 0 {
		return text, nil
	}
	return append(w.out, text[w.read:]...), w.done
}

// rewriting is one text on its way without the secrets in it.
type rewriting struct {
	text []byte
	as   marker
	out  []byte
	read int   // bytes of the text that are in out, or replaced there
	done []Hit // those that were replaced
}

// mark puts a mark in place of the text from here to there. A hit may have several.
func (w *rewriting) mark(h Hit, from, to int) {
	w.out = append(w.out, w.text[w.read:from]...)
	w.read = to
	if n := len(w.done); n > 0 && w.done[n-1] == h {
		return
	}
	w.out = w.as(w.out, h.Name)
	w.done = append(w.done, h)
}

// minName is the length from which on a hit is replaced in the name of a member, in bytes.
const minName = 16

// inNames reports whether a hit is replaced in the names of members, too.
func (w *rewriting) inNames(h Hit) bool {
	return h.end-h.start >= minName && bytes.ContainsAny(w.text[h.start:h.end], "0123456789")
}

// string marks the hits in a string, of which whole characters and escapes stay.
func (w *rewriting) string(t jsontext.Token, hits []Hit) {
	for i := t.Start + 1; i < t.End-1; {
		n := unit(w.text[i : t.End-1])
		for len(hits) > 0 && hits[0].end <= i {
			hits = hits[1:]
		}
		if len(hits) > 0 && hits[0].start < i+n && (!t.Name || w.inNames(hits[0])) {
			w.mark(hits[0], i, i+n)
		}
		i += n
	}
}

// number makes a string of a number or a literal.
func (w *rewriting) number(t jsontext.Token, h Hit) {
	w.out = append(append(w.out, w.text[w.read:t.Start]...), '"')
	w.out = append(w.as(w.out, h.Name), '"')
	w.read, w.done = t.End, append(w.done, h)
}

// unit is the length of the character or the escape that a string goes on with (RFC 8259 section 7).
func unit(b []byte) int {
	switch {
	case b[0] != '\\':
		_, n := utf8.DecodeRune(b)
		return n
	case len(b) < 2 || b[1] != 'u':
		return min(2, len(b))
	case len(b) >= 12 && b[6] == '\\' && b[7] == 'u' && b[2]|0x20 == 'd' && bytes.IndexByte([]byte("89abAB"), b[3]) >= 0: // half a character
		return 12
	}
	n := 2
	for n < min(6, len(b)) && b[n] != '"' {
		n++
	}
	return n
}
