package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// listenUnix listens at a path, in the place of what an earlier pfard has left there. Only pfard's user may connect.
func listenUnix(network, path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("removing an old socket: %w", err)
	}
	old := unix.Umask(0o177) // the socket must not be open to all even for a moment
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", path, err)
	}
	return l, nil
}
