package journal

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	socket   = "/run/systemd/journal/socket" // native protocol, sd_journal_send(3)
	patience = time.Second
	glance   = time.Millisecond
)

// Settle returns when the journal has taken all that this process has sent it, or has not in a second. A process that
// is about to end calls it: journald finds out whose an entry is when it reads it (/proc/PID/cgroup), and an entry of a
// process that is gone by then belongs to no unit.
func Settle() {
	if Connected() {
		settle(socket, patience)
	}
}

// settle sends a datagram of no bytes, which journald passes over, and waits until it has been read, and with it all
// before it.
func settle(socket string, patience time.Duration) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return // there is nobody to wait for
	}
	defer conn.Close()
	end := time.Now().Add(patience)
	if conn.SetWriteDeadline(end) != nil {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	failed := raw.Write(func(fd uintptr) bool { // net's own Write sends nothing if there are no bytes
		err = unix.Send(int(fd), nil, 0)
		return err != unix.EAGAIN
	})
	if failed != nil || err != nil {
		return
	}
	for left := 1; left > 0 && err == nil && time.Now().Before(end); time.Sleep(glance) {
		// What has not been read is the sender's memory (SIOCOUTQ, unix(7)).
		if failed := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); failed != nil {
			return
		}
	}
}
