package main

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLasting: a server is given up for what this kernel lacks, and for nothing that passes.
func TestLasting(t *testing.T) {
	for errno, want := range map[syscall.Errno]bool{
		unix.ENOBUFS: false, unix.ENOMEM: false, unix.EINTR: false, unix.EBUSY: false, unix.EAGAIN: false, unix.EMFILE: false, unix.ENFILE: false,
		unix.EMSGSIZE: false, unix.ESRCH: false,
		unix.EPERM: true, unix.EOPNOTSUPP: true, unix.ENOENT: true, unix.EPROTONOSUPPORT: true, unix.EAFNOSUPPORT: true,
	} {
		err := lasting(fmt.Errorf("loading a table: %w", errno))
		if errors.Is(err, errForGood) != want || !errors.Is(err, errno) {
			t.Errorf("%v: %v, for good: want %v", errno, err, want)
		}
	}
}
