package redact

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Set recognises secrets, and gives short ones away to whoever holds it. The zero value recognises nothing. It may be used by many at once, but for Put.
//
// Of each form of a value it has hashes of short windows in its middle, by which a text is searched, and a sealed sum over the
// whole, by which what was found is confirmed. The keys of both are in the set. The hashes can be inverted, in seconds: of a
// value of 15 bytes or more, or a line or token of one, that tells the 15 in its middle, of a shorter one most. What is missing can be tried, at one SHA-256
// a guess, and a value that follows a pattern or is in a list as a whole. So a random value of up to some 22 characters is
// found within hours; what a longer one has around its middle stays as hard to guess as it is long. Keeping less of a window
// would not help: in other forms, as in hexadecimal, a window has so few bytes of the value that they can be tried one window
// after the other. The whole set is for the gateway alone, which no search can do without; others get what is Only theirs.
type Set struct {
	key        [32]byte // of seals
	multiplier uint64   // of hashes; odd
	base       uint64   // of sums
	serial     int64
	secrets    []secret
	long       tier // forms of reach(8, 8) bytes and more
	short      tier // the others
}

// secret is what one value is recognised by.
type secret struct {
	name   string
	prints []print
}

// print is one form of a value. Its fields are of fixed size, as it is stored.
type print struct {
	Length  uint32
	At      uint32 // of the first window in it
	Windows [8]uint32
	Check   uint16 // the lowest bits of its sum, to save computing a seal
	Ragged  uint8  // bit 0: the character of Base64 before it has bits of the value; bit 1: that behind it
	Seal    uint64
}

const (
	raggedHead = 1 << iota
	raggedTail
)

// A text is looked at every step bytes, and so a form has that many windows: one of them stands where the text is looked at.
const (
	longWidth, longStep   = 8, 8
	shortWidth, shortStep = 4, 5 // for forms down to 8 bytes
	minLong               = longWidth + longStep - 1
	maxFormers            = 4 // values of one name that are recognised: servers run on with what they were started with
)

// New returns a set of the values, by their names. A name has nothing in it that JSON escapes.
func New(values map[string][]byte) *Set {
	s := new(Set)
	s.makeKeys()
	s.serial = time.Now().UnixNano()
	s.Put(values)
	return s
}

// Put adds values to a set that New made, and reports whether there is a new one. Older ones of the same name stay, the
// last few of them.
func (s *Set) Put(values map[string][]byte) bool {
	added := false
	for name, value := range values {
		added = s.put(name, value) || added
	}
	if added {
		s.serial = max(s.serial+1, time.Now().UnixNano())
		s.index()
	}
	return added
}

// Serial tells a set from those before it, also those of another process: it is greater. That of a zero Set is 0.
func (s *Set) Serial() int64 { return s.serial }

// Only returns the part of the set that recognises the values of these names, without a serial: nobody waits for one.
func (s *Set) Only(names []string) *Set {
	part := &Set{key: s.key, multiplier: s.multiplier, base: s.base}
	for _, one := range s.secrets {
		if slices.Contains(names, one.name) {
			part.secrets = append(part.secrets, one)
		}
	}
	slices.SortStableFunc(part.secrets, func(a, b secret) int { return strings.Compare(a.name, b.name) }) // the same in any order of Put
	part.index()
	return part
}

// put reports whether the value is new.
func (s *Set) put(name string, value []byte) bool {
	prints := s.printsOf(value)
	known := slices.IndexFunc(s.secrets, func(old secret) bool { return old.name == name && slices.Equal(old.prints, prints) })
	if known >= 0 { // it is the newest now
		one := s.secrets[known]
		s.secrets = append(slices.Delete(s.secrets, known, known+1), one)
		return false
	}
	if len(prints) == 0 {
		return false
	}
	s.secrets = append(s.secrets, secret{name, prints})
	former := 0
	for i := len(s.secrets) - 1; i >= 0; i-- {
		if s.secrets[i].name == name {
			if former++; former > maxFormers {
				s.secrets = slices.Delete(s.secrets, i, i+1)
			}
		}
	}
	return true
}

func (s *Set) printsOf(value []byte) []print {
	var prints []print
	seen := map[string]bool{}
	for _, piece := range pieces(value) {
		for _, f := range forms(piece) {
			if len(f.text) >= MinLength && !seen[f.text] {
				seen[f.text] = true
				prints = append(prints, s.printOf(f))
			}
		}
	}
	return prints
}

func (s *Set) makeKeys() {
	var random [16]byte
	rand.Read(s.key[:])
	rand.Read(random[:])
	s.multiplier = binary.LittleEndian.Uint64(random[:8]) | 1
	s.base = binary.LittleEndian.Uint64(random[8:])%(prime-2) + 2
}

func (s *Set) printOf(f form) print {
	p := print{Length: uint32(len(f.text))}
	if f.head {
		p.Ragged |= raggedHead
	}
	if f.tail {
		p.Ragged |= raggedTail
	}
	width, step := longWidth, longStep
	if len(f.text) < minLong {
		width, step = shortWidth, shortStep
	}
	p.At = uint32((len(f.text) - (width + step - 1)) / 2)
	for i := range step {
		p.Windows[i] = uint32(s.hash(f.text[int(p.At)+i:][:width]) >> 32)
	}
	sum := sumOf(s.base, []byte(f.text))
	p.Check, p.Seal = uint16(sum), s.seal(sum, p.Length)
	return p
}

// hash is that of a window of 8 bytes or of 4; its highest bits are the best (multiply-shift).
func (s *Set) hash(window string) uint64 {
	if len(window) == longWidth {
		return binary.LittleEndian.Uint64([]byte(window)) * s.multiplier
	}
	return uint64(binary.LittleEndian.Uint32([]byte(window))) * s.multiplier
}

// seal tells nothing of a sum to who cannot guess it. All of it is one block of SHA-256, so it needs no HMAC: nothing can be
// appended to an input of fixed length.
func (s *Set) seal(sum uint64, length uint32) uint64 {
	var in [44]byte
	copy(in[:], s.key[:])
	binary.LittleEndian.PutUint64(in[32:], sum)
	binary.LittleEndian.PutUint32(in[40:], length)
	out := sha256.Sum256(in[:])
	return binary.LittleEndian.Uint64(out[:])
}

// Len returns how many values are recognised, former ones with them.
func (s *Set) Len() int { return len(s.secrets) }

// Longest is the length of the longest form, in bytes: so much of a text has to be seen at once.
func (s *Set) Longest() int {
	if s == nil {
		return 0
	}
	return max(s.long.longest, s.short.longest)
}

// tier finds the forms of one kind: first bits that tell most windows from those of the forms, then a table.
type tier struct {
	width, step int
	longest     int
	filter      *[1 << filterBits / 64]uint64 // nil: there are no forms
	entries     []entry                       // by hash
	first       []uint32                      // index in entries, by the hash's highest bits
	shift       int                           // that leaves those bits
}

// entry is one window of a form.
type entry struct {
	hash   uint32
	offset uint32 // of the window in the form
	print  *print
	name   string
}

const filterBits = 19 // 64 KiB, so that it stays in the second cache

func (s *Set) index() {
	s.long = tier{width: longWidth, step: longStep}
	s.short = tier{width: shortWidth, step: shortStep}
	for i := range s.secrets {
		for j := range s.secrets[i].prints {
			p := &s.secrets[i].prints[j]
			t := &s.long
			if p.Length < minLong {
				t = &s.short
			}
			for n := range t.step {
				t.entries = append(t.entries, entry{p.Windows[n], p.At + uint32(n), p, s.secrets[i].name})
			}
			t.longest = max(t.longest, int(p.Length))
		}
	}
	s.long.index()
	s.short.index()
}

func (t *tier) index() {
	if len(t.entries) == 0 {
		return
	}
	slices.SortStableFunc(t.entries, func(a, b entry) int { return int(int64(a.hash) - int64(b.hash)) })
	t.filter = new([1 << filterBits / 64]uint64)
	size := bits.Len(uint(len(t.entries)))
	t.shift = 32 - size
	t.first = make([]uint32, 1<<size+1)
	for i, e := range t.entries {
		bit := e.hash >> (32 - filterBits)
		t.filter[bit/64] |= 1 << (bit % 64)
		t.first[e.hash>>t.shift+1] = uint32(i + 1)
	}
	for i := 1; i < len(t.first); i++ {
		t.first[i] = max(t.first[i], t.first[i-1])
	}
}

// head begins a stored set; the names follow, each with a line end, and the forms.
type head struct {
	Magic      [8]byte
	Key        [32]byte
	Multiplier uint64
	Base       uint64
	Serial     int64
	Names      uint32 // bytes
	Secrets    uint32
}

var magic = [8]byte{'p', 'f', 'r', 'e', 'd', 'a', 'c', 1}

// MarshalBinary writes the set.
func (s *Set) MarshalBinary() ([]byte, error) {
	var names strings.Builder
	for _, one := range s.secrets {
		names.WriteString(one.name + "\n")
	}
	h := head{magic, s.key, s.multiplier, s.base, s.serial, uint32(names.Len()), uint32(len(s.secrets))}
	b, err := binary.Append(nil, binary.LittleEndian, h)
	b = append(b, names.String()...)
	for _, one := range s.secrets {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(one.prints)))
		if err == nil {
			b, err = binary.Append(b, binary.LittleEndian, one.prints)
		}
	}
	return b, err
}

var errStored = errors.New("reading a set of secrets: not what pfard of this version writes")

// UnmarshalBinary reads what MarshalBinary wrote.
func (s *Set) UnmarshalBinary(b []byte) error {
	var h head
	n, err := binary.Decode(b, binary.LittleEndian, &h)
	if err != nil || h.Magic != magic || int(h.Names) > len(b)-n {
		return errStored
	}
	names := bytes.Split(b[n:n+int(h.Names)], []byte{'\n'})
	b = b[n+int(h.Names):]
	if len(names) != int(h.Secrets)+1 {
		return errStored
	}
	read := Set{key: h.Key, multiplier: h.Multiplier, base: h.Base, serial: h.Serial}
	size := binary.Size(print{})
	for _, name := range names[:h.Secrets] {
		if len(b) < 4 {
			return errStored
		}
		count := int(binary.LittleEndian.Uint32(b))
		if b = b[4:]; count > len(b)/size {
			return errStored
		}
		one := secret{string(name), make([]print, count)}
		if _, err := binary.Decode(b, binary.LittleEndian, one.prints); err != nil {
			return fmt.Errorf("reading a set of secrets: %w", err)
		}
		for _, p := range one.prints {
			if p.Length < MinLength || p.At > p.Length-MinLength {
				return errStored
			}
		}
		read.secrets, b = append(read.secrets, one), b[count*size:]
	}
	if len(b) > 0 {
		return errStored
	}
	read.index()
	*s = read
	return nil
}
