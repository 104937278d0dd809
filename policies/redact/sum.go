package redact

import "math/bits"

// A sum is a polynomial over a text's bytes modulo the prime, at a base that nobody outside knows: that of any part of
// a text follows from those of its beginnings, so a part is compared in one time however long it is.
const prime = 1<<61 - 1

func multiply(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return reduce(low&prime + (low>>61 | high<<3))
}

func reduce(a uint64) uint64 {
	if a >= prime {
		a -= prime
	}
	return a
}

func extend(sum, base uint64, text []byte) uint64 {
	for _, c := range text {
		sum = reduce(multiply(sum, base) + uint64(c) + 1) // so that leading zeros count
	}
	return sum
}

func sumOf(base uint64, text []byte) uint64 { return extend(0, base, text) }

func power(base uint64, n int) uint64 {
	result := uint64(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = multiply(result, base)
		}
		base = multiply(base, base)
	}
	return result
}

// sums gives the sums of parts of one text.
type sums struct {
	text  []byte
	base  uint64
	spent int      // bytes that were summed up one by one
	marks []uint64 // sums of the text's beginnings, of every length that is a multiple of markEvery; nil: not yet made
}

const (
	markEvery = 64
	// patience is how many bytes are summed up before marks are made: a text that looks like a secret again and again must
	// not cost more than its length.
	patience = 8 << 10
)

func (s *sums) of(from, to int) uint64 {
	if s.marks == nil {
		if s.spent += to - from; s.spent <= patience {
			return sumOf(s.base, s.text[from:to])
		}
		s.mark()
	}
	head, whole := s.beginning(from), s.beginning(to)
	return reduce(whole + prime - multiply(head, power(s.base, to-from)))
}

func (s *sums) mark() {
	s.marks = make([]uint64, len(s.text)/markEvery+1)
	for i := 1; i < len(s.marks); i++ {
		s.marks[i] = extend(s.marks[i-1], s.base, s.text[(i-1)*markEvery:i*markEvery])
	}
}

func (s *sums) beginning(to int) uint64 {
	i := to / markEvery
	return extend(s.marks[i], s.base, s.text[i*markEvery:to])
}
