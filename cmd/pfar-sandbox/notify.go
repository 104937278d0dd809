package main

import (
	"fmt"
	"net"
	"os"
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
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("connecting to NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix([]byte(strings.Join(lines, "\n")), oob, nil); err != nil {
		return fmt.Errorf("notifying the runner: %w", err)
	}
	return nil
}

// set is one assignment of a notification; a newline in the value would start another one.
func set(name, value string) string { return name + "=" + strings.ReplaceAll(value, "\n", " ") }
