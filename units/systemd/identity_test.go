package systemd

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOwnedBy: a process is not taken for one whose number it has got.
func TestOwnedBy(t *testing.T) {
	if err := ownedBy(os.Getpid(), os.Getuid()); err != nil {
		t.Error(err)
	}
	if err := ownedBy(os.Getpid(), os.Getuid()+1); !errors.Is(err, ErrStranger) {
		t.Errorf("taken for another user's: %v", err)
	}
	const none = 1 << 23 // larger than any process's (PID_MAX_LIMIT)
	if err := ownedBy(none, os.Getuid()); err == nil || errors.Is(err, ErrStranger) {
		t.Errorf("of a process that has ended: %v", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	if err := ownedBy(os.Getpid(), os.Getuid()); err != nil {
		t.Errorf("one whose files in /proc are root's: %v", err)
	}
}
