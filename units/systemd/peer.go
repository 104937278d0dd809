package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// PeerUnit returns the unit of the process that has connected, which was pid then, by the kernel's word: a unit of the
// same manager as this process's own. That the process lives until its cgroup has been read is certain from Linux 6.5
// on (SO_PEERPIDFD); before, another one could have taken its number in the moment since it connected.
func PeerUnit(c *net.UnixConn, pid int) (string, error) {
	peer, err := pidfdOf(c, pid)
	if err != nil {
		return "", fmt.Errorf("looking for process %d: %w", pid, err)
	}
	defer unix.Close(peer)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	if err := unix.PidfdSendSignal(peer, 0, nil, 0); err != nil { // then it was another's
		return "", fmt.Errorf("looking for process %d again: %w", pid, err)
	}
	unit, ok := unitBeside(string(own), string(text))
	if !ok {
		return "", fmt.Errorf("process %d is in no unit of this service manager's", pid)
	}
	return unit, nil
}

// pidfdOf holds on to the process that has connected.
func pidfdOf(c *net.UnixConn, pid int) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var fd int
	var ferr error
	if err := raw.Control(func(conn uintptr) {
		fd, ferr = unix.GetsockoptInt(int(conn), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		return -1, err
	}
	if errors.Is(ferr, unix.ENOPROTOOPT) {
		return unix.PidfdOpen(pid, 0)
	}
	return fd, ferr
}

// unitBeside finds the unit of a process by two texts of cgroups(7), "/proc/[pid]/cgroup": that of a process of the
// manager, in a unit of its own, and that of the other. The manager's units lie in slices; what lies in another service
// or scope belongs to another manager, as the units of a user do that are called the same.
func unitBeside(own, other string) (unit string, ok bool) {
	mine := managed(own)
	for hierarchy, group := range managed(other) {
		from, to := strings.Split(mine[hierarchy], "/"), strings.Split(group, "/")
		i := 0
		for i < len(from)-1 && i < len(to)-1 && from[i] == to[i] {
			i++
		}
		apart := slices.Concat(from[i:len(from)-1], to[i:len(to)-1])
		another := slices.ContainsFunc(apart, func(name string) bool { return !strings.HasSuffix(name, ".slice") })
		if unit := to[len(to)-1]; mine[hierarchy] != "" && unit != "" && !another {
			return unit, true
		}
	}
	return "", false
}

// managed are the groups of a process, by hierarchy, in those that systemd may use: the unified one, and its own.
func managed(text string) map[string]string {
	groups := map[string]string{}
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if ok && (controllers == "" || controllers == "name=systemd") {
			groups[controllers] = group
		}
	}
	return groups
}
