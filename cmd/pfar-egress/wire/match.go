package wire

import (
	"io"
	"slices"
	"strings"
	"sync"
)

// pattern is a text to be found, and what is done then.
type pattern struct {
	text, with string
	refuse     *Refusal // instead of with
}

// patterns finds the longest of several texts wherever it begins first. The texts are in order, so that those which
// begin as what is looked at stand together; two bytes with which none begins cost one look into a table.
type patterns struct {
	list  []pattern
	first [256]span            // of the list: texts that begin with each byte
	pairs [1 << 16 / 64]uint64 // a bit for each two bytes with which one begins

	longest int       // bytes of a text
	apart   [256]bool // bytes of separators that are in no text

	even bool // every text is as long as what stands for it
}

// separators hardly ever stand in a token, and often at the end of what is sent at once.
const separators = " \"'()<>[]{},"

// span is list[from:to].
type span struct{ from, to int32 }

// compile has whole texts found only. A part of a secret must be left as it is: whoever has guesses echoed would else
// be told by what becomes of each which one is right, letter by letter. Of two alike, the first counts.
func compile(list []pattern) *patterns {
	list = slices.DeleteFunc(slices.Clone(list), func(p pattern) bool { return p.text == "" })
	slices.SortStableFunc(list, func(a, b pattern) int { return strings.Compare(a.text, b.text) })
	s := &patterns{even: true}
	for c := range 256 {
		s.apart[c] = c < ' ' || c >= 0x7f || strings.IndexByte(separators, byte(c)) >= 0
	}
	s.list = slices.Clip(slices.CompactFunc(list, func(a, b pattern) bool { return a.text == b.text }))
	for i, p := range s.list {
		s.even = s.even && (p.refuse != nil || len(p.with) == len(p.text))
		here := &s.first[p.text[0]]
		if here.to == 0 {
			here.from = int32(i)
		}
		here.to = int32(i) + 1
		s.begin(p.text)
		s.longest = max(s.longest, len(p.text))
		for j := range len(p.text) {
			s.apart[p.text[j]] = false
		}
	}
	return s
}

// begin notes the two bytes with which a text begins.
func (s *patterns) begin(text string) {
	if len(text) > 1 {
		i := pairOf(text[0], text[1])
		s.pairs[i/64] |= 1 << (i % 64)
		return
	}
	for c := range 256 {
		i := pairOf(text[0], byte(c))
		s.pairs[i/64] |= 1 << (i % 64)
	}
}

func pairOf(a, b byte) uint { return uint(a)<<8 | uint(b) }

// skip returns how much of b cannot be the beginning of a text.
func (s *patterns) skip(b []byte) int {
	for i := 1; i < len(b); i++ {
		if p := pairOf(b[i-1], b[i]); s.pairs[p/64]&(1<<(p%64)) != 0 {
			return i - 1
		}
	}
	if n := len(b); n > 0 && s.first[b[n-1]].to > 0 {
		return n - 1
	}
	return len(b)
}

// find returns the first place in b that n bytes of a text stand at; n is 0 if none does.
func (s *patterns) find(b []byte) (at, n int, p pattern) {
	for i := s.skip(b); i < len(b); i += 1 + s.skip(b[i+1:]) {
		if n, found := s.walk(b[i:]); n > 0 {
			return i, n, *found
		}
	}
	return len(b), 0, pattern{}
}

// walk follows b from its beginning to the longest text there.
func (s *patterns) walk(b []byte) (n int, p *pattern) {
	here := s.first[b[0]]
	for i := 1; here.from < here.to; i++ {
		if len(s.list[here.from].text) == i { // the shortest stands first
			n, p = i, &s.list[here.from]
			here.from++
		}
		if i == len(b) {
			break
		}
		here = s.narrow(here, i, b[i])
	}
	return n, p
}

// settled returns how much of b, which goes on, no text may begin in and go on behind b. That does not depend on
// whether b ends as a text begins: whoever has guesses echoed would else be told by how much of them comes at once
// which one is right, letter by letter. It tells how long the longest text is, and of the separators which are in one.
func (s *patterns) settled(b []byte) int {
	least := min(len(b), max(0, len(b)-s.longest+1))
	for i := len(b); i > least; i-- {
		if s.apart[b[i-1]] {
			return i
		}
	}
	return least
}

// narrow returns those of texts alike up to i that have c there. All are longer.
func (s *patterns) narrow(here span, i int, c byte) span {
	if here.from == here.to {
		return here
	}
	if low, high := s.list[here.from].text[i], s.list[here.to-1].text[i]; low == high && low == c {
		return here
	}
	from := s.least(here, i, int(c))
	return span{from, s.least(span{from, here.to}, i, int(c)+1)}
}

// least returns the first of texts alike up to i that have c or more there.
func (s *patterns) least(here span, i, c int) int32 {
	for here.from < here.to {
		mid := (here.from + here.to) / 2
		if int(s.list[mid].text[i]) < c {
			here.from = mid + 1
		} else {
			here.to = mid
		}
	}
	return here.from
}

// filter replaces texts in a stream, however it is cut into pieces. It holds back what is not settled. What it looks
// for may change between two pieces.
type filter struct {
	patterns func() *patterns
	held     []byte
}

// add appends to dst what src, behind what was held back, becomes. End says that nothing follows. After an error, which
// is a *Refusal, nothing of it may be used.
func (f *filter) add(dst, src []byte, end bool) ([]byte, error) {
	b := src
	if len(f.held) > 0 {
		f.held = append(f.held, src...)
		b = f.held
	}
	s := f.patterns()
	settled := len(b)
	if !end {
		settled = s.settled(b)
	}
	done := 0
	for done < settled {
		at, n, p := s.find(b[done:])
		if at += done; at >= settled {
			dst, done = append(dst, b[done:settled]...), settled
			break
		}
		if p.refuse != nil {
			return nil, p.refuse
		}
		dst = append(append(dst, b[done:at]...), p.with...)
		done = at + n
	}
	f.held = append(f.held[:0], b[done:]...)
	return dst, nil
}

// all filters a whole text.
func (s *patterns) all(text string) (string, error) {
	if _, n, _ := s.find([]byte(text)); n == 0 {
		return text, nil
	}
	f := filter{patterns: func() *patterns { return s }}
	b, err := f.add(nil, []byte(text), true)
	return string(b), err
}

const bufferSize = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }}

// body is a body that passes a filter.
type body struct {
	io.ReadCloser
	filter filter
	ended  func() error // is called when the body has come to its end, before that is told

	in   *[]byte
	out  []byte // filtered, and rest of it not read yet
	rest []byte
	err  error
}

func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		b.fill()
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// fill reads once. What was held back when a body ends or breaks off holds a part of a secret at most.
func (b *body) fill() {
	if b.in == nil {
		b.in = buffers.Get().(*[]byte)
	}
	n, err := b.ReadCloser.Read(*b.in)
	var ferr error
	b.out, ferr = b.filter.add(b.out[:0], (*b.in)[:n], err != nil)
	b.rest = b.out
	if ferr != nil {
		err = ferr
	}
	if err == io.EOF && b.ended != nil {
		if ferr = b.ended(); ferr != nil {
			b.rest, err = nil, ferr
		}
	}
	if b.err = err; err != nil {
		buffers.Put(b.in)
		b.in = nil
	}
}
