package units

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// noCore is the one limit on core files that also keeps the kernel from piping them to a program, as core_pattern may
// have it (core(5), and coredump_pipe in the kernel): with 0, systemd-coredump stores nothing, but has the whole
// environment of what crashed written to the journal.
const noCore = 1

// NoCore keeps the memory of this process, and of what it starts, out of core dumps. A user for whom cores are
// forbidden as it is (a hard limit of 0) cannot have more than that.
func NoCore() error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: noCore, Max: noCore})
	var forbidden unix.Rlimit
	if errors.Is(err, unix.EPERM) && unix.Getrlimit(unix.RLIMIT_CORE, &forbidden) == nil && forbidden.Max == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keeping this process's memory out of core dumps: %w", err)
	}
	return nil
}
