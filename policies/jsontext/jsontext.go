// Package jsontext finds the strings in a text of JSON, and what they stand for, without building anything.
package jsontext

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Closing returns the index of the quote that ends the string from i on, which is behind its first quote, and whether something in it
// is escaped. b is known to be JSON.
func Closing(b []byte, i int) (end int, escaped bool) {
	for end = i; ; end++ {
		end += bytes.IndexByte(b[end:], '"')
		k := end
		for b[k-1] == '\\' { // two of them are one
			k--
		}
		if (end-k)%2 == 0 {
			return end, bytes.IndexByte(b[i:end], '\\') >= 0
		}
	}
}

// Unescape appends to dst what a string stands for, of which raw is all but the quotes and known to be well-formed. Half a
// character becomes U+FFFD, as in encoding/json.
func Unescape(dst, raw []byte) []byte {
	for {
		k := bytes.IndexByte(raw, '\\')
		if k < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:k]...)
		c := raw[k+1]
		raw = raw[k+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := unit(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					pair = utf16.DecodeRune(r, unit(raw[2:]))
				}
				if r = pair; r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, c)
		}
	}
}

// unit reads the four hexadecimal digits of an escape.
func unit(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16)
	return rune(n)
}
