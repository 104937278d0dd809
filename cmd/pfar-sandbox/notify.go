package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// notify sends one sd_notify(3) message, with files for the runner's descriptor store (FDSTORE=1) if there are any.
// Without NOTIFY_SOCKET it does nothing. go-systemd's daemon.SdNotify cannot send descriptors.
func notify(lines []string, files ...*os.File) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	to := &unix.SockaddrUnix{Name: path} // a leading @ is an abstract name
	if err := unix.Sendmsg(fd, []byte(strings.Join(lines, "\n")), oob, to, 0); err != nil {
		return fmt.Errorf("notifying the runner: %w", err)
	}
	return nil
}

// set is one assignment of a notification; a newline in the value would start another one.
func set(name, value string) string { return name + "=" + strings.ReplaceAll(value, "\n", " ") }

// lines are the assignments in the order of their names.
func lines(vars map[string]string) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		list = append(list, set(name, vars[name]))
	}
	return list
}
