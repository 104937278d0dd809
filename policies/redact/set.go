package redact

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Set recognises secrets. The zero value recognises nothing. It never changes: many may use it at once.
//
// Whoever holds a set has its keys, and of a value and of each of its three or six forms in Base64
//   - nine or ten bits of a keyed hash of the 24 bytes in the middle, or of the whole if that is shorter, by which texts are
//     searched. They are bits of a filter, which does not say whose they are;
//   - a keyed SHA-256, cut to 64 bits, of the 32 bytes in the middle, or 24, or of the whole if that is shorter;
//   - of a longer one such a SHA-256 of a sum of 61 bits over the whole.
//
// All other forms are found by undoing them in the text. So no part of less than 16 bytes of a value, or less than the
// whole of a shorter one, is told from any other, and there is nothing to extend a guess by. A value of which few are
// possible is found by trying them all, at a multiplication each and a SHA-256 for what the filter lets pass: a
// password that is in a list at once, 8 random letters and digits within an hour on one graphics card, 12 after
// decades, 16 hexadecimal digits after months. The bits of the filter, some 40 of a value in all, cannot be had without
// such a search.
type Set struct {
	key    [32]byte  // of seals
	keys   [2]uint64 // of hashes of windows
	base   uint64    // of sums
	serial int64

	secrets []secret
	blank   byte                           // no value has a byte below it
	tiers   [maxWidth - MinLength + 1]tier // forms by the widths of their windows

	entries        map[uint64][]entry // forms by the seals of their cores
	least, longest int                // lengths of forms
	limit          uint64             // blank in each byte
	widths         []int              // of windows, the least first
}

// secret is what one value is recognised by.
type secret struct {
	name   string
	prints []print

	// These are not stored, so With and Only are for a set that New made.
	hashes []uint64 // of the prints' windows
	blank  byte     // see Set
}

// print is one form of a value. Its fields are of fixed size, as it is stored.
type print struct {
	Length uint32
	Core   uint64 // the seal of what coreOf says
	Whole  uint64 // that of the sum over all of it, if that is more
	Ragged uint8  // bit 0: the character of Base64 before it has bits of the value; bit 1: that behind it
}

const (
	raggedHead = 1 << iota
	raggedTail
)

const (
	maxWidth   = 24 // of windows, in bytes: shorter forms are their own
	maxCore    = 32
	maxFormers = 4 // values of one name that are recognised: servers run on with what they were started with
)

// coreOf says which part of a form of a length is sealed, so that few lengths have to be tried where a window is.
func coreOf(length int) (from, n int) {
	switch {
	case length >= maxCore:
		n = maxCore
	case length >= 24:
		n = 24
	default:
		n = length
	}
	return (length - n) / 2, n
}

// New returns a set of the values, by their names. A name has nothing in it that JSON escapes.
func New(values map[string][]byte) *Set {
	s := new(Set)
	rand.Read(s.key[:])
	var random [24]byte
	rand.Read(random[:])
	s.keys = [2]uint64{binary.LittleEndian.Uint64(random[:]), binary.LittleEndian.Uint64(random[8:])}
	s.base = binary.LittleEndian.Uint64(random[16:])%(prime-2) + 2
	s.serial = time.Now().UnixNano()
	s, _ = s.With(values)
	return s
}

// With returns a set that New made with these values as well, and reports whether one of them is new. Older ones of the
// same name stay, the last few of them.
func (s *Set) With(values map[string][]byte) (more *Set, added bool) {
	with := *s
	with.secrets = slices.Clone(s.secrets)
	for name, value := range values {
		added = with.put(name, value) || added
	}
	if added {
		with.serial = max(s.serial+1, time.Now().UnixNano())
		with.fill()
		with.index()
	}
	return &with, added
}

// Serial tells a set from those before it, also those of another process: it is greater. That of a zero Set is 0.
func (s *Set) Serial() int64 { return s.serial }

// Only returns the part of the set that recognises the values of these names, without a serial: nobody waits for one.
func (s *Set) Only(names []string) *Set {
	part := &Set{key: s.key, keys: s.keys, base: s.base}
	for _, one := range s.secrets {
		if slices.Contains(names, one.name) {
			part.secrets = append(part.secrets, one)
		}
	}
	slices.SortStableFunc(part.secrets, func(a, b secret) int { return strings.Compare(a.name, b.name) }) // the same in any order of With
	part.fill()
	part.index()
	return part
}

// put reports whether the value is new.
func (s *Set) put(name string, value []byte) bool {
	one := s.secretOf(name, value)
	known := slices.IndexFunc(s.secrets, func(old secret) bool { return old.name == name && slices.Equal(old.prints, one.prints) })
	if known >= 0 { // it is the newest now
		s.secrets = slices.Delete(s.secrets, known, known+1)
	}
	if len(one.prints) == 0 {
		return false
	}
	s.secrets = append(s.secrets, one)
	former := 0
	for i := len(s.secrets) - 1; i >= 0; i-- {
		if s.secrets[i].name == name {
			if former++; former > maxFormers {
				s.secrets = slices.Delete(s.secrets, i, i+1)
			}
		}
	}
	return known < 0
}

// blanks are what a set may take for the end of whatever may be a value: most have neither white space nor quotation
// marks.
var blanks = []byte{'"' + 1, ' ' + 1, 0}

func (s *Set) secretOf(name string, value []byte) secret {
	one := secret{name: name, blank: blanks[0]}
	seen := map[string]bool{}
	for _, piece := range pieces(value) {
		for _, f := range append([]form{{text: piece}}, base64Forms(piece)...) {
			if seen[f.text] || len(f.text) < MinLength {
				continue
			}
			seen[f.text] = true
			p, hash := s.printOf(f)
			one.prints, one.hashes = append(one.prints, p), append(one.hashes, hash)
		}
		lowest := slices.Min([]byte(piece))
		for _, b := range blanks {
			if lowest >= b {
				one.blank = min(one.blank, b)
				break
			}
		}
	}
	return one
}

func (s *Set) printOf(f form) (p print, hash uint64) {
	p.Length = uint32(len(f.text))
	if f.head {
		p.Ragged |= raggedHead
	}
	if f.tail {
		p.Ragged |= raggedTail
	}
	from, n := coreOf(len(f.text))
	core := []byte(f.text[from : from+n])
	p.Core = s.seal(core)
	if n < len(f.text) {
		p.Whole = s.sealSum(sumOf(s.base, []byte(f.text)), len(f.text))
	}
	width := widthOf(len(f.text))
	window := core[(n-width)/2:][:width]
	return p, hashOf(window, window[width/2-4:], window[width-8:], s.keys)
}

func widthOf(length int) int { return min(length, maxWidth) }

// hashOf is that of a window, by the 8 bytes with which it begins, those in its middle and those with which it ends. It
// has to be cheap, as it is computed at every byte, and not linear, lest what is known of several windows be solved for
// their bytes. Its highest bits are the best.
func hashOf(first, middle, last []byte, keys [2]uint64) uint64 {
	return (binary.LittleEndian.Uint64(first) + bits.RotateLeft64(binary.LittleEndian.Uint64(middle), 29) + keys[0]) *
		(binary.LittleEndian.Uint64(last) + keys[1])
}

// seal tells nothing of a core to who cannot guess it. Its length is told apart by the last byte, and all is of fixed
// length, so it needs no HMAC: nothing can be appended.
func (s *Set) seal(core []byte) uint64 {
	var in [32 + maxCore + 1]byte
	copy(in[:], s.key[:])
	copy(in[32:], core)
	in[32+maxCore] = byte(len(core))
	out := sha256.Sum256(in[:])
	return binary.LittleEndian.Uint64(out[:])
}

// sealSum is that of a sum and of the length of what it is over.
func (s *Set) sealSum(sum uint64, length int) uint64 {
	var in [48]byte
	copy(in[:], s.key[:])
	binary.LittleEndian.PutUint64(in[32:], sum)
	binary.LittleEndian.PutUint64(in[40:], uint64(length))
	out := sha256.Sum256(in[:])
	return binary.LittleEndian.Uint64(out[:])
}

// Longest is the length of the longest text in which a value may be found, in bytes: so much has to be seen at once.
func (s *Set) Longest() int {
	if s == nil {
		return 0
	}
	return longestEscape * s.longest
}

// longestEscape is how long what stands for one byte may be, 8, as "\\\"" in JSON within JSON within JSON is, with
// regard to the longest form, which is Base64.
const longestEscape = 6

// tier finds the windows of one width: first by a filter that holds most texts back, then by the cores of all lengths
// that there are.
type tier struct {
	filter []byte // by a hash's highest bits, 1 where a window has them; nil: there are no forms
	shift  int    // that leaves those bits
	cores  []int  // the lengths of the forms' cores
}

// tier returns that for forms of a length.
func (s *Set) tier(length int) *tier { return &s.tiers[widthOf(length)-MinLength] }

// Slots of a filter for each window: with more of them, fewer texts are looked at closely, and each window is told more
// of.
const (
	perWindow = 512
	maxFilter = 19 // bits: of the second cache
)

// fill makes the filters anew.
func (s *Set) fill() {
	windows := map[*tier][]uint64{}
	s.blank = blanks[0]
	for _, one := range s.secrets {
		s.blank = min(s.blank, one.blank)
		for i, p := range one.prints {
			t := s.tier(int(p.Length))
			windows[t] = append(windows[t], one.hashes[i])
		}
	}
	s.tiers = [len(s.tiers)]tier{}
	for t, hashes := range windows {
		n := bits.Len(uint(perWindow*len(hashes) - 1))
		t.resize(min(n, maxFilter))
		for _, h := range hashes {
			t.filter[h>>t.shift] = 1
		}
	}
}

// resize gives the filter so many bits to choose a slot by, and nothing in it.
func (t *tier) resize(bits int) { t.filter, t.shift = make([]byte, 1<<bits), 64-bits }

// index makes what is found by the prints.
func (s *Set) index() {
	s.widths = nil
	for i, t := range s.tiers {
		if t.filter != nil {
			s.widths = append(s.widths, MinLength+i)
		}
	}
	s.entries, s.least, s.longest, s.limit = map[uint64][]entry{}, 0, 0, uint64(s.blank)*eachByte
	for i := range s.secrets {
		for j := range s.secrets[i].prints {
			p := &s.secrets[i].prints[j]
			n := int(p.Length)
			s.entries[p.Core] = append(s.entries[p.Core], entry{p, s.secrets[i].name})
			t := s.tier(n)
			if _, core := coreOf(n); !slices.Contains(t.cores, core) {
				t.cores = append(t.cores, core)
			}
			if s.longest = max(s.longest, n); s.least == 0 || n < s.least {
				s.least = n
			}
		}
	}
}

// entry is a form, and whose.
type entry struct {
	*print
	name string
}
