package fence

import (
	"html"
	"strings"
	"unicode/utf8"
)

// view reads a text as a model might: escapes are undone, letters that look alike are the same, what cannot be seen is
// not there. It is never written: what is found in it is looked for in the text again.
type view struct {
	text  string
	steps int // characters that were looked at, for the test of how it grows
}

// depth is how often a character may have been escaped: "&amp;#112;" is twice.
const depth = 3

// base reads the character at i as it stands. A terminal's control sequence is one character that cannot be seen.
func (v *view) base(i int) (r rune, n int) {
	v.steps++
	b := v.text[i]
	if b == 0x1b {
		return 0x1b, v.sequence(i)
	}
	if b < utf8.RuneSelf {
		return rune(b), 1
	}
	return utf8.DecodeRuneInString(v.text[i:])
}

const maxSequence = 64

// sequence is the length of a control sequence (ECMA-48 section 5.4) at i, 1 if there is but the escape character.
// Others, as those that make links, lose their escape character only: what they say is better seen.
func (v *view) sequence(i int) int {
	s := v.text[i:min(i+maxSequence, len(v.text))]
	if len(s) < 2 || s[1] != '[' {
		return 1
	}
	n := 2
	for n < len(s) && 0x20 <= s[n] && s[n] <= 0x3f {
		n++
	}
	if n < len(s) && 0x40 <= s[n] && s[n] <= 0x7e {
		return n + 1
	}
	return 1
}

// read reads the character at i that is there when escapes are undone, up to some depth of them.
func (v *view) read(i, depth int) (r rune, n int) {
	r, n = v.base(i)
	for d := 0; d < depth; d++ {
		var m int
		was := r
		switch fold(r) {
		case '&':
			r, m = v.entity(i+n, d)
		case '%':
			r, m = v.percent(i+n, d)
		case '\\':
			r, m = v.backslash(i+n, d)
		default:
			return r, n
		}
		if m == 0 {
			r = was
		}
		n += m
	}
	return r, n
}

// at is the first character from i on that can be seen, folded, and where it ends; 0 at the end of the text. One that
// is escaped can be seen here: passing over many of them, from each of them on, would take time squared.
func (v *view) at(i, depth int) (c byte, end int) {
	for i < len(v.text) {
		r, n := v.read(i, depth)
		if c = fold(r); c != gone || v.escaped(i, n) {
			return c, i + n
		}
		i += n
	}
	return 0, i
}

// escaped reports whether the character of n bytes at i stands there by an escape.
func (v *view) escaped(i, n int) bool {
	b := v.text[i]
	return b != 0x1b && n > 1 && (b < utf8.RuneSelf || n > utf8.UTFMax)
}

const maxEntity = 40 // characters

// entity reads what follows an ampersand at i; n is 0 if it is no entity.
func (v *view) entity(i, depth int) (r rune, n int) {
	var name [maxEntity]byte
	var ends [maxEntity]int
	name[0] = '&'
	length := 1
	for at := i; length < maxEntity; length++ {
		c, end := v.at(at, depth)
		if !isAlphanumeric(c) && c != ';' && (c != '#' || length > 1) {
			break
		}
		name[length], ends[length], at = c, end, end
		if c == ';' {
			length++
			break
		}
	}
	if length < 3 {
		return 0, 0
	}
	s := html.UnescapeString(string(name[:length]))
	r, size := utf8.DecodeRuneInString(s)
	used := length - (len(s) - size) // some need no semicolon, and letters may follow
	if r == '&' && !strings.HasPrefix(string(name[1:length]), "amp") && name[1] != '#' || used < 3 || used > length {
		return 0, 0
	}
	return r, ends[used-1] - i
}

// percent reads what follows a percent sign at i.
func (v *view) percent(i, depth int) (r rune, n int) {
	if c, end := v.at(i, depth); c == 'u' || c == 'U' {
		value, to := v.hex(end, 4, depth)
		if to == 0 {
			return 0, 0
		}
		return value, to - i
	}
	var utf [utf8.UTFMax]byte
	at := i
	for k := range utf {
		if k > 0 {
			c, end := v.at(at, depth)
			if c != '%' {
				return 0, 0
			}
			at = end
		}
		value, end := v.hex(at, 2, depth)
		if end == 0 {
			return 0, 0
		}
		utf[k], at = byte(value), end
		if utf8.FullRune(utf[:k+1]) {
			if r, _ = utf8.DecodeRune(utf[:k+1]); r == utf8.RuneError {
				return 0, 0
			}
			return r, at - i
		}
	}
	return 0, 0
}

const maxBackslashes = 8

// backslash reads what follows a backslash at i, or several.
func (v *view) backslash(i, depth int) (r rune, n int) {
	at := i
	for at < len(v.text) && v.text[at] == '\\' && at-i < maxBackslashes {
		at++
	}
	c, end := v.at(at, depth)
	value, to := rune(0), 0
	switch {
	case c == 'u' || c == 'x':
		if brace, inner := v.at(end, depth); brace == '{' {
			for digits := 8; digits > 0 && to == 0; digits-- {
				if value, to = v.hex(inner, digits, depth); to > 0 {
					if brace, to = v.at(to, depth); brace != '}' {
						to = 0
					}
				}
			}
			break
		}
		if value, to = v.hex(end, map[byte]int{'u': 4, 'x': 2}[c], depth); c == 'u' && to > 0 && value>>10 == 0xd800>>10 {
			if low, after := v.half(to, depth); after > 0 {
				value, to = 0x10000+(value&0x3ff)<<10+low&0x3ff, after
			}
		}
	case c == 'U':
		value, to = v.hex(end, 8, depth)
	case c >= '0' && c <= '7':
		value, to = v.octal(at, depth)
	}
	if to == 0 {
		return 0, 0
	}
	return value, to - i
}

// half reads the second escape of a pair of surrogates at i.
func (v *view) half(i, depth int) (r rune, end int) {
	at := i
	for at < len(v.text) && v.text[at] == '\\' && at-i < maxBackslashes {
		at++
	}
	c, at := v.at(at, depth)
	if c != 'u' || v.text[i] != '\\' {
		return 0, 0
	}
	r, end = v.hex(at, 4, depth)
	if r>>10 != 0xdc00>>10 {
		return 0, 0
	}
	return r, end
}

// hex reads so many hexadecimal digits at i, and returns where they end; 0 if they are not there.
func (v *view) hex(i, digits, depth int) (value rune, end int) {
	for range digits {
		c, next := v.at(i, depth)
		switch {
		case isDigit(c):
			value = value<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			value = value<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, 0
		}
		i = next
	}
	return value, i
}

func (v *view) octal(i, depth int) (value rune, end int) {
	for range 3 {
		c, next := v.at(i, depth)
		if c < '0' || c > '7' {
			return 0, 0
		}
		value, i = value<<3|rune(c-'0'), next
	}
	return value, i
}
