// Package scan finds bytes of some sorts in a text, eight at a time, for those who have to look at every byte of what a server says; and counts them.
package scan

import "math"

const (
	each = 0x0101010101010101
	high = 0x80 * each
)

// Load returns the eight bytes of s from i on, of which there are so many, the first in the lowest bits.
func Load(s string, i int) uint64 {
	s = s[i : i+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Lower makes small letters of capitals, and of no other byte a letter.
func Lower(w uint64) uint64 { return w | 0x20*each }

// Between returns the highest bit of each byte from lo to hi, which are ASCII.
func Between(w uint64, lo, hi byte) uint64 {
	v := w &^ high
	return (v + uint64(0x80-lo)*each) &^ (v + uint64(0x7f-hi)*each) &^ w & high
}

// Beyond returns the highest bit of each byte that is no ASCII.
func Beyond(w uint64) uint64 { return w & high }

// Odd reports whether one of the eight bytes may be a control character or no ASCII, which in most texts few are: there is no such byte
// if it does not.
func Odd(w uint64) bool { return (w|(w-0x20*each)|(w+each))&high != 0 }

// Bits gathers highest bits: that of the first byte becomes the lowest.
func Bits(m uint64) uint64 { return (m >> 7) * 0x0102040810204080 >> 56 }

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
