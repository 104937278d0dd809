package jsontext

import (
	"bytes"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

var scratches = sync.Pool{New: func() any { return new([]byte) }}

const maxScratch = 1 << 20 // bytes; a longer one is not kept

// Close gives back the memory in which strings were decoded.
func (r *Reader) Close() {
	if r.own != nil && cap(*r.own) <= maxScratch {
		scratches.Put(r.own)
	}
	r.own = nil
}

// Text decodes a string. It is good until the next one is decoded, or Close.
func (r *Reader) Text(t Token) string {
	raw := r.text[t.Start+1 : t.End-1]
	first := bytes.IndexByte(raw, '\\')
	if first < 0 {
		return shared(raw)
	}
	if r.own == nil {
		r.own = scratches.Get().(*[]byte)
	}
	*r.own, _ = unescape((*r.own)[:0], raw, first)
	return shared(*r.own)
}

// Text decodes a string with its quotes, known to be JSON. One without escapes shares the memory. Half a character
// becomes U+FFFD, as in encoding/json; bytes that are not UTF-8 stay.
func Text(quoted []byte) string {
	text, _ := Whole(quoted)
	return text
}

// Whole is Text, and reports whether each character is whole. encoding/json reads half a UTF-16 pair as U+FFFD, other
// programs as it stands there.
func Whole(quoted []byte) (text string, whole bool) {
	raw := quoted[1 : len(quoted)-1]
	first := bytes.IndexByte(raw, '\\')
	if first < 0 {
		return shared(raw), true
	}
	b, halves := unescape(make([]byte, 0, len(raw)), raw, first)
	return shared(b), halves == 0
}

// unescape appends a string's content, whose first escape is at i. It counts the halves of characters.
func unescape(dst, raw []byte, i int) (b []byte, halves int) {
	for i >= 0 {
		dst = append(dst, raw[:i]...)
		if c := raw[i+1]; c == 'u' {
			half := false
			if dst, i, half = unicode(dst, raw, i+2); half {
				halves++
			}
		} else {
			dst, i = append(dst, single[c]), i+2
		}
		if raw = raw[i:]; len(raw) > 0 && raw[0] == '\\' {
			i = 0
			continue
		}
		i = bytes.IndexByte(raw, '\\')
	}
	return append(dst, raw...), halves
}

// unicode appends to dst the character whose number is at i, in an escape. It returns where the number ends, and
// whether the character is a half.
func unicode(dst, raw []byte, i int) (b []byte, end int, half bool) {
	r := unit(raw[i:])
	i += 4
	if utf16.IsSurrogate(r) {
		pair := rune(utf8.RuneError)
		if rest := raw[i:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
			pair = utf16.DecodeRune(r, unit(rest[2:]))
		}
		if r = pair; r != utf8.RuneError {
			i += 6
		} else {
			half = true
		}
	}
	return utf8.AppendRune(dst, r), i, half
}

// single is what a character stands for behind a backslash: itself, mostly.
var single = func() (t [256]byte) {
	for c := range t {
		t[c] = byte(c)
	}
	t['b'], t['f'], t['n'], t['r'], t['t'] = '\b', '\f', '\n', '\r', '\t'
	return t
}()

// unit reads the four hexadecimal digits of an escape.
func unit(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n)
}
