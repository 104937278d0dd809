package bubblewrap

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// KeepMemory keeps what this process has in memory, credentials for a moment, from others of its user and from disk.
func KeepMemory() error {
	if err := units.NoCore(); err != nil {
		return err
	}
	return setDumpable(0)
}

// setDumpable(0) keeps other processes of this user from reading this one's memory and taking its descriptors
// (ptrace(2), pidfd_getfd(2)): a server that got out of its sandbox is one of them. setDumpable(1) lets them.
func setDumpable(value int) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(value), 0, 0, 0); err != nil {
		return fmt.Errorf("setting whether this process may be dumped to %d: %w", value, err)
	}
	return nil
}

// whileDumpable calls f, which makes a process in a new user namespace: a process that may not be dumped has files in
// /proc that are root's, and could not write the maps of the one it forks. exec(2) makes that dumpable whatever this
// one is.
func whileDumpable(f func() error) error {
	was, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("asking whether this process may be dumped: %w", err)
	}
	if err := setDumpable(1); err != nil {
		return err
	}
	err = f()
	if serr := setDumpable(was); err == nil {
		err = serr
	}
	return err
}
