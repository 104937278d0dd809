// Package scan finds bytes of some sorts in a text, 64 at a time, for those who have to look at every byte of what a
// server says.
package scan

import (
	"math"
	"math/bits"
	"unsafe"
)

// Block is how many bytes are looked at at once, one for each bit of a word.
const Block = 64

// Ahead is how many blocks are marked at once, at most: what is looked for may be in the first.
const Ahead = 16

// Set is a set of bytes that are looked for. The zero value is the empty one.
type Set struct {
	has [256]uint8 // 1 for those that are in it

	// As it is looked up quickly: bit h of rows[l] says that there is the byte h<<4|l. All bits of beyond say that all
	// bytes are in it that are no ASCII, and mixed that some are, which nobody has looked for so far.
	rows   [16]byte
	beyond uint32
	mixed  bool
}

// Of is the set of the bytes that has accepts.
func Of(has func(c byte) bool) *Set {
	s, beyond := new(Set), 0
	for c := range 256 {
		switch {
		case !has(byte(c)):
			continue
		case c < 0x80:
			s.rows[c&0xf] |= 1 << (c >> 4)
		default:
			beyond++
		}
		s.has[c] = 1
	}
	switch beyond {
	case 0:
	case 0x80:
		s.beyond = ^uint32(0)
	default:
		s.mixed = true
	}
	return s
}

// Has reports whether a byte is in the set.
func (s *Set) Has(c byte) bool { return s.has[c] == 1 }

// Mark sets dst[k] to which of the 64 bytes of the text from i+64k on are in the set: the first is the lowest bit. It
// returns how many words of dst there are bytes for.
func (s *Set) Mark(dst []uint64, text string, i int) int {
	rest := text[i:]
	n := min(len(dst), (len(rest)+Block-1)/Block)
	whole := min(n, len(rest)/Block)
	s.members(dst[:whole], rest)
	if whole < n {
		var end [Block]byte
		left := copy(end[:], rest[whole*Block:])
		s.members(dst[whole:n], unsafe.String(&end[0], Block))
		dst[whole] &= 1<<left - 1
	}
	return n
}

// membersOf is members where there is nothing quicker.
func (s *Set) membersOf(dst []uint64, text string) {
	for k := range dst {
		var m uint64
		for i := range 8 {
			b := text[k*Block+8*i:][:8]
			m |= uint64(s.has[b[0]]|s.has[b[1]]<<1|s.has[b[2]]<<2|s.has[b[3]]<<3|s.has[b[4]]<<4|s.has[b[5]]<<5|s.has[b[6]]<<6|s.has[b[7]]<<7) << (8 * i)
		}
		dst[k] = m
	}
}

// Finder finds the bytes of a set in one text, from its beginning to its end.
type Finder struct {
	set    *Set
	text   string
	from   int  // of the text, what is marked
	marked uint // bytes, of whole blocks
	marks  [Ahead]uint64
}

// In is what finds the bytes of the set in a text.
func (s *Set) In(text string) Finder { return Finder{set: s, text: text} }

// Any reports whether a byte of the set is in the text.
func (s *Set) Any(text string) bool {
	f := s.In(text)
	return f.Next(0) < len(text)
}

// Next returns where the first byte of the set is from i on; where the text ends if there is none.
func (f *Finder) Next(i int) int {
	if k := uint(i - f.from); k < f.marked {
		if m := f.marks[k/Block%Ahead] >> (k % Block); m != 0 {
			return i + bits.TrailingZeros64(m)
		}
	}
	return f.further(i)
}

// further is Next for what is not in the same block.
func (f *Finder) further(i int) int {
	if k := uint(i-f.from) | (Block - 1); k < f.marked {
		i = f.from + int(k) + 1
	}
	for i < len(f.text) {
		if i < f.from || i >= f.from+int(f.marked) {
			f.mark(i)
		}
		k := uint(i-f.from) / Block
		for _, m := range f.marks[k : f.marked/Block] {
			if m != 0 {
				return i + bits.TrailingZeros64(m)
			}
			i += Block
		}
	}
	return len(f.text)
}

// run is Run where there is nothing quicker. It looks at what may be a run from its end: it passes over all that stands
// before a byte that is not in the set.
func (s *Set) run(text string, i, least int) int {
	for i+least <= len(text) {
		k := i + least - 1
		for k >= i && s.has[text[k]] == 1 {
			k--
		}
		if k < i {
			return i
		}
		i = k + 1
	}
	return -1
}

// mark marks the text from i on: the further the longer nothing else has been looked at, as many texts are short.
func (f *Finder) mark(i int) {
	n := 1
	if i > 0 && i == f.from+int(f.marked) {
		n = min(int(f.marked)/Block*4, Ahead)
	}
	f.from = i
	f.marked = Block * uint(f.set.Mark(f.marks[:n], f.text, i))
}

// Run returns where so many bytes of the set stand side by side, one or more, from i on; -1 if they do nowhere. Some of
// 7 of them are half a byte of a mark, and of 15 a whole one, wherever they begin: most of a text is not looked at but
// for those.
func (f *Finder) Run(i, least int) int {
	if !wide { // to mark 64 bytes one by one takes longer than to look at a few of them
		return f.set.run(f.text, i, least)
	}
	start := i
	for i < len(f.text) && start+least <= len(f.text) {
		if i < f.from || i >= f.from+int(f.marked) {
			f.mark(i)
		}
		k := uint(i - f.from)
		side, full := sides(f.marks[k/Block%Ahead]&(^uint64(0)<<(k%Block)), least)
		for i -= int(k % Block); full == 0; {
			i += Block
			if k = uint(i - f.from); k >= f.marked {
				break
			}
			side, full = sides(f.marks[k/Block%Ahead], least)
		}
		if full == 0 {
			continue
		}
		from := i + bits.TrailingZeros64(full)
		end := from + side
		for from > start && f.set.Has(f.text[from-1]) {
			from--
		}
		for end < len(f.text) && end < from+least && f.set.Has(f.text[end]) {
			end++
		}
		if end == from+least {
			return from
		}
		start, i = end+1, end+1
	}
	return -1
}

// sides has the lowest bit of each byte of a mark in which all bits are set, or of each half or bit, and how many bits
// that are, of which there is one in so many side by side.
func sides(m uint64, least int) (side int, full uint64) {
	if least < 7 {
		return 1, m
	}
	m &= m >> 1
	m &= m >> 2
	if least < 15 {
		return 4, m & 0x1111111111111111
	}
	return 8, m & (m >> 4) & 0x0101010101010101
}

// Entropy is Shannon's, in bits a byte.
func Entropy(s string) float64 {
	var counts [256]int
	for i := range len(s) {
		counts[s[i]]++
	}
	sum := 0.0
	for _, n := range counts {
		if n > 0 {
			p := float64(n) / float64(len(s))
			sum -= p * math.Log2(p)
		}
	}
	return sum
}
