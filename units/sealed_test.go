package units

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSealed(t *testing.T) {
	want := bytes.Repeat([]byte("secret"), 30000) // more than a packet or a pipe takes
	f, err := Sealed("test", want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it can be written to")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it can be cut")
	}
	if got, err := ReadSealed(f, int64(len(want))); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := f.Stat(); err == nil {
		t.Error("it is still open")
	}
}

func TestReadSealedRefuses(t *testing.T) {
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	long, err := Sealed("long", make([]byte, 11))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]*os.File{"a file": plain, "not sealed": os.NewFile(uintptr(fd), "open"), "too long": long} {
		if b, err := ReadSealed(f, 10); err == nil || b != nil {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
