package local

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// notifySocket receives the sd_notify(3) messages of one process.
type notifySocket struct {
	conn   *net.UnixConn
	path   string
	stores bool // its process has a store
}

// notification is one message. Files are the receiver's to close.
type notification struct {
	pid   int
	vars  map[string]string
	files []*os.File
	odd   bool // something else came than sockets of a namespace, or than what is stored

	stored []int // for the store
}

// maxNotification bounds one message in bytes; systemd's own bound is the same (NOTIFY_BUFFER_MAX).
const maxNotification = 4096

func listenNotify(path string, owner identity) (*notifySocket, error) {
	_ = os.Remove(path) // of a process that was killed
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, fmt.Errorf("making the notify socket: %w", err)
	}
	s := &notifySocket{conn: conn, path: path}
	raw, err := conn.SyscallConn()
	if err == nil {
		var serr error
		err = raw.Control(func(fd uintptr) { serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
		if err == nil {
			err = serr
		}
	}
	if err == nil {
		err = owner.chown(path)
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("preparing the notify socket: %w", err)
	}
	return s, nil
}

func (s *notifySocket) close() {
	s.conn.Close()
	os.Remove(s.path)
}

// receive returns the next message, or an error once the socket is closed. What cannot be understood is dropped.
func (s *notifySocket) receive() (notification, error) {
	b, oob := make([]byte, maxNotification), make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(4*16))
	for {
		n, oobn, flags, err := s.read(b, oob)
		if err != nil {
			return notification{}, err
		}
		m, err := parseNotification(b[:n], oob[:oobn], s.stores)
		if err != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			m.close()
			continue
		}
		return m, nil
	}
}

// read is recvmsg(2), and returns what is there even if a deadline is over: Go's own looks at the deadline first, also
// when it wakes up for a message.
func (s *notifySocket) read(b, oob []byte) (n, oobn, flags int, err error) {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return 0, 0, 0, err
	}
	there := func() (found bool, err error) {
		var empty error
		err = raw.Control(func(fd uintptr) {
			n, oobn, flags, _, empty = unix.Recvmsg(int(fd), b, oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		})
		return empty == nil, err
	}
	if found, err := there(); found || err != nil {
		return n, oobn, flags, err
	}
	n, oobn, flags, _, err = s.conn.ReadMsgUnix(b, oob)
	if errors.Is(err, os.ErrDeadlineExceeded) { // a message may have come between the two
		if found, failed := there(); found && failed == nil {
			return n, oobn, flags, nil
		}
	}
	return n, oobn, flags, err
}

func parseNotification(b, oob []byte, stores bool) (notification, error) {
	m := notification{vars: map[string]string{}}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return m, err
	}
	for i := range msgs {
		switch msgs[i].Header.Type {
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&msgs[i])
			if err != nil {
				return m, err
			}
			m.pid = int(cred.Pid)
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&msgs[i])
			if err != nil {
				return m, err
			}
			for _, fd := range fds {
				if stores {
					m.store(fd)
				} else {
					m.take(fd)
				}
			}
		}
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if name, value, ok := strings.Cut(line, "="); ok {
			m.vars[name] = value
		}
	}
	return m, nil
}

// take keeps a descriptor if it is a socket of the kinds that a namespace has. To look at anything else, or to close
// it, may wait for as long as its sender likes: a file of a file system in user space, or a connection that lingers.
func (m *notification) take(fd int) {
	unix.CloseOnExec(fd)
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	listens, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	kind, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	ip := domain == unix.AF_INET || domain == unix.AF_INET6
	if err != nil || !(domain == unix.AF_NETLINK || ip && (kind == unix.SOCK_DGRAM || kind == unix.SOCK_STREAM && listens == 1)) {
		m.odd = true
		go unix.Close(fd)
		return
	}
	_ = unix.SetNonblock(fd, true)
	m.files = append(m.files, os.NewFile(uintptr(fd), "notify"))
}

// store keeps a descriptor if it is of the kinds that are stored.
func (m *notification) store(fd int) {
	unix.CloseOnExec(fd)
	if !storable(fd) {
		m.odd = true
		go unix.Close(fd)
		return
	}
	m.stored = append(m.stored, fd)
}

func (m *notification) close() {
	closeLater(m.files)
	for _, fd := range m.stored {
		go unix.Close(fd)
	}
	m.stored = nil
}

func closeLater(files []*os.File) {
	for _, f := range files {
		go f.Close()
	}
}
