package winnow

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// common is how long the longest run is that two texts have in common.
func common(a, b string) int {
	best := 0
	for i := range a {
		for k := range b {
			n := 0
			for i+n < len(a) && k+n < len(b) && a[i+n] == b[k+n] {
				n++
			}
			best = max(best, n)
		}
	}
	return best
}

func meet(a, b string) bool {
	of := Append(nil, b)
	return slices.ContainsFunc(Append(nil, a), func(f uint64) bool { return slices.Contains(of, f) })
}

// rot13 turns the letters, and changes their case.
func rot13(s string) string {
	b := []byte(s)
	for i, c := range b {
		if lower := c | 0x20; 'a' <= lower && lower <= 'z' {
			b[i] = (lower-'a'+13)%26 + 'a' ^ (c&0x20 ^ 0x20)
		}
	}
	return string(b)
}

// FuzzRuns: whatever two texts are, a naive search finds no run of 20 bytes in both that has no common fingerprint, nor
// in what is written in another way.
func FuzzRuns(f *testing.F) {
	for _, seed := range [][3]string{
		{"twenty bytes in a row", "before ", " behind"}, {"--------------------------", "=", "+"},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaa", "b", ""}, {"abababababababababababab", "ba", "ab"}, {"", "", ""},
		{"\x00\x01\x02\x03\x04\x05\x06\x07\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13", "\xff", "\x80"},
		{"0123456789012345678", "9", "0"}, {"0000000000\xff00000000000", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, run, before, behind string) {
		if len(run)+len(before)+len(behind) > 300 {
			return
		}
		text := before + run + behind
		for name, other := range map[string]string{
			"the same": run, "amid": behind + run + before,
			"turned": behind + rot13(run), "upper case": asciiUpper(run),
		} {
			found := meet(text, other)
			if len(run) >= Run && !found {
				t.Errorf("%s: %q and %q have nothing in common", name, text, other)
			}
			if !found && common(text, other) >= Run {
				t.Errorf("%s: %q and %q have a run in common", name, text, other)
			}
		}
		spaced := strings.Join(strings.Split(letters(run), ""), " ")
		if len(letters(run)) >= Run && !meet(text, spaced) {
			t.Errorf("%q is not found in %q", spaced, text)
		}
	})
}

func asciiUpper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 32
		}
	}
	return string(b)
}

// letters are what of a text is no separator.
func letters(s string) string {
	var b []byte
	for i := range len(s) {
		if class(s[i]) < others {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// TestBlocks: a run is found wherever it stands in a long text.
func TestBlocks(t *testing.T) {
	const run = "a run of 20 bytes, which is one of few"
	of := Append(nil, run[:Run])
	for before := range 3 * block {
		text := strings.Repeat("x", before) + run[:Run] + strings.Repeat("yz ", block)
		if !slices.ContainsFunc(Append(nil, text), func(f uint64) bool { return slices.Contains(of, f) }) {
			t.Fatalf("behind %d bytes it is not found", before)
		}
	}
}

// TestHonest: texts that have nothing in common have no common fingerprint, and a text has few.
func TestHonest(t *testing.T) {
	const a = "The session reads a page of the handbook, and then it looks for the weather in Vienna on Thursday morning."
	const b = "Quarterly figures: revenue rose by eleven percent; costs fell. Do not forward this mail outside the board."
	if meet(a, b) {
		t.Error("they meet")
	}
	for _, n := range []int{0, 11, 12, 19} {
		if fps := Append(nil, a[:n]); len(fps) != 0 {
			t.Errorf("%d bytes have %d fingerprints, and nobody is asked to find them", n, len(fps))
		}
	}
	long := strings.Repeat(a+b, 100)
	if n := len(Append(nil, long)); n > len(long) {
		t.Errorf("%d fingerprints of %d bytes", n, len(long))
	}
}

// BenchmarkAppend takes another text each time: a processor learns where one that comes again has its fingerprints.
func BenchmarkAppend(b *testing.B) {
	const size = 1024
	random := rand.New(rand.NewPCG(1, 2))
	letters := make([]byte, 512*size)
	for i := range letters {
		letters[i] = "etaoin shrdlu"[random.IntN(13)]
	}
	texts := string(letters)
	var dst []uint64
	b.SetBytes(size)
	for i := 0; b.Loop(); i = (i + size) % len(texts) {
		dst = Append(dst[:0], texts[i:i+size])
	}
}
