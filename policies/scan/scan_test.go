package scan

import (
	"bytes"
	"math"
	"testing"
)

// TestBytes has every byte in every place, among neighbours that carry most.
func TestBytes(t *testing.T) {
	for _, among := range []byte{0, ' ', '~', 0x7f, 0x80, 0xff} {
		for at := range 8 {
			for c := range 256 {
				b := bytes.Repeat([]byte{among}, 9)
				b[at+1] = byte(c)
				w := Load(string(b), 1)
				if byte(w>>(8*at)) != byte(c) {
					t.Fatalf("%x: %x is not where it was", b, w)
				}
				for _, r := range [][2]byte{{0, 0}, {0, 0x1f}, {'%', '&'}, {'p', 'p'}, {'a', 'z'}, {0x7f, 0x7f}, {0, 0x7f}} {
					want := r[0] <= byte(c) && byte(c) <= r[1]
					if got := Bits(Between(w, r[0], r[1]))>>at&1 == 1; got != want {
						t.Errorf("%x: byte %d is from %x to %x: %v", b, at, r[0], r[1], got)
					}
				}
				if alike := among >= ' ' && among < 0x7f; alike && Odd(w) != (c < ' ' || c >= 0x7f) || c < ' ' && !Odd(w) || c >= 0x7f && !Odd(w) {
					t.Errorf("%x: byte %d is odd: %v", b, at, Odd(w))
				}
				if got := Bits(Beyond(w))>>at&1 == 1; got != (c >= 0x80) {
					t.Errorf("%x: byte %d is no ASCII: %v", b, at, got)
				}
			}
		}
	}
}

func TestLower(t *testing.T) {
	for c := range 256 {
		low := byte(Lower(uint64(c)))
		if letter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' && c < 0x80 }; letter(byte(c)) != letter(low) || letter(low) && low != byte(c)|0x20 {
			t.Errorf("%#x became %q", c, low)
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
