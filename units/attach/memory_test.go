package attach

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryThatIsRefused(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *os.File {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	long, err := Memory("long", []byte(strings.Repeat("x", 11)))
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	for name, files := range map[string][]*os.File{
		"none": nil, "two": {long, long}, "a file": {open(plain)}, "a device without an end": {open("/dev/zero")}, "unsealed": {unsealed}, "too long": {long},
	} {
		if b, err := ReadMemory(files, 10); err == nil {
			t.Errorf("%s: %q", name, b)
		}
	}
}

func TestMemory(t *testing.T) {
	for _, content := range []string{"", "x", strings.Repeat("x", 10)} {
		f, err := Memory("test", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt([]byte("y"), 0); err == nil {
			t.Error("it can be changed")
		}
		for range 2 { // an offset that others have moved is of no account
			if b, err := ReadMemory([]*os.File{f}, 10); err != nil || string(b) != content {
				t.Errorf("%q, %v, want %q", b, err, content)
			}
		}
	}
}
