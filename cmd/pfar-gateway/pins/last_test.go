package pins

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

func TestKept(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Kept("a"); b != nil || err != nil {
		t.Errorf("before anything is kept: %q, %v", b, err)
	}
	for _, offer := range [][]byte{[]byte("one\ntwo\n"), {}, []byte("last")} {
		if err := s.Keep("a", offer); err != nil {
			t.Fatal(err)
		}
		if b, err := s.Kept("a"); err != nil || !bytes.Equal(b, offer) {
			t.Errorf("kept %q, %v, want %q", b, err, offer)
		}
	}
	for _, name := range []string{"", "../a", "A"} {
		if err := s.Keep(name, []byte("x")); err == nil {
			t.Errorf("kept for %q", name)
		}
	}
	if err := s.Keep("a", make([]byte, maxFile)); err == nil {
		t.Error("more than can be read again was kept")
	}
	if again, err := Open(dir, slog.New(slog.DiscardHandler)); err != nil || again.known("a", false) != nil {
		t.Errorf("what is kept counts as pins: %v", err)
	}
	s.Review(Offer{Server: "a", TrustFirst: true})
	if err := s.Forget(By{}, "a"); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Kept("a"); b != nil || err != nil {
		t.Errorf("after the server is forgotten: %q, %v", b, err)
	}
}

func TestKeptIsNotBelieved(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"changed":   func(path string) error { return os.WriteFile(path, []byte("0000\nevil"), 0o600) },
		"cut short": func(path string) error { return os.Truncate(path, 70) },
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"anybody's": func(path string) error { return os.Chmod(path, 0o666) },
		"a link": func(path string) error {
			if err := os.Rename(path, path+".real"); err != nil {
				return err
			}
			return os.Symlink(path+".real", path)
		},
	} {
		dir := t.TempDir()
		s, err := Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Keep("a", []byte("what it offers")); err != nil {
			t.Fatal(err)
		}
		if err := spoil(filepath.Join(dir, "a.last")); err != nil {
			t.Fatal(err)
		}
		if b, err := s.Kept("a"); err == nil {
			t.Errorf("%s: believed, %q", name, b)
		}
	}
}
