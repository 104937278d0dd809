// Package handover carries a server's stdio descriptors from its launcher to the gateway, and news about the server both ways.
//
// The launcher connects to the gateway's socket (SOCK_SEQPACKET, so one packet is one message), sends Hello with the
// write end of the server's stdin and the read end of its stdout attached (SCM_RIGHTS, unix(7)), and keeps the
// connection for the life of the server. Whoever closes it says that the server, or the gateway, is gone.
package handover

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxMessage bounds one packet, in bytes; a declaration's tool table is the largest thing in one.
const maxMessage = 64 << 10

// Server is what the gateway may know of a server: nothing in it is secret.
type Server struct {
	Name        string          `json:"name"`
	Session     string          `json:"session,omitempty"` // handle of the one client session that this process serves; "": it serves all
	Description string          `json:"description,omitempty"`
	Label       string          `json:"label"`
	Timeout     time.Duration   `json:"timeout"`         // longest a call may take, nanoseconds in JSON
	Tools       map[string]Tool `json:"tools,omitempty"` // the owner's word on a tool, by its upstream name

	Capabilities []string `json:"client_capabilities,omitempty"` // what it may ask of clients: "elicitation", "roots", "sampling"
	Sessions     Sessions `json:"sessions,omitzero"`
	Pins         string   `json:"pins,omitempty"`    // "hold" or "trust-first": what becomes of tools seen for the first time; "" holds
	Version      string   `json:"version,omitempty"` // that the declaration expects the server to have; "" expects none
	Program      string   `json:"program,omitempty"` // SHA-256 over its command and arguments, in hexadecimal
}

// Tool is what a declaration says of one tool.
type Tool struct {
	Semantics string   `json:"semantics,omitempty"` // "read", "write" or "" (not said)
	Aliases   []string `json:"aliases,omitempty"`   // further names that the operator's CLI takes for it
}

// Sessions says whether each client session has a process of the server's to itself. The zero value is one process for
// all of them.
type Sessions struct {
	Own  bool          `json:"own,omitempty"`
	Max  int           `json:"max,omitempty"`  // processes at once
	Idle time.Duration `json:"idle,omitempty"` // without a call, until a process is stopped; nanoseconds in JSON
}

// Message is one packet. Exactly one member is set.
type Message struct {
	Hello    *Server `json:"hello,omitempty"`    // launcher: here is a server, descriptors attached
	Stopping bool    `json:"stopping,omitempty"` // launcher: close the server's stdin, it is to end
	Ready    *Ready  `json:"ready,omitempty"`    // gateway: handshake and discovery done, or done again
	Failed   string  `json:"failed,omitempty"`   // gateway: the server does not speak MCP; why
}

// Ready is what the gateway found behind a server's stdio.
type Ready struct {
	Tools     int      `json:"tools"`
	Prompts   int      `json:"prompts"`
	Resources int      `json:"resources"`
	Protocol  string   `json:"protocol"`          // revision agreed on, "2025-11-25"
	Server    string   `json:"server"`            // the server's own name and version, as it says them
	Held      int      `json:"held,omitempty"`    // definitions that are not served until the owner accepts them
	Drift     string   `json:"drift,omitempty"`   // that its version is not the one declared, in words
	Dropped   int      `json:"dropped,omitempty"` // definitions that cannot be served
	Why       []string `json:"why,omitempty"`     // that the first of them cannot, a line each
}

// Conn is one launcher's connection, at either end.
type Conn struct{ c *net.UnixConn }

// Dial connects a launcher to the gateway's socket.
func Dial(path string) (*Conn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway at %q: %w", path, err)
	}
	return &Conn{c}, nil
}

// Accepted wraps a connection that the gateway accepted.
func Accepted(c *net.UnixConn) *Conn { return &Conn{c} }

// Send writes one message with files attached; the caller keeps and closes its own copies.
func (c *Conn) Send(m Message, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("message of %d bytes exceeds the %d of a handover packet", len(b), maxMessage)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.c.WriteMsgUnix(b, oob, nil)
	return err
}

// Receive reads one message and the files that came with it, which the caller closes.
// At the end of the connection it returns io.EOF.
func (c *Conn) Receive() (Message, []*os.File, error) {
	size, err := c.wait()
	if err != nil {
		return Message{}, nil, err
	}
	b := make([]byte, max(1, min(size, maxMessage)))
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(b, oob)
	if err != nil {
		return Message{}, nil, err
	}
	files, err := receivedFiles(oob[:oobn])
	if err != nil {
		return Message{}, nil, err
	}
	var m Message
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = fmt.Errorf("handover packet larger than %d bytes or with more than 4 descriptors", maxMessage)
	} else {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		closeAll(files)
		return Message{}, nil, err
	}
	return m, files, nil
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
		err = fmt.Errorf("waiting for a handover packet: %w", rerr)
	}
	return size, err
}

// PeerUID returns the user id of the process at the other end, as the kernel knows it.
func (c *Conn) PeerUID() (uint32, error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, fmt.Errorf("reading peer credentials: %w", cerr)
	}
	return cred.Uid, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

func receivedFiles(oob []byte) ([]*os.File, error) {
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
				closeAll(files)
				return nil, fmt.Errorf("making a received descriptor non-blocking: %w", err)
			}
			files = append(files, os.NewFile(uintptr(fd), "handover"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
