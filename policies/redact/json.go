package redact

import (
	"bytes"
	"unicode/utf8"
)

// ReplaceJSON is Replace for a text of JSON, which stays one: a string keeps its quotation marks and whole escapes, a
// number becomes a string, and what stands between them stays. What is not JSON comes to no harm.
func (s *Set) ReplaceJSON(text []byte) ([]byte, []Hit) {
	hits := s.find(text)
	if len(hits) == 0 {
		return text, nil
	}
	w := rewriting{text: text, hits: hits, out: make([]byte, 0, len(text))}
	for i := 0; i < len(text); {
		switch {
		case text[i] == '"':
			i = w.quoted(i)
		case isScalar(text[i]):
			i = w.scalar(i)
		default:
			w.out = append(w.out, text[i])
			i++
		}
	}
	return w.out, hits
}

// rewriting is one text on its way without the secrets in it.
type rewriting struct {
	text []byte
	hits []Hit // those that may be still to come
	out  []byte
}

// hit returns the first that has bytes in common with the text from here to there; nil if none has. Places are asked for in order.
func (w *rewriting) hit(from, to int) *Hit {
	for len(w.hits) > 0 && w.hits[0].end <= from {
		w.hits = w.hits[1:]
	}
	if len(w.hits) > 0 && w.hits[0].start < to {
		return &w.hits[0]
	}
	return nil
}

// quoted writes the string that begins at i, and returns where it ends.
func (w *rewriting) quoted(i int) int {
	w.out = append(w.out, '"')
	var marked *Hit
	for i++; i < len(w.text) && w.text[i] != '"'; {
		n := unit(w.text[i:])
		h := w.hit(i, i+n)
		switch {
		case h == nil:
			w.out = append(w.out, w.text[i:i+n]...)
		case h != marked:
			w.out, marked = appendMark(w.out, h.Name), h
		}
		i += n
	}
	if i < len(w.text) {
		w.out = append(w.out, '"')
		i++
	}
	return i
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

// scalar writes the number or literal that begins at i, and returns where it ends.
func (w *rewriting) scalar(i int) int {
	end := i
	for end < len(w.text) && isScalar(w.text[end]) {
		end++
	}
	if h := w.hit(i, end); h != nil {
		w.out = append(appendMark(append(w.out, '"'), h.Name), '"')
	} else {
		w.out = append(w.out, w.text[i:end]...)
	}
	return end
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}
