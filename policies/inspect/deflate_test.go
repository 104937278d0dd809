package inspect

import (
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// inflates reports whether bytes are compressed in whole, and whether much comes of them.
func inflates(b []byte) (whole, much bool) {
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(b)))
	return err == nil, len(plain) > 2*maxTried
}

// FuzzMayInflate: what is said not to be compressed cannot be inflated, and gives few bytes until that shows.
func FuzzMayInflate(f *testing.F) {
	for _, seed := range []string{
		"", "\x00", "\x01\x05\x00\xfa\xffhello", "\x01\x05\x00\xfa\xfehello", "\x03\x00", "\x06", "\x07", "\x05\xe0\x81\x08",
		"\x05\xc0\x81\x08\x00\x00\x00\x00\x20\xd6\xfd\x25\xb4", "\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "\x04\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if whole, much := inflates(b); (whole || much) && !mayInflate(b) {
			t.Errorf("%x is compressed", b)
		}
	})
}

// TestMayInflate: all that is compressed is said to be, at any level, and most of what is not is said not to be.
func TestMayInflate(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for level := flate.HuffmanOnly; level <= flate.BestCompression; level++ {
		for size := range 300 {
			text := strings.Repeat("The merger with Acme closes on 14 March. ", 1+size/40)[:size]
			for _, words := range []string{text, noise(random, size)} {
				var b bytes.Buffer
				w, err := flate.NewWriter(&b, level)
				if err != nil {
					t.Fatal(err)
				}
				if _, err = io.WriteString(w, words); err == nil {
					err = w.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
				if !mayInflate(b.Bytes()) {
					t.Fatalf("level %d: %q, compressed, is not", level, words)
				}
			}
		}
	}
	taken, in := 0, 0
	const tries = 10000
	for range tries {
		b := []byte(noise(random, 9+random.IntN(40)))
		if whole, much := inflates(b); whole || much {
			if in++; !mayInflate(b) {
				t.Fatalf("%x is compressed", b)
			}
		}
		if mayInflate(b) {
			taken++
		}
	}
	if in == 0 || taken > tries/20 {
		t.Errorf("of %d random texts %d are compressed, and %d are tried", tries, in, taken)
	}
}

func noise(random *rand.Rand, size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return string(b)
}
