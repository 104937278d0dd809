package inspect

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"
	"math/bits"
	"sync"
)

// inflaters are kept, as each takes 40 KiB and whatever may be Base64 is tried.
var inflaters = sync.Pool{New: func() any { return &inflater{Reader: flate.NewReader(nil)} }}

// inflater reads what bytes are compressed from.
type inflater struct {
	io.Reader
	from bytes.Reader
}

func (f *inflater) reset(b []byte) error {
	f.from.Reset(b)
	return f.Reader.(flate.Resetter).Reset(&f.from, nil)
}

// mayInflate reports whether bytes may be compressed by DEFLATE (RFC 1951, section 3.2). If not, to inflate them fails
// within their first block, and before maxTried bytes have come of it. Most bytes are tried in vain: this says so in a
// small part of the time.
func mayInflate(b []byte) bool {
	r := bitReader{rest: b}
	r.take(1) // whether it is the last block
	switch r.take(2) {
	case 0: // as it is: its length, and the same with each bit turned
		return len(b) >= 5 && b[1] == ^b[3] && b[2] == ^b[4]
	case 1:
		return r.fixed()
	case 2:
		return r.code()
	}
	return false
}

// maxTried is how many bytes a block with the fixed code gives before it counts as one.
const maxTried = 1 << 12

// fixed reports whether a block with the fixed code (section 3.2.6) has an end, or gives many bytes.
func (r *bitReader) fixed() bool {
	const end, lengths, maxLength, distances, longest = 256, 257, 285, 30, 258
	for given := 0; given < maxTried; {
		symbol := r.fixedSymbol()
		switch {
		case r.short || symbol > maxLength:
			return false
		case symbol == end:
			return true
		case symbol < end:
			given++
			continue
		}
		length := symbol - lengths + 3
		if extra := (symbol - lengths - 4) / 4; symbol == maxLength {
			length = longest
		} else if extra > 0 {
			length = 3 + (4+(symbol-lengths)%4)<<extra + r.take(extra)
		}
		code := r.turned(5)
		distance := code + 1
		if extra := code/2 - 1; extra > 0 {
			distance = 1 + (2+code%2)<<extra + r.take(extra)
		}
		if r.short || code >= distances || distance > given {
			return false
		}
		given += length
	}
	return true
}

// fixedSymbol takes a literal, the end or a length.
func (r *bitReader) fixedSymbol() int {
	switch code := r.turned(7); {
	case code < 24: // of 7 bits
		return 256 + code
	case code < 96: // of 8
		return code<<1 + r.take(1) - 48
	case code < 100:
		return 280 + code<<1 + r.take(1) - 192
	default: // of 9
		return 144 + code<<2 + r.turned(2) - 400
	}
}

// code reports whether the header of a block with a code of its own can be one (section 3.2.7).
func (r *bitReader) code() bool {
	const maxLiterals, maxDistances, one = 286, 30, 1 << 7
	literals, distances := r.take(5)+257, r.take(5)+1
	codes, longest := 0, 0
	for range r.take(4) + 4 {
		if length := r.take(3); length > 0 {
			codes += one >> length
			longest = max(longest, length)
		}
	}
	// Each code of so many bits takes its part of all, and nothing may be left; but one alone may have a bit.
	complete := codes == one || codes == one/2 && longest == 1 || longest == 0
	return !r.short && literals <= maxLiterals && distances <= maxDistances && complete
}

// bitReader takes bits, the lowest first.
type bitReader struct {
	rest  []byte // the bytes that are not all in bits yet
	bits  uint64 // the next bits, count of them; above these are 0, or bits of rest
	count int
	short bool // there were not as many
}

// take takes n bits, at most 16.
func (r *bitReader) take(n int) int {
	if r.count < n {
		r.fill(n)
	}
	got := int(r.bits & (1<<n - 1))
	r.bits, r.count = r.bits>>n, r.count-n
	return got
}

// fill puts at least n bits into bits. Behind the last byte there are zeros.
func (r *bitReader) fill(n int) {
	if len(r.rest) >= 8 {
		r.bits |= binary.LittleEndian.Uint64(r.rest) << r.count
		whole := (63 - r.count) / 8
		r.rest, r.count = r.rest[whole:], r.count+8*whole
		return
	}
	for r.count < n {
		if len(r.rest) == 0 {
			r.short, r.bits, r.count = true, 0, n
			return
		}
		r.bits |= uint64(r.rest[0]) << r.count
		r.rest, r.count = r.rest[1:], r.count+8
	}
}

// turned takes bits, the highest first.
func (r *bitReader) turned(n int) int {
	return int(bits.Reverse16(uint16(r.take(n))) >> (16 - n))
}
