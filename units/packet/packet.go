// Package packet sends JSON messages with descriptors attached over SOCK_SEQPACKET sockets, where one packet is one
// message.
package packet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// MaxMessage bounds one packet, in bytes.
const MaxMessage = 64 << 10

// MaxFiles is how many descriptors may come with one packet.
const MaxFiles = 16

// sendTime is how long Send waits for the other end to make room.
const sendTime = 10 * time.Second

// Conn is one connection, at either end. Its methods may be called at the same time, but for two of Receive.
type Conn struct {
	c        *net.UnixConn
	sendTime time.Duration
}

// Dial connects to the socket at path.
func Dial(path string) (*Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// New wraps a connection of the network "unixpacket".
func New(c *net.UnixConn) *Conn { return &Conn{c, sendTime} }

// FromFile takes over a descriptor that is a connected SOCK_SEQPACKET socket, and closes the file.
func FromFile(f *os.File) (*Conn, error) {
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("taking over the descriptor %q: %w", f.Name(), err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		c.Close()
		return nil, fmt.Errorf("taking over the descriptor %q: it is a %T of %s, not a SOCK_SEQPACKET socket", f.Name(), c,
			c.LocalAddr().Network())
	}
	return New(u), nil
}

// File returns a copy of the connection's descriptor.
func (c *Conn) File() (*os.File, error) { return c.c.File() }

// Send writes message as JSON with files attached; the caller keeps and closes its own copies. If the other end reads
// nothing for long, Send closes the connection and returns os.ErrDeadlineExceeded.
func (c *Conn) Send(message any, files ...*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > MaxMessage {
		return fmt.Errorf("message of %d bytes exceeds the %d of a packet", len(b), MaxMessage)
	}
	oob, err := Rights(files)
	if err != nil {
		return err
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(c.sendTime)); err != nil {
		return err
	}
	if _, _, err = c.c.WriteMsgUnix(b, oob, nil); errors.Is(err, os.ErrDeadlineExceeded) {
		c.c.Close()
	}
	return err
}

// Rights is the control message that carries files. Fd would make those that are polled blocking, for everyone who has
// them.
func Rights(files []*os.File) ([]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return nil, err
		}
	}
	return unix.UnixRights(fds...), nil
}

// Receive reads one message into message and returns the files that came with it, which the caller closes.
// At the end of the connection it returns io.EOF. An error of the message itself leaves no file open.
func (c *Conn) Receive(message any) ([]*os.File, error) {
	size, err := c.wait()
	if err != nil {
		return nil, err
	}
	b := make([]byte, max(1, min(size, MaxMessage)))
	oob := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, err
	}
	files, err := Received(oob[:oobn])
	if err != nil {
		return nil, err
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("packet larger than %d bytes or with more than %d descriptors", MaxMessage, MaxFiles)
	} else {
		err = json.Unmarshal(b[:n], message)
	}
	if err != nil {
		CloseAll(files)
		return nil, err
	}
	return files, nil
}

// wait returns the size of the next packet once there is one: connections are many and mostly silent, so none holds a
// buffer for the largest packet while it waits.
func (c *Conn) wait() (size int, err error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var rerr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			size, _, rerr = unix.Recvfrom(int(fd), nil, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
			if rerr != unix.EINTR {
				return rerr != unix.EAGAIN
			}
		}
	})
	if err == nil && rerr != nil {
		err = fmt.Errorf("waiting for a packet: %w", rerr)
	}
	return size, err
}

// Peer returns the credentials of the process at the other end when it connected, as the kernel knows them
// (SO_PEERCRED, unix(7)).
func (c *Conn) Peer() (*unix.Ucred, error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	if cerr != nil {
		return nil, fmt.Errorf("reading peer credentials: %w", cerr)
	}
	return cred, nil
}

// Of is a connection whose messages are all of one type.
type Of[M any] struct{ *Conn }

// Send writes one message with files attached; the caller keeps and closes its own copies.
func (c Of[M]) Send(m M, files ...*os.File) error { return c.Conn.Send(m, files...) }

// Receive reads one message and the files that came with it, which the caller closes.
// At the end of the connection it returns io.EOF.
func (c Of[M]) Receive() (M, []*os.File, error) {
	var m, none M
	files, err := c.Conn.Receive(&m)
	if err != nil {
		return none, nil, err
	}
	return m, files, nil
}

// HungUp reports whether the other end has closed the connection, whatever of it is still to be received.
func (c *Conn) HungUp() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return true
	}
	var gone bool
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		for {
			if _, err := unix.Poll(p, 0); err != unix.EINTR {
				break
			}
		}
		gone = p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
	})
	return gone || err != nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// CloseRead has Receive return what the other end has sent so far, and then io.EOF. The other end can send no more.
func (c *Conn) CloseRead() error { return c.c.CloseRead() }

// Received takes the files out of a control message; the caller closes them.
func Received(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parsing control message: %w", err)
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue // not SCM_RIGHTS
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			// Non-blocking before os.NewFile looks, so that the runtime polls it: deadlines hold, Close ends a Read.
			if err := unix.SetNonblock(fd, true); err != nil {
				unix.Close(fd)
				CloseAll(files)
				return nil, fmt.Errorf("making a received descriptor non-blocking: %w", err)
			}
			files = append(files, os.NewFile(uintptr(fd), "packet"))
		}
	}
	return files, nil
}

// CloseAll closes received files.
func CloseAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
