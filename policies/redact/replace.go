package redact

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
)

// Hit is a place in a text where a secret stood.
type Hit struct {
	Name       string
	start, end int
}

// Replace puts "[redacted: NAME]" in place of every secret in a text, and says which there were. Without one it returns
// the text itself.
func (s *Set) Replace(text []byte) ([]byte, []Hit) {
	return replace(text, merge(s.find(text)), named)
}

func replace(text []byte, hits []Hit, mark marker) ([]byte, []Hit) {
	if len(hits) == 0 {
		return text, nil
	}
	out := make([]byte, 0, len(text))
	done := 0
	for _, h := range hits {
		out = mark(append(out, text[done:h.start]...), h.Name)
		done = h.end
	}
	return append(out, text[done:]...), hits
}

// String is Replace for a string.
func (s *Set) String(text string) string {
	if b, hits := s.Replace([]byte(text)); len(hits) > 0 {
		return string(b)
	}
	return text
}

// marker appends what stands in place of a secret of this name.
type marker func(b []byte, name string) []byte

func named(b []byte, name string) []byte {
	return append(append(append(b, "[redacted: "...), name...), ']')
}

func nameless(b []byte, _ string) []byte { return append(b, "[redacted]"...) }

// find returns the places of secrets, in no order.
func (s *Set) find(text []byte) []Hit {
	if s == nil || s.least == 0 || len(text) < s.least {
		return nil
	}
	m := matcher{set: s}
	var r reading
	if s.blank == 0 {
		r.text = text
		m.parts(&r, marksIn(text))
		return m.hits
	}
	var may marks // most texts have nothing to be read
	for from, to := s.stretch(text, 0); from >= 0; from, to = s.stretch(text, to) {
		if r.text == nil {
			may = marksIn(text)
		}
		r.text, r.from = text[from:to], from
		m.parts(&r, may)
	}
	return m.hits
}

// maxPart is how much is read at once, in bytes: with escapes undone it takes some twenty times the memory.
const maxPart = 256 << 10

// parts reads a text in parts that have more in common than a value is long, with its escapes.
func (m *matcher) parts(r *reading, may marks) {
	whole, common := r.text, 2*m.set.Longest()+4<<10
	most := max(maxPart, 4*common)
	for len(whole) > most {
		r.text = whole[:most]
		m.part(r, may)
		whole, r.from = whole[most-common:], r.from+most-common
	}
	r.text = whole
	m.part(r, may)
}

// part keeps one of those hits that several readings have.
func (m *matcher) part(r *reading, may marks) {
	n := len(m.hits)
	m.read(r, may, depth)
	found := m.hits[n:]
	slices.SortFunc(found, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.Name, b.Name))
	})
	m.hits = m.hits[:n+len(slices.Compact(found))]
}

// stretch returns the next part of a text from i on that may hold a secret, for it is long enough and has no blank; -1
// if there is none. It looks at eight bytes at once.
func (s *Set) stretch(text []byte, i int) (from, to int) {
	for from = i; i+8 <= len(text); i += 8 {
		blank := s.blanksIn(text[i:])
		if blank == 0 {
			continue
		}
		if to = i + bits.TrailingZeros64(blank)>>3; to-from >= s.least {
			return from, to
		}
		from = i + 8 - bits.LeadingZeros64(blank)>>3
	}
	for ; i < len(text); i++ {
		if text[i] >= s.blank {
			continue
		}
		if i-from >= s.least {
			return from, i
		}
		from = i + 1
	}
	if len(text)-from >= s.least {
		return from, len(text)
	}
	return -1, -1
}

const (
	eachByte = 0x0101010101010101
	highBits = 0x80 * eachByte
)

// blanksIn returns the highest bit of each of the first eight bytes that is a blank.
func (s *Set) blanksIn(text []byte) uint64 {
	w := binary.LittleEndian.Uint64(text)
	return ^(((w | highBits) - s.limit) | w) & highBits // the high bits keep a byte from borrowing of the next
}

// matcher is one search.
type matcher struct {
	set  *Set
	hits []Hit

	reading      // that is searched now
	sums    sums // of it
	summed  bool // sums are of it
}

// read searches a reading, and what it says when escapes are undone so many times at most. Only those are looked for
// that may be there.
func (m *matcher) read(r *reading, may marks, depth int) {
	m.search(r)
	if least := 2 * m.set.least; len(r.text) >= least {
		m.hexadecimal(r, least)
	}
	if depth == 0 {
		return
	}
	for i, is := range may {
		if !is {
			continue
		}
		if next, ok := decoders[i].decode(r, m.set.blank); ok && len(next.text) >= m.set.least {
			m.read(next, allMarks, depth-1)
		}
	}
}

func (m *matcher) search(r *reading) {
	m.summed = false
	for _, width := range m.set.widths {
		if width > len(r.text) {
			break
		}
		t := m.set.tier(width)
		for i := t.next(r.text, 0, width, m.set.keys); i >= 0; i = t.next(r.text, i+1, width, m.set.keys) {
			m.reading = *r
			m.at(t, width, i)
		}
	}
}

// next returns the next place from i on where a window may be; -1 if there is none.
//
// It reads nothing that changes, and so often that the race detector would make it eighty times as slow.
//
//go:norace
func (t *tier) next(text []byte, i, width int, keys [2]uint64) int {
	filter, shift := t.filter, t.shift&63
	middles, ends := text[width/2-4:], text[width-8:] // of the windows: 8 bytes of each
	for ; i+11 <= len(ends); i += 4 {                 // four at a time, with one branch
		u, v, w := text[i:i+11], middles[i:i+11], ends[i:i+11]
		a := hashOf(u, v, w, keys) >> shift
		b := hashOf(u[1:], v[1:], w[1:], keys) >> shift
		c := hashOf(u[2:], v[2:], w[2:], keys) >> shift
		d := hashOf(u[3:], v[3:], w[3:], keys) >> shift
		if filter[a]|filter[b]|filter[c]|filter[d] != 0 {
			break
		}
	}
	for ; i+8 <= len(ends); i++ {
		if filter[hashOf(text[i:], middles[i:], ends[i:], keys)>>shift] != 0 {
			return i
		}
	}
	return -1
}

// at looks for forms that have their window at i.
func (m *matcher) at(t *tier, width, i int) {
	for _, n := range t.cores {
		start := i - (n-width)/2
		if start < 0 || start+n > len(m.text) {
			continue
		}
		for _, e := range m.set.entries[m.set.seal(m.text[start:start+n])] {
			m.confirm(e, start)
		}
	}
}

// confirm adds a hit if all of a form stands where its core begins at core.
func (m *matcher) confirm(e entry, core int) {
	from, n := coreOf(int(e.Length))
	start, end := core-from, core-from+int(e.Length)
	if start < 0 || end > len(m.text) || m.covered(m.place(start), m.place(end)) {
		return
	}
	if n < int(e.Length) && m.set.sealSum(m.sumOf(start, end), end-start) != e.Whole {
		return
	}
	if e.Ragged&raggedHead != 0 && start > 0 && isBase64(m.text[start-1]) {
		start--
	}
	if e.Ragged&raggedTail != 0 && end < len(m.text) && isBase64(m.text[end]) {
		end++
	}
	m.hits = append(m.hits, Hit{e.name, m.place(start), m.place(end)})
}

func (m *matcher) sumOf(start, end int) uint64 {
	if !m.summed {
		m.sums, m.summed = sums{text: m.text, base: m.set.base}, true
	}
	return m.sums.of(start, end)
}

// covered reports whether the last hit has all of this.
func (m *matcher) covered(start, end int) bool {
	if len(m.hits) == 0 {
		return false
	}
	last := m.hits[len(m.hits)-1]
	return last.start <= start && end <= last.end
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// merge puts hits in order and joins those that have bytes in common, under the name of the longest.
func merge(hits []Hit) []Hit {
	if len(hits) == 0 {
		return nil
	}
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	var merged []Hit
	longest := 0
	for _, h := range hits {
		if n := len(merged) - 1; n >= 0 && h.start < merged[n].end {
			if h.end-h.start > longest {
				longest, merged[n].Name = h.end-h.start, h.Name
			}
			merged[n].end = max(merged[n].end, h.end)
			continue
		}
		merged, longest = append(merged, h), h.end-h.start
	}
	return merged
}

// Names returns the names of the secrets in a text, each once.
func (s *Set) Names(text []byte) []string {
	var names []string
	for _, h := range s.find(text) {
		if !slices.Contains(names, h.Name) {
			names = append(names, h.Name)
		}
	}
	return names
}
