package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"unicode/utf8"
)

// ReplaceJSON is Replace for a text of JSON, which stays one: a string keeps its quotation marks and whole escapes, a
// number becomes a string, and what stands between them stays. Of what is no JSON it is Replace.
//
// What is in no single string or number is not replaced: it is not what the sender says but how that is written, so that
// whoever chooses a secret, as a token endpoint does, cannot take {"jsonrpc":"2.0", from all servers. For the same reason
// in the name of a member only what has a digit and 16 bytes or more is replaced: no protocol has such a name.
func (s *Set) ReplaceJSON(text []byte) ([]byte, []Hit) { return s.replaceJSON(text, named) }

// HideJSON is ReplaceJSON for a reader who must not learn which secret stood there: the mark is "[redacted]".
func (s *Set) HideJSON(text []byte) ([]byte, []Hit) { return s.replaceJSON(text, nameless) }

func (s *Set) replaceJSON(text []byte, mark marker) ([]byte, []Hit) {
	hits := s.find(text)
	if len(hits) > 0 && !json.Valid(text) {
		return replace(text, merge(hits), mark)
	}
	if hits = merge(spoken(text, hits)); len(hits) == 0 {
		return text, nil
	}
	w := rewriting{text: text, left: hits, as: mark, out: make([]byte, 0, len(text))}
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
	if len(w.done) == 0 {
		return text, nil
	}
	return w.out, w.done
}

// spoken returns those hits that are within one string or scalar.
func spoken(text []byte, hits []Hit) []Hit {
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Compare(a.start, b.start) })
	var all []Hit
	for i := 0; i < len(text) && len(hits) > 0; {
		from, end, next := i, i, i+1
		switch {
		case text[i] == '"':
			from, end = i+1, stringEnd(text, i+1)
			next = end + 1
		case isScalar(text[i]):
			end = scalarEnd(text, i)
			next = end
		}
		for ; len(hits) > 0 && hits[0].start < next; hits = hits[1:] {
			if hits[0].start >= from && hits[0].end <= end {
				all = append(all, hits[0])
			}
		}
		i = next
	}
	return all
}

// stringEnd returns where the quotation mark is that ends the string which has its content at i.
func stringEnd(text []byte, i int) int {
	for i < len(text) && text[i] != '"' {
		i += unit(text[i:])
	}
	return min(i, len(text))
}

func scalarEnd(text []byte, i int) int {
	for i < len(text) && isScalar(text[i]) {
		i++
	}
	return i
}

// rewriting is one text on its way without the secrets in it.
type rewriting struct {
	text []byte
	left []Hit // those that may be still to come
	done []Hit // those that were replaced
	as   marker
	out  []byte
}

// hit returns the first that has bytes in common with the text from here to there; nil if none has. Places are asked for in order.
func (w *rewriting) hit(from, to int) *Hit {
	for len(w.left) > 0 && w.left[0].end <= from {
		w.left = w.left[1:]
	}
	if len(w.left) > 0 && w.left[0].start < to {
		return &w.left[0]
	}
	return nil
}

// mark marks the place of a hit. A hit may have several.
func (w *rewriting) mark(h *Hit) {
	w.out = w.as(w.out, h.Name)
	if n := len(w.done); n == 0 || w.done[n-1] != *h {
		w.done = append(w.done, *h)
	}
}

// minName is the length from which on a hit is replaced in the name of a member, in bytes.
const minName = 16

// inNames reports whether a hit is replaced in the names of members, too.
func (w *rewriting) inNames(h *Hit) bool {
	return h.end-h.start >= minName && bytes.ContainsAny(w.text[h.start:h.end], "0123456789")
}

// isName reports whether the string that begins behind a quotation mark at i is the name of a member.
func (w *rewriting) isName(i int) bool {
	rest := bytes.TrimLeft(w.text[min(stringEnd(w.text, i)+1, len(w.text)):], " \t\r\n")
	return len(rest) > 0 && rest[0] == ':'
}

// quoted writes the string that begins at i, and returns where it ends.
func (w *rewriting) quoted(i int) int {
	w.out = append(w.out, '"')
	var marked *Hit
	name := w.isName(i + 1)
	for i++; i < len(w.text) && w.text[i] != '"'; {
		n := unit(w.text[i:])
		h := w.hit(i, i+n)
		switch {
		case h == nil || name && !w.inNames(h):
			w.out = append(w.out, w.text[i:i+n]...)
		case h != marked:
			w.mark(h)
			marked = h
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
	end := scalarEnd(w.text, i)
	if h := w.hit(i, end); h != nil {
		w.out = append(w.out, '"')
		w.mark(h)
		w.out = append(w.out, '"')
	} else {
		w.out = append(w.out, w.text[i:end]...)
	}
	return end
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}
