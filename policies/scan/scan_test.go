package scan

import (
	"math"
	"strings"
	"testing"
)

// ways runs a test with what is quick on this machine, and with what is there for any.
func ways(f func(way string)) {
	f("quick")
	defer func(was bool) { wide = was }(wide)
	wide = false
	f("any")
}

var sets = map[string]*Set{
	"none":    Of(func(byte) bool { return false }),
	"all":     Of(func(byte) bool { return true }),
	"ASCII":   Of(func(c byte) bool { return c < 0x80 }),
	"odd":     Of(func(c byte) bool { return c&1 == 1 }),
	"letters": Of(func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }),
	"beyond":  Of(func(c byte) bool { return c >= 0x80 || c == '"' || c == '~' }),
	"signs":   Of(func(c byte) bool { return c == '"' || c == '\\' || c < 0x20 }),
	"some":    Of(func(c byte) bool { return strings.IndexByte("\x00\x0f\x10\x1f\"\\~\x7f\x80\x8f\xf0\xff", c) >= 0 }),
}

// TestMark has each byte among neighbours of each set, in texts that end anywhere in a block.
func TestMark(t *testing.T) {
	var all [256]byte
	for c := range all {
		all[c] = byte(c)
	}
	text := string(all[:]) + string(all[:])
	ways(func(way string) {
		for name, s := range sets {
			for length := range 200 {
				check(t, way+" "+name, s, text[length:2*length])
				check(t, way+" "+name, s, text[300-length:300])
			}
			check(t, way+" "+name, s, text)
		}
	})
}

// check compares marks with what Has says of each byte.
func check(t *testing.T, what string, s *Set, text string) {
	t.Helper()
	for _, room := range []int{0, 1, 3, 100} {
		dst := make([]uint64, room)
		n := s.Mark(dst, text, 0)
		if want := min(room, (len(text)+63)/64); n != want {
			t.Fatalf("%s, %d bytes, room for %d: %d words", what, len(text), room, n)
		}
		for i := range n * 64 {
			want := i < len(text) && s.Has(text[i])
			if got := dst[i/64]>>(i%64)&1 == 1; got != want {
				t.Fatalf("%s, %q: byte %d is marked: %v", what, text, i, got)
			}
		}
	}
}

func FuzzFinder(f *testing.F) {
	f.Add("", 1, 15)
	f.Add(strings.Repeat("x", 100)+" "+strings.Repeat("y", 17), 3, 16)
	f.Add(strings.Repeat("0123456789abcd ", 90)+"0123456789abcdef", 1, 16)
	f.Add(strings.Repeat("a word, ", 500), 9, 20)
	f.Fuzz(func(t *testing.T, text string, step, least int) {
		step, least = max(step, 1), 1+least&0x3f
		ways(func(way string) {
			for name, s := range sets {
				find, runs := s.In(text), s.In(text)
				for i := 0; i < len(text); i += step {
					want := i
					for want < len(text) && !s.Has(text[want]) {
						want++
					}
					if got := find.Next(i); got != want {
						t.Fatalf("%s %s, %q: from %d on at %d, want %d", way, name, text, i, got, want)
					}
				}
				for i := 0; i >= 0 && i < len(text); {
					want := run(text, i, s, least)
					if got := runs.Run(i, least); got != want {
						t.Fatalf("%s %s, %q: %d side by side from %d on at %d, want %d", way, name, text, least, i, got, want)
					}
					if i = want; i >= 0 {
						i += step
					}
				}
				if got, none := s.Any(text), run(text, 0, s, 1) < 0; got == none {
					t.Errorf("%s %s, %q: there is one: %v", way, name, text, got)
				}
			}
		})
	})
}

// run is Run, byte by byte.
func run(text string, i int, s *Set, least int) int {
	for from := i; from+least <= len(text); from++ {
		end := from
		for end < from+least && s.Has(text[end]) {
			end++
		}
		if end == from+least {
			return from
		}
	}
	return -1
}

// FuzzWords compares marks with what each word has at its beginning, and what is quick with what is there for any
// machine.
func FuzzWords(f *testing.F) {
	f.Add("ignore all of it, IGNORE THE rest; \xd0\xb7\xd0\xb0", "ignore zignoruj if db")
	f.Add(strings.Repeat("some words ", 30)+"if", "if")
	f.Fuzz(func(t *testing.T, text, list string) {
		var words Words
		all := strings.Fields(list)
		for i, w := range all {
			words.Add(w, i)
		}
		ways(func(way string) {
			dst := make([]uint64, (len(text)+63)/64)
			if n := words.Mark(dst, text, 0); n != len(dst) {
				t.Fatalf("%s, %d bytes: %d words", way, len(text), n)
			}
			for i := range text {
				marked := dst[i/64]>>(i%64)&1 == 1
				for _, w := range all {
					if begins := text[i:min(i+len(w), len(text))]; strings.ToLower(begins) == w && !marked {
						t.Errorf("%s, %q: %q at %d is not marked", way, text, w, i)
					}
				}
				if end := len(text) < i/64*64+64+3; wide && marked != (end || mayBegin(&words, text[i:])) {
					t.Errorf("%q: %d is marked: %v", text, i, marked)
				}
			}
		})
	})
}

// mayBegin is what the tables say of one place.
func mayBegin(w *Words, text string) bool {
	groups := ^byte(0)
	for k := range w.tables {
		groups &= w.tables[k][letter(text[k])]
	}
	return groups != 0
}

// TestFew: most of a text of words is not marked.
func TestFew(t *testing.T) {
	var words Words
	for i, w := range strings.Fields("ignore ignoring disregard forget bypass jailbreak assistant developer") {
		words.Add(w, i)
	}
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, and public policy applies to people. ", 10)
	if wide {
		n := 0
		f := Of(func(c byte) bool { return c == ' ' }).In(text)
		dst := make([]uint64, len(text)/64)
		words.Mark(dst, text, 0)
		for i := f.Next(0); i+1 < len(dst)*64; i = f.Next(i + 1) {
			n += int(dst[(i+1)/64] >> ((i + 1) % 64) & 1)
		}
		if n > 20 {
			t.Errorf("%d of 150 words", n)
		}
	}
}

func TestEntropy(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "aaaa": 0, "abab": 1, "abcdefgh": 3, "aab": 0.918} {
		if got := Entropy(text); math.Abs(got-want) > 0.001 {
			t.Errorf("%q: %f, want %f", text, got, want)
		}
	}
}

func BenchmarkMark(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", (64<<10)/45)
	dst := make([]uint64, 16)
	var words Words
	words.Add("ignore", 0)
	for name, mark := range map[string]func([]uint64, string, int) int{"set": sets["signs"].Mark, "words": words.Mark} {
		ways(func(way string) {
			b.Run(name+" "+way, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				for b.Loop() {
					for i := 0; i < len(text); i += 64 * mark(dst, text, i) {
					}
				}
			})
		})
	}
}
