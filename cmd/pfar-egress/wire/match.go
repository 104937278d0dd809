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

// patterns finds the longest of several texts wherever it begins first. The texts are in order, so that those which begin as
// what is looked at stand together; two bytes with which none begins cost one look into a table.
type patterns struct {
	list  []pattern
	first [256]span            // of the list: texts that begin with each byte
	pairs [1 << 16 / 64]uint64 // a bit for each two bytes with which one begins

	even bool // every text is as long as what stands for it
}

// span is list[from:to].
type span struct{ from, to int32 }

// compile has whole texts found only. A part of a secret must be left as it is: whoever has guesses echoed would else be told
// by what becomes of each which one is right, letter by letter. Of two alike, the first counts.
func compile(list []pattern) *patterns {
	list = slices.DeleteFunc(slices.Clone(list), func(p pattern) bool { return p.text == "" })
	slices.SortStableFunc(list, func(a, b pattern) int { return strings.Compare(a.text, b.text) })
	s := &patterns{even: true}
	s.list = slices.Clip(slices.CompactFunc(list, func(a, b pattern) bool { return a.text == b.text }))
	for i, p := range s.list {
		s.even = s.even && (p.refuse != nil || len(p.with) == len(p.text))
		here := &s.first[p.text[0]]
		if here.to == 0 {
			here.from = int32(i)
		}
		here.to = int32(i) + 1
		s.begin(p.text)
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

// find returns the first place in b that n bytes of a text stand at. If none does, n is 0, and at is where the end of b
// begins that may become one with what follows; of the end of everything there is none.
func (s *patterns) find(b []byte, end bool) (at, n int, p pattern) {
	for i := s.skip(b); i < len(b); i += 1 + s.skip(b[i+1:]) {
		n, found, open := s.walk(b[i:])
		switch {
		case open && !end:
			return i, 0, pattern{}
		case n > 0:
			return i, n, *found
		}
	}
	return len(b), 0, pattern{}
}

// walk follows b from its beginning: the longest text there, and whether one could go on where b ends.
func (s *patterns) walk(b []byte) (n int, p *pattern, open bool) {
	here := s.first[b[0]]
	for i := 1; here.from < here.to; i++ {
		if len(s.list[here.from].text) == i { // the shortest stands first
			n, p = i, &s.list[here.from]
			here.from++
		}
		if i == len(b) {
			return n, p, here.from < here.to
		}
		here = s.narrow(here, i, b[i])
	}
	return n, p, false
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

// filter replaces texts in a stream, however it is cut into pieces. It holds back what may be the beginning of one, and
// nothing else. What it looks for may change between two pieces.
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
	for {
		at, n, p := s.find(b, end)
		dst = append(dst, b[:at]...)
		switch {
		case n == 0:
			f.held = append(f.held[:0], b[at:]...)
			return dst, nil
		case p.refuse != nil:
			return nil, p.refuse
		}
		dst = append(dst, p.with...)
		b = b[at+n:]
	}
}

// all filters a whole text.
func (s *patterns) all(text string) (string, error) {
	if _, n, _ := s.find([]byte(text), true); n == 0 {
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

// fill reads once. What was held back when a body ends or breaks off is a part of a secret at most.
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
