// Package jsontext finds the strings in a text of JSON, and what they stand for, without building anything.
package jsontext

import (
	"bytes"
	"math/bits"
	"strconv"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/pfar/pfar/policies/scan"
)

// signs are what ends a string, or escapes something in it.
var signs = scan.Of(func(c byte) bool { return c == '"' || c == '\\' })

// Text returns what the string stands for that begins at i, behind its first quote, and the index of the quote that ends it; b is known
// to be JSON, and is not to change. Half a character becomes U+FFFD, as in encoding/json.
func Text(b []byte, i int) (text string, end int) {
	_, text, end = read(nil, b, i)
	return text, end
}

// Reader reads the strings of one text of JSON, one after the other. The zero value is ready.
type Reader struct {
	scratch *[]byte
	long    []byte // the last long string, as it stands
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

const maxScratch = 1 << 20 // bytes; a longer one is not kept

// Long is how many bytes a long string has, at least.
const Long = 1 << 10

// Close gives back what was used for reading.
func (r *Reader) Close() {
	if r.scratch != nil && cap(*r.scratch) <= maxScratch {
		scratches.Put(r.scratch)
	}
	r.scratch = nil
}

// Text is Text, which is good until the next string is read, or Close.
func (r *Reader) Text(b []byte, i int) (text string, end int) {
	if r.scratch == nil {
		r.scratch = scratches.Get().(*[]byte)
	}
	*r.scratch, text, end = read((*r.scratch)[:0], b, i)
	if end-i >= Long {
		r.long = b[i:end]
	}
	return text, end
}

// Again returns the index of the quote that ends the string that begins at i, if it is a long one, and the same as the last long one that
// was read: results of tools have their text as structured content, too.
func (r *Reader) Again(b []byte, i int) (end int, again bool) {
	if len(r.long) > 0 && bytes.HasPrefix(b[i:], r.long) && b[i+len(r.long)] == '"' {
		return i + len(r.long), true
	}
	return 0, false
}

// read is Text, which appends to dst what is not as it stands in b.
func read(dst, b []byte, i int) (own []byte, text string, end int) {
	s := unsafe.String(unsafe.SliceData(b), len(b))
	var marks [scan.Ahead]uint64
	done := i // what is behind it is not written yet
	escaped := false
	for at, n := i, 1; ; n = min(4*n, scan.Ahead) {
		_ = b[at] // what is no JSON may have no end
		for _, m := range marks[:signs.Mark(marks[:n], s, at)] {
			for ; m != 0; m &= m - 1 {
				k := at + bits.TrailingZeros64(m)
				switch {
				case k < done: // it is escaped
				case b[k] == '\\':
					escaped = true
					dst = append(dst, b[done:k]...)
					if c := b[k+1]; c != 'u' {
						dst, done = append(dst, single[c]), k+2
						continue
					}
					dst, done = unicode(dst, b, k+2)
				case !escaped:
					return dst, s[i:k], k
				default:
					dst = append(dst, b[done:k]...)
					return dst, unsafe.String(unsafe.SliceData(dst), len(dst)), k
				}
			}
			at += scan.Block
		}
	}
}

// unicode appends to dst the character whose number is at i, in an escape, and returns where that ends.
func unicode(dst, raw []byte, i int) ([]byte, int) {
	r := unit(raw[i:])
	i += 4
	if utf16.IsSurrogate(r) {
		pair := rune(utf8.RuneError)
		if rest := raw[i:]; len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
			pair = utf16.DecodeRune(r, unit(rest[2:]))
		}
		if r = pair; r != utf8.RuneError {
			i += 6
		}
	}
	return utf8.AppendRune(dst, r), i
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
