package units

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxStored bounds the descriptors that a gateway keeps for the next one, as FileDescriptorStoreMax= does in its unit:
// their names come in one variable of its environment, which cannot be longer than 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxStored = 4096

// OwnStored is how many of them are no server's: the client sessions, the secrets, the clients and the policy take one
// each, the audit two.
const OwnStored = 6

// Kept is the name under which the descriptors of a server's process are stored.
func Kept(server, session string) string { return FDKept + Instance(server, session) }

// IsKept reports whether a name is one of those under which the gateway stores: no listener has such a name.
func IsKept(name string) bool {
	switch name {
	case FDSessions, FDSecrets, FDClients, FDPolicy, FDAudit:
		return true
	}
	instance, ok := strings.CutPrefix(name, FDKept)
	server, session, own := strings.Cut(instance, "_")
	return ok && isServer(server) && (!own || len(server) <= sessionPrefix && IsSession(session))
}

// isServer reports whether a name could be a server's: a letter, then letters, digits and hyphens, 23 in all.
func isServer(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return name != "" && len(name) <= 23 && strings.Contains(letters, name[:1]) && strings.Trim(name, letters+"0123456789-") == ""
}

// Store is the service manager's descriptor store: what is in it outlives the process, and comes back by Descriptors.
type Store struct{ socket string }

// NewStore returns the store of the process's manager, nil if it has none.
func NewStore() *Store {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	return &Store{socket}
}

// Keep stores copies under a name, in addition to what is there. The manager must not look whether they have hung up
// (FDPOLL=0): the next process wants all of them or none, and is to see that for itself.
func (s *Store) Keep(name string, of ...syscall.Conn) error {
	if !IsKept(name) {
		return fmt.Errorf("storing descriptors: the gateway has no descriptor named %q", name)
	}
	err := control(of, nil, func(fds []int) error { return s.send("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, unix.UnixRights(fds...)) })
	if err != nil {
		return fmt.Errorf("storing descriptors of %q: %w", name, err)
	}
	return nil
}

// Forget has the manager close all that is stored under a name.
func (s *Store) Forget(name string) error {
	if err := s.send("FDSTOREREMOVE=1\nFDNAME="+name, nil); err != nil {
		return fmt.Errorf("removing what is stored of %q: %w", name, err)
	}
	return nil
}

// notifyTime bounds how long the manager may take to read what is sent to it.
const notifyTime = 5 * time.Second

// send is sd_pid_notify_with_fds(3).
func (s *Store) send(state string, rights []byte) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(int64(notifyTime))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	for {
		err := unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: s.socket}, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// control calls f with the descriptors of all, which stay open meanwhile. Their mode of blocking is left alone, as
// os.File.Fd would not.
func control(of []syscall.Conn, fds []int, f func([]int) error) error {
	if len(of) == 0 {
		return f(fds)
	}
	raw, err := of[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = control(of[1:], append(fds, int(fd)), f) }); err != nil {
		return err
	}
	return inner
}
