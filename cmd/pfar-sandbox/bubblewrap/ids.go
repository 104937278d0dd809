package bubblewrap

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// IDs are the user and the group that the server runs as, if they are not the launcher's: pfard maps them into the
// server's user namespace once that is there (newuidmap(1)). The zero value is the launcher's own.
type IDs struct{ uid, gid int }

func (i IDs) own() bool { return i == IDs{} }

// MarshalText writes UID:GID.
func (i IDs) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%d:%d", i.uid, i.gid), nil }

// UnmarshalText reads what MarshalText writes.
func (i *IDs) UnmarshalText(text []byte) error {
	uid, gid, _ := strings.Cut(string(text), ":")
	u, uerr := strconv.ParseUint(uid, 10, 31)
	g, gerr := strconv.ParseUint(gid, 10, 31)
	if uerr != nil || gerr != nil || (u == 0) != (g == 0) {
		return fmt.Errorf("want UID:GID, got %q", text)
	}
	*i = IDs{int(u), int(g)}
	return nil
}

// namespace returns what fork needs for a user namespace with these ids in it.
func (i IDs) namespace() (maps, groups []syscall.SysProcIDMap, capabilities []uintptr) {
	if !i.own() {
		return nil, nil, []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}
	}
	// Our own id onto itself: all that an unprivileged process may map (user_namespaces(7)).
	one := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	return one(os.Getuid()), one(os.Getgid()), nil
}

// become makes this process, the first in its user namespace, run as these ids. It waits until they are mapped.
func (i IDs) become() error {
	if i.own() {
		return nil
	}
	launcher := os.Getppid()
	if n, err := unix.Read(fdReport, make([]byte, 1)); err != nil || n != 1 {
		return fmt.Errorf("waiting for the server's ids: %w", errors.Join(err, errors.New("the launcher has ended")))
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("giving up the groups of pfar's user: %w", err)
	}
	if err := syscall.Setresgid(i.gid, i.gid, i.gid); err != nil {
		return fmt.Errorf("becoming group %d: %w", i.gid, err)
	}
	if err := syscall.Setresuid(i.uid, i.uid, i.uid); err != nil {
		return fmt.Errorf("becoming user %d: %w", i.uid, err)
	}
	// Another user's process has no such signal (prctl(2)); bwrap's --die-with-parent comes later.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("asking to end with the launcher: %w", err)
	}
	if os.Getppid() != launcher {
		return errors.New("the launcher has ended")
	}
	return nil
}

// openToAll lets a server of another user open its standard streams again by /proc/self/fd, as /dev/stdin. Only who may
// look at a process finds its pipes there.
func (i IDs) openToAll(pipes ...*os.File) error {
	if i.own() {
		return nil
	}
	for _, p := range pipes {
		if err := p.Chmod(0o666); err != nil {
			return fmt.Errorf("opening a pipe to the server's user: %w", err)
		}
	}
	return nil
}
