package redact

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// reading is a part of a text, as it is or with its escapes undone.
type reading struct {
	text []byte
	from int     // where it begins in the text, if it is as it is there
	at   []int32 // else where each of its bytes does, and where it ends
}

// place is where a byte of the reading begins in the text.
func (r *reading) place(i int) int {
	if r.at == nil {
		return r.from + i
	}
	return int(r.at[i])
}

// depth is how many times escapes are undone: text within JSON within JSON within JSON.
const depth = 3

// decoders undo the ways of escaping of which each byte of a value may have another.
var decoders = [...]decoder{{'\\', backslash}, {'%', percentByte}, {'&', entity}, {'+', plus}}

// marks says which decoders may have something to do.
type marks [len(decoders)]bool

var allMarks = marks{true, true, true, true}

func marksIn(text []byte) (m marks) {
	for i := range decoders {
		m[i] = bytes.IndexByte(text, decoders[i].mark) >= 0
	}
	return m
}

// decoder undoes one. Undo appends what the escape at the beginning of b, which has the mark there, stands for, and
// returns the escape's length; 0 says that it is none.
type decoder struct {
	mark byte
	undo func(dst, b []byte) ([]byte, int)
}

// decode returns a reading without the escapes; false says that there is none which makes a difference, as what is less
// than blank is in no value.
func (d *decoder) decode(r *reading, blank byte) (*reading, bool) {
	next := d.worth(r.text, blank)
	if next < 0 {
		return nil, false
	}
	out := &reading{text: make([]byte, 0, len(r.text)), at: make([]int32, 0, len(r.text)+1)}
	for i := 0; i < len(r.text); {
		if n := bytes.IndexByte(r.text[i:], d.mark); n != 0 {
			if n < 0 {
				n = len(r.text) - i
			}
			out.text = append(out.text, r.text[i:i+n]...)
			for end := i + n; i < end; i++ {
				out.at = append(out.at, int32(r.place(i)))
			}
			continue
		}
		var n int
		if out.text, n = d.undo(out.text, r.text[i:]); n == 0 {
			out.text, n = append(out.text, d.mark), 1
		}
		for len(out.at) < len(out.text) {
			out.at = append(out.at, int32(r.place(i)))
		}
		i += n
	}
	out.at = append(out.at, int32(r.place(len(r.text))))
	return out, true
}

// worth returns the place of the first escape that stands for something a value may have; -1 if there is none.
func (d *decoder) worth(text []byte, blank byte) int {
	var scratch [utf8.UTFMax]byte
	for i := 0; i < len(text); i++ {
		next := bytes.IndexByte(text[i:], d.mark)
		if next < 0 {
			break
		}
		i += next
		if b, n := d.undo(scratch[:0], text[i:]); n > 0 {
			if b[0] >= blank {
				return i
			}
			i += n - 1
		}
	}
	return -1
}

// backslash undoes the escapes of JSON (RFC 8259 section 7), and those of bytes that other languages have.
func backslash(dst, b []byte) ([]byte, int) {
	if len(b) < 2 {
		return dst, 0
	}
	switch c := b[1]; c {
	case '"', '\\', '/', '\'':
		return append(dst, c), 2
	case 'n':
		return append(dst, '\n'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case 'x':
		if v, ok := number(b[2:], 2); ok {
			return append(dst, byte(v)), 4
		}
	case 'u':
		return unit16(dst, b)
	}
	return dst, 0
}

// unit16 undoes \uXXXX, and two of them that are one character.
func unit16(dst, b []byte) ([]byte, int) {
	r, ok := number(b[2:], 4)
	if !ok {
		return dst, 0
	}
	if utf16.IsSurrogate(r) && len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if second, ok := number(b[8:], 4); ok && utf16.DecodeRune(r, second) != utf8.RuneError {
			return utf8.AppendRune(dst, utf16.DecodeRune(r, second)), 12
		}
	}
	return utf8.AppendRune(dst, r), 6
}

// percentByte undoes %XX (RFC 3986 section 2.1).
func percentByte(dst, b []byte) ([]byte, int) {
	if v, ok := number(b[1:], 2); ok {
		return append(dst, byte(v)), 3
	}
	return dst, 0
}

// plus is a space in a form (application/x-www-form-urlencoded).
func plus(dst, _ []byte) ([]byte, int) { return append(dst, ' '), 1 }

var entities = map[string]byte{"amp": '&', "lt": '<', "gt": '>', "quot": '"', "apos": '\''}

const maxEntity = 10 // bytes of "&#x10ffff;"

// entity undoes the references of HTML to characters by number, and to those by name that have to be written so.
func entity(dst, b []byte) ([]byte, int) {
	end := bytes.IndexByte(b[:min(len(b), maxEntity)], ';')
	if end < 3 {
		return dst, 0
	}
	name := b[1:end]
	if c, ok := entities[string(name)]; ok {
		return append(dst, c), end + 1
	}
	if name[0] != '#' {
		return dst, 0
	}
	base, figures := rune(10), name[1:]
	if figures[0]|0x20 == 'x' {
		base, figures = 16, figures[1:]
	}
	r := rune(0)
	for _, c := range figures {
		v := figure[c]
		if v < 0 || rune(v) >= base {
			return dst, 0
		}
		r = r*base + rune(v)
	}
	if len(figures) == 0 || r > utf8.MaxRune {
		return dst, 0
	}
	return utf8.AppendRune(dst, r), end + 1
}

// number reads so many hexadecimal digits.
func number(b []byte, n int) (rune, bool) {
	if len(b) < n {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[:n] {
		if figure[c] < 0 {
			return 0, false
		}
		r = r<<4 | rune(figure[c])
	}
	return r, true
}

// figure is what a byte is worth as a hexadecimal digit; -1: it is none.
var figure = func() (t [256]int8) {
	for c := range t {
		t[c] = -1
	}
	for v := range int8(16) {
		t["0123456789abcdef"[v]], t["0123456789ABCDEF"[v]] = v, v
	}
	return t
}()

// hexadecimal searches what each run of so many digits or more says, for as many bytes as it is pairs.
func (m *matcher) hexadecimal(r *reading, least int) {
	for i := 0; i+least <= len(r.text); {
		last := i + least - 1
		for last >= i && figure[r.text[last]] >= 0 {
			last--
		}
		if last >= i {
			i = last + 1
			continue
		}
		end := i + least
		for end < len(r.text) && figure[r.text[end]] >= 0 {
			end++
		}
		m.search(pairs(r, i, end))
		m.search(pairs(r, i+1, end))
		i = end
	}
}

func pairs(r *reading, from, to int) *reading {
	n := (to - from) / 2
	out := &reading{text: make([]byte, n), at: make([]int32, n+1)}
	for i := range n {
		at := from + 2*i
		out.text[i] = byte(figure[r.text[at]])<<4 | byte(figure[r.text[at+1]])
		out.at[i] = int32(r.place(at))
	}
	out.at[n] = int32(r.place(from + 2*n))
	return out
}
