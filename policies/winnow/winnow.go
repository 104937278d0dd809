// Package winnow takes fingerprints of texts: of two texts that have Run bytes in a row in common, however they are
// written, one fingerprint at least is the same.
package winnow

import (
	"math/bits"
	"sync"
)

const (
	gram   = 12 // bytes of which a hash is taken
	window = 9  // hashes of which the least is a fingerprint

	// Run is how long a common run is found for certain.
	Run = gram + window - 1
)

// Append appends the fingerprints of a text as it reads (letters count the same in either case, and turned by 13) and
// of its letters and digits alone.
//
// Why a common run is found: a run of 20 bytes has 9 grams of 12 bytes, one at each of its first 9 places. In both
// texts these 9 hashes are a whole window, so the least of them is a fingerprint of both (Schleimer, Wilkerson, Aiken:
// Winnowing, 2003). A fingerprint is the hash without its place, so it does not matter which of several equal grams it
// is of. The view of letters and digits finds a run with other separators in it; the other view finds a run that is
// made of separators.
func Append(dst []uint64, text string) []uint64 {
	room := rooms.Get().(*room)
	defer rooms.Put(room)
	seen, plain := &room.seen, &room.plain
	n, behind := 0, 0 // in plain, and what of seen has been there before
	for len(text) > 0 {
		k := behind
		for ; k < block && k-behind < len(text); k++ {
			b := text[k-behind]
			seen[k] = randoms[b]
			plain[n] = randoms[b]
			n += int(counts[b])
			if n == block {
				dst, n = room.winnow(dst, plain[:])
			}
		}
		text = text[k-behind:]
		dst, behind = room.winnow(dst, seen[:k])
	}
	dst, _ = room.winnow(dst, plain[:n])
	return dst
}

// block is how much of a text is looked at together.
const block = 1 << 9

// room is what a text is worked on in. It is used again as it is: to zero it would take longer than a short text does.
type room struct {
	seen, plain [block]uint64
	evens       [block / 2]uint64 // the hashes at even places of a block
	found       [block]uint64     // the least hashes of its windows
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// class is what a byte counts as: letters and digits, bytes beyond ASCII, and from others on what separates them.
func class(b byte) byte {
	switch lower := b | 0x20; {
	case 'a' <= lower && lower <= 'z':
		return (lower - 'a') % 13
	case '0' <= b && b <= '9':
		return 13 + b - '0'
	case b >= 0x80:
		return 23 + b - 0x80
	case b < ' ' || b == 0x7f: // white space is the same in any form
		return others
	}
	return others + b - ' '
}

// others is the first class of separators.
const others = 23 + 0x80

// randoms are numbers without a pattern, the same for all bytes of a class (splitmix64). counts has 1 for what is no
// separator.
var randoms, counts = func() (r [256]uint64, counts [256]byte) {
	for i := range r {
		c := class(byte(i))
		z := uint64(c+1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		if r[i] = z ^ z>>31; c < others {
			counts[i] = 1
		}
	}
	return r, counts
}()

// winnow appends the least hash of each window of a block, once where windows side by side have the same one. It moves
// the end of the block, which the next one needs too, to its beginning, and returns how much that is.
func (r *room) winnow(dst, text []uint64) ([]uint64, int) {
	evens, found := &r.evens, &r.found
	if len(text) < Run {
		return dst, len(text)
	}
	const most = ^uint64(0)
	var of, last uint64
	// Most windows have the least hash of the window before. To write it each time, and to count it if it is another one,
	// takes less than a branch that the processor foresees badly.
	n := 0
	for i, c := range text[:gram-1] {
		of ^= bits.RotateLeft64(c, gram-2-i)
	}
	// Two windows side by side, of which the first ends at an even place, have eight hashes in common: four pairs, each of
	// an odd place and the even one behind it.
	odd, pair, four, four1 := most, most, most, most
	ins := text[gram-1:]
	outs := text[:len(ins)]
	for i := 0; i+1 < len(ins) && i+1 < len(outs); i += 2 {
		of = bits.RotateLeft64(of, 1) ^ ins[i]
		a := mixed(of)
		of = bits.RotateLeft64(of^bits.RotateLeft64(outs[i], gram-1), 1) ^ ins[i+1]
		b := mixed(of)
		of ^= bits.RotateLeft64(outs[i+1], gram-1)
		p := min(odd, a)
		q := min(p, pair)
		eight := min(q, four1)
		evens[i/2&(block/2-1)] = a
		odd, pair, four, four1 = b, p, q, four
		if i < window-1 {
			continue
		}
		first := min(eight, evens[(i/2-4)&(block/2-1)])
		found[n&(block-1)] = first
		if first != last {
			n++
		}
		last = min(eight, b)
		found[n&(block-1)] = last
		if last != first {
			n++
		}
	}
	if i := len(ins) - 1; i%2 == 0 { // one is left
		of = bits.RotateLeft64(of, 1) ^ ins[i]
		a := mixed(of)
		eight := min(min(min(odd, a), pair), four1)
		if least := min(eight, evens[(i/2-4)&(block/2-1)]); least != last && i >= window-1 {
			found[n&(block-1)] = least
			n++
		}
	}
	copy(text, text[len(text)-Run+1:])
	return append(dst, found[:n]...), Run - 1
}

// mixed has each bit of a hash depend on all of them: else the least hash would say something of the text.
func mixed(h uint64) uint64 {
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}
