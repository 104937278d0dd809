package redact

import (
	"cmp"
	"encoding/binary"
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
	hits := s.find(text)
	if len(hits) == 0 {
		return text, nil
	}
	out := make([]byte, 0, len(text))
	done := 0
	for _, h := range hits {
		out = appendMark(append(out, text[done:h.start]...), h.Name)
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

func appendMark(b []byte, name string) []byte {
	return append(append(append(b, "[redacted: "...), name...), ']')
}

// find returns the places of secrets, in order and none within another.
func (s *Set) find(text []byte) []Hit {
	if s == nil || s.long.filter == nil && s.short.filter == nil {
		return nil
	}
	m := matcher{set: s, sums: sums{text: text, base: s.base}}
	if s.long.filter != nil {
		for i := s.long.next8(text, 0, s.multiplier); i >= 0; i = s.long.next8(text, i+longStep, s.multiplier) {
			m.at(&s.long, i, binary.LittleEndian.Uint64(text[i:])*s.multiplier)
		}
	}
	if s.short.filter != nil {
		for i := s.short.next4(text, 0, s.multiplier); i >= 0; i = s.short.next4(text, i+shortStep, s.multiplier) {
			m.at(&s.short, i, uint64(binary.LittleEndian.Uint32(text[i:]))*s.multiplier)
		}
	}
	return merge(m.hits)
}

// next8 returns the next place from i on, of those that are looked at, where a window may be; -1 if there is none.
func (t *tier) next8(text []byte, i int, multiplier uint64) int {
	filter := t.filter
	for ; i+4*longStep <= len(text); i += 4 * longStep { // four at a time, with one branch
		four := text[i : i+4*longStep]
		a := binary.LittleEndian.Uint64(four) * multiplier >> (64 - filterBits)
		b := binary.LittleEndian.Uint64(four[longStep:]) * multiplier >> (64 - filterBits)
		c := binary.LittleEndian.Uint64(four[2*longStep:]) * multiplier >> (64 - filterBits)
		d := binary.LittleEndian.Uint64(four[3*longStep:]) * multiplier >> (64 - filterBits)
		if (filter[a/64]>>(a%64)|filter[b/64]>>(b%64)|filter[c/64]>>(c%64)|filter[d/64]>>(d%64))&1 != 0 {
			break
		}
	}
	for ; i+longWidth <= len(text); i += longStep {
		bit := binary.LittleEndian.Uint64(text[i:]) * multiplier >> (64 - filterBits)
		if filter[bit/64]>>(bit%64)&1 != 0 {
			return i
		}
	}
	return -1
}

// next4 is next8 for the short forms.
func (t *tier) next4(text []byte, i int, multiplier uint64) int {
	filter := t.filter
	for ; i+4*shortStep <= len(text); i += 4 * shortStep {
		four := text[i : i+4*shortStep]
		a := uint64(binary.LittleEndian.Uint32(four)) * multiplier >> (64 - filterBits)
		b := uint64(binary.LittleEndian.Uint32(four[shortStep:])) * multiplier >> (64 - filterBits)
		c := uint64(binary.LittleEndian.Uint32(four[2*shortStep:])) * multiplier >> (64 - filterBits)
		d := uint64(binary.LittleEndian.Uint32(four[3*shortStep:])) * multiplier >> (64 - filterBits)
		if (filter[a/64]>>(a%64)|filter[b/64]>>(b%64)|filter[c/64]>>(c%64)|filter[d/64]>>(d%64))&1 != 0 {
			break
		}
	}
	for ; i+shortWidth <= len(text); i += shortStep {
		bit := uint64(binary.LittleEndian.Uint32(text[i:])) * multiplier >> (64 - filterBits)
		if filter[bit/64]>>(bit%64)&1 != 0 {
			return i
		}
	}
	return -1
}

// matcher is one search.
type matcher struct {
	set  *Set
	sums sums
	hits []Hit

	start, end int // of what was summed up last
	sum        uint64
}

// at looks for forms that have a window of this hash at i.
func (m *matcher) at(t *tier, i int, hash uint64) {
	h := uint32(hash >> 32)
	from, to := t.first[h>>t.shift], t.first[h>>t.shift+1]
	for k := from; k < to; k++ {
		e := &t.entries[k]
		if e.hash != h {
			continue
		}
		start := i - int(e.offset)
		end := start + int(e.print.Length)
		if start < 0 || end > len(m.sums.text) || m.covered(start, end) {
			continue
		}
		if start != m.start || end != m.end { // many forms may have their middle in common, and their length
			m.start, m.end, m.sum = start, end, m.sums.of(start, end)
		}
		sum := m.sum
		if uint16(sum) == e.print.Check && m.set.seal(sum, e.print.Length) == e.print.Seal {
			m.hit(e, start, end)
		}
	}
}

// covered reports whether the last hit has all of this.
func (m *matcher) covered(start, end int) bool {
	if len(m.hits) == 0 {
		return false
	}
	last := m.hits[len(m.hits)-1]
	return last.start <= start && end <= last.end
}

func (m *matcher) hit(e *entry, start, end int) {
	text := m.sums.text
	if e.print.Ragged&raggedHead != 0 && start > 0 && isBase64(text[start-1]) {
		start--
	}
	if e.print.Ragged&raggedTail != 0 && end < len(text) && isBase64(text[end]) {
		end++
	}
	m.hits = append(m.hits, Hit{e.name, start, end})
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/' || c == '-' || c == '_'
}

// merge puts hits in order and joins those that have bytes in common, under the name of the longest.
func merge(hits []Hit) []Hit {
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
