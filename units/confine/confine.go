// Package confine takes from the process what it never needs, by Landlock (landlock(7)): files, and connections and
// listeners of TCP.
package confine

import (
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights to files that all versions of Landlock know.
const (
	inside = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_REG
	all = inside | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
)

// Process takes from this process, for good, every file but the regular files below dirs, and from Linux 6.7 on every
// connection and listener of TCP but those that it has; MPTCP is none for the kernel. What is open stays open.
// The process still reaches Unix sockets: to connect to one opens no file. Without Landlock nothing is taken, and only
// the process's unit confines it. An error means that the process may have more than this. A program with the race
// detector has cgo, with which Go cannot confine all threads (syscall.AllThreadsSyscall): nothing is taken from it.
func Process(dirs ...string) error {
	if Raced {
		return nil
	}
	_, _ = time.Now().Zone() // reads /etc/localtime
	rules := unix.LandlockRulesetAttr{Handled_access_fs: all}
	size := unsafe.Sizeof(rules.Handled_access_fs) // all that the first version knows
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch {
	case errno == unix.ENOSYS || errno == unix.EOPNOTSUPP || errno == unix.EPERM: // a container may refuse it
		return nil
	case errno != 0:
		return fmt.Errorf("asking for Landlock: %w", errno)
	case version >= 4:
		rules.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size += unsafe.Sizeof(rules.Handled_access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), size, 0)
	if errno != 0 {
		return fmt.Errorf("making rules of Landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, dir := range dirs {
		if err := leave(int(fd), dir); err != nil {
			return fmt.Errorf("leaving %q to the process: %w", dir, err)
		}
	}
	// Each thread has its own. AllThreadsSyscall ends the process if one of them is refused.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return errors.Join(errors.New("giving up new privileges"), errno)
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("confining itself by Landlock: %w", errno)
	}
	return nil
}

// leave adds a rule by which regular files below a directory may be read, written, made and removed.
func leave(rules int, dir string) error {
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: inside, Parent_fd: int32(at)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
