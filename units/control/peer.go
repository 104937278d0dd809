package control

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Peer is the process at the other end of a connection, as the kernel knows it (SO_PEERCRED, unix(7)).
type Peer struct {
	UID int
	PID int
}

// PeerOf reads the credentials that the peer had when it connected or, seen from a client, when it began to listen.
func PeerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", err)
	}
	if credErr != nil {
		return Peer{}, fmt.Errorf("reading peer credentials: %w", credErr)
	}
	return Peer{UID: int(cred.Uid), PID: int(cred.Pid)}, nil
}
