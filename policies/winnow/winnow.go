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
	dst, _ = winnow(room, dst, text)
	known, plain := classes, &room.plain
	n := 0
	for len(text) > 0 {
		next := text[:min(len(text), block-n)]
		for i := range len(next) {
			plain[n&(block-1)] = next[i]
			n += int(known.counts[next[i]])
		}
		if text = text[len(next):]; n == block {
			var left []byte
			dst, left = winnow(room, dst, plain[:])
			n = copy(plain[:], left)
		}
	}
	dst, _ = winnow(room, dst, plain[:n])
	return dst
}

// block is how much of a text is looked at together.
const block = 1 << 9

// room is what a text is worked on in. It is used again as it is: to zero it would take longer than a short text does.
type room struct {
	plain  [block]byte   // letters and digits of a text
	hashes [block]uint64 // of a block
	found  [block]uint64 // the least hashes of its windows
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

// byClass is what is known of each byte. Loops take its address from a variable: the compiler keeps that in a register,
// and computes the address of a table anew for each byte.
type byClass struct {
	random [256]uint64 // numbers without a pattern, the same for all bytes of a class (splitmix64)
	turned [256]uint64 // the same as they leave a gram
	counts [256]byte   // 1 for what is no separator
}

var classes = func() *byClass {
	all := new(byClass)
	for i := range 256 {
		c := class(byte(i))
		z := uint64(c+1) * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		if all.random[i] = z ^ z>>31; c < others {
			all.counts[i] = 1
		}
		all.turned[i] = bits.RotateLeft64(all.random[i], gram)
	}
	return all
}()

// winnow appends the least hash of each window of a text, once where windows side by side have the same one. It returns
// the end of the text, which windows of what follows need too.
//
// It makes two passes over each block, because the values of one pass over both fit into no processor's registers.
func winnow[T string | []byte](r *room, dst []uint64, text T) ([]uint64, T) {
	known := classes
	for len(text) >= Run {
		next := text[:min(len(text), block)]
		var of uint64
		for i := range gram {
			of = bits.RotateLeft64(of, 1) ^ known.random[next[i]]
		}
		ins := next[gram:]
		outs, hashes := next[:len(ins)], r.hashes[:1+len(ins)]
		hashes[0] = mixed(of)
		into := hashes[1:][:len(ins)]
		for i := range len(ins) { // each hash waits for the one before it for a rotation and a xor alone
			of = bits.RotateLeft64(of, 1) ^ (known.random[ins[i]] ^ known.turned[outs[i]])
			into[i] = mixed(of)
		}
		dst = append(dst, r.found[:r.least(hashes)]...)
		text = text[len(next)-Run+1:]
	}
	return dst, text
}

// least sets found to the least hash of each window, and returns how many there are.
func (r *room) least(hashes []uint64) (n int) {
	const most = ^uint64(0)
	found := &r.found
	// Two windows side by side, of which the first ends at an even place, have eight hashes in common: four pairs, each of
	// an odd place and the even one behind it. Most windows have the least hash of the window before. To write it each
	// time, and to count it if it is another one, takes less than a branch that the processor foresees badly.
	var last uint64
	pair := min(hashes[1], hashes[2])
	next := min(hashes[3], hashes[4])
	four1, four := min(pair, next), most
	pair, next = next, min(hashes[5], hashes[6])
	four, pair = min(pair, next), next
	for len(hashes) > window {
		a, b := hashes[window-1], hashes[window]
		next = min(hashes[window-2], a)
		pair, next = next, min(pair, next)
		eight := min(next, four1)
		four1, four = four, next
		first := min(eight, hashes[0])
		found[n&(block-1)] = first
		if first != last {
			n++
		}
		last = min(eight, b)
		found[n&(block-1)] = last
		if last != first {
			n++
		}
		hashes = hashes[2:]
	}
	if len(hashes) == window { // one is left
		eight := min(pair, hashes[window-2], hashes[window-1], four1)
		if least := min(eight, hashes[0]); least != last {
			found[n&(block-1)] = least
			n++
		}
	}
	return n
}

// mixed has each bit of a hash depend on all of them: else the least hash would say something of the text.
func mixed(h uint64) uint64 {
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}
