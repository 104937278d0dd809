package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A version is made once, outlives others while somebody uses it, and goes when nobody has for long.
func TestVersions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN as an ordinary user: images are made in a mount namespace")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cache, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	builds := 0
	get := func(name, version string) string {
		t.Helper()
		dir, err := made(name, version, func(work string) error {
			builds++
			return os.WriteFile(filepath.Join(work, "image"), []byte(version), 0o644)
		})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "image")); err != nil || string(b) != version {
			t.Fatalf("%s %s: %q, %v", name, version, b, err)
		}
		return dir
	}
	if _, err := made("root", "bad", func(string) error { return errors.New("no") }); err == nil {
		t.Error("an image that is not built")
	}
	one := get("root", "1")
	if get("root", "1"); builds != 1 {
		t.Errorf("built %d times", builds)
	}
	long := time.Now().Add(-2 * unused)
	aged := func(dir string) {
		t.Helper()
		if err := os.Chtimes(dir, long, long); err != nil {
			t.Fatal(err)
		}
	}
	there := func(path string) bool { _, err := os.Stat(path); return err == nil }
	// Others: one that nobody has used for long, a recent one, one of another name, and what a killed run left.
	old, recent, other, left := filepath.Join(cache, "root-0"), filepath.Join(cache, "root-00"), filepath.Join(cache, "vm-0"), filepath.Join(cache, "root-new-1")
	for _, dir := range []string{old, recent, other, left} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	aged(old)
	aged(other)
	aged(one) // which this process holds
	get("root", "2")
	if there(old) || there(left) || !there(recent) || !there(other) || !there(one) {
		t.Errorf("what is left: old %t, of a killed run %t; recent %t, of another name %t, in use %t", there(old), there(left), there(recent), there(other), there(one))
	}
	// A version is old by when it was asked for last, not by when it was made.
	get("root", "1")
	if st, err := os.Stat(one); err != nil || time.Since(st.ModTime()) > time.Hour {
		t.Errorf("asked for again, it is of %v, %v", st.ModTime(), err)
	}
	if fd, err := held(one, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		unix.Close(fd)
		t.Error("nobody holds what is in use")
	}
}
