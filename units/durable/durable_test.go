package durable

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
)

// TestReplace: a file is replaced whole, a link is not followed, and a failure leaves the old text and nothing beside
// it.
func TestReplace(t *testing.T) {
	for name, replace := range map[string]func(string, []byte) error{"Replace": Replace, "WriteFile": WriteFile} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			other, path := filepath.Join(dir, "other"), filepath.Join(dir, "file")
			if err := os.WriteFile(other, []byte("another's"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(other, path); err != nil {
				t.Fatal(err)
			}
			if err := replace(path, []byte("new")); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(other); err != nil || string(b) != "another's" {
				t.Errorf("where the link led is %q, %v", b, err)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("the file is %v, %v", info.Mode(), err)
			}
			if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := replace(filepath.Join(dir, "folder"), nil); err == nil {
				t.Error("a directory is replaced")
			}
			if err := replace(filepath.Join(dir, "nowhere", "file"), nil); err == nil {
				t.Error("a file is written into no folder")
			}
			if entries, _ := os.ReadDir(dir); len(entries) != 3 {
				t.Errorf("left are %v", entries)
			}
		})
	}
}

// TestSweep removes what is not whole, and no file that somebody else has made.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	if _, err := Stage(dir, []byte("half")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, Prefix+rand.Text())); err != nil {
		t.Fatal(err)
	}
	want := []string{Prefix + "s.hcl", "a.hcl"}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Sweep(dir); err != nil {
			t.Error(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || entries[0].Name() != want[0] || entries[1].Name() != want[1] {
		t.Errorf("left are %v, %v", entries, err)
	}
	if err := Sweep(filepath.Join(dir, "nowhere")); err != nil {
		t.Error(err)
	}
}
