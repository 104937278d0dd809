package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// appends reports whether what is written to a file goes to its end, as a shell opens it for >>.
func appends(f *os.File) bool {
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && flags&unix.O_APPEND != 0
}
