package bundle

import (
	"bytes"
	"testing"
)

// FuzzOpen: a bundle opens to what was sealed, for whom it was sealed; one that was tampered with, and any other text,
// does not open.
func FuzzOpen(f *testing.F) {
	owner, err := NewPassing()
	if err != nil {
		f.Fatal(err)
	}
	stranger, err := NewPassing()
	if err != nil {
		f.Fatal(err)
	}
	to, err := Recipients([]string{owner.Recipient()})
	if err != nil {
		f.Fatal(err)
	}
	for at, seed := range []string{"", "{}", "-----BEGIN AGE ENCRYPTED FILE-----\n", "age-encryption.org/v1\n-> scrypt AAAAAAAAAAAAAAAAAAAAAA 30\n", "age-encryption.org/v1\n--- \n"} {
		f.Add([]byte(seed), at*40, byte(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, at int, flip byte) {
		if got, err := owner.Open(text); err == nil {
			t.Errorf("%q opens to %q", text, got)
		}
		sealed, err := Seal(text, to)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := owner.Open(sealed); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%q opens to %q, %v", text, got, err)
		}
		if _, err := stranger.Open(sealed); err == nil {
			t.Error("a stranger opens it")
		}
		if flip == 0 {
			return
		}
		at = int(uint(at) % uint(len(sealed)))
		sealed[at] ^= flip
		if got, err := owner.Open(sealed); err == nil && !bytes.Equal(got, text) {
			t.Errorf("with another byte at %d it opens to %q", at, got)
		}
	})
}
