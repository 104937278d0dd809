package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socket is a netlink socket of the network namespace of the thread that opened it. It neither waits nor polls: the
// kernel works messages off, and has put its answer into the socket, before send(2) returns.
type socket struct{ fd int }

// message is one request, with what it does as a gerund for the error.
type message struct {
	doing string
	kind  uint16
	flags uint16 // beside NLM_F_REQUEST
	body  []byte
	rule  fmt.Stringer // what it is done to, if that is worth telling; text is made of it for an error only
}

func (m message) String() string {
	if m.rule != nil {
		return fmt.Sprintf("%s %q", m.doing, m.rule)
	}
	return m.doing
}

// refusal is the kernel's answer to one message of an exchange.
type refusal struct {
	doing message
	errno syscall.Errno
	why   string // the kernel's own words (NLMSGERR_ATTR_MSG), if it had any
}

func (r *refusal) Error() string {
	if r.why != "" {
		return fmt.Sprintf("%s: %s (%s)", r.doing, r.errno, r.why)
	}
	return fmt.Sprintf("%s: %s", r.doing, r.errno)
}

func (r *refusal) Unwrap() error { return r.errno }

func dial(protocol int) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return socket{}, fmt.Errorf("opening a netlink socket: %w", err)
	}
	// Reasons are welcome and the message itself is known; a kernel that has neither option answers all the same.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return socket{fd}, nil
}

func (s socket) close() { _ = unix.Close(s.fd) }

// exchange sends all messages at once. Of what the kernel answers it wants the first refusal, or that the last message
// with acknowledged set was done: an acknowledgement of each would not fit into the socket where a ruleset is long.
func (s socket) exchange(acknowledged int, messages []message) error {
	var b []byte
	for i, m := range messages {
		flags := m.flags | unix.NLM_F_REQUEST
		if i == acknowledged {
			flags |= unix.NLM_F_ACK
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.NLMSG_HDRLEN+len(m.body)))
		b = binary.NativeEndian.AppendUint16(b, m.kind)
		b = binary.NativeEndian.AppendUint16(b, flags)
		b = binary.NativeEndian.AppendUint32(b, uint32(i+1)) // sequence number, by which an answer is recognised
		b = binary.NativeEndian.AppendUint32(b, 0)
		b = append(b, m.body...)
		b = append(b, make([]byte, -len(b)&(unix.NLMSG_ALIGNTO-1))...)
	}
	if err := s.send(b); err != nil {
		return err
	}
	return s.answer(acknowledged, messages)
}

// answer reads until there is nothing more, so that the next exchange finds nothing of this one.
func (s socket) answer(acknowledged int, messages []message) error {
	done := false
	var refused error
	for b := make([]byte, 8<<10); ; {
		n, _, err := unix.Recvfrom(s.fd, b, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS): // there was no room for every refusal, but for the first
		case errors.Is(err, unix.EAGAIN) && !done && refused == nil:
			return fmt.Errorf("%s: the kernel gave no answer", messages[acknowledged])
		case errors.Is(err, unix.EAGAIN):
			return refused
		case err != nil:
			return fmt.Errorf("reading the kernel's answer: %w", err)
		case n == 0:
			return errors.New("reading the kernel's answer: it is empty")
		default:
			d, err := readAnswer(b[:n], acknowledged, messages)
			done = done || d
			if refused == nil {
				refused = err
			}
		}
	}
}

func (s socket) send(b []byte) error {
	// A datagram must fit into the send buffer (netlink(7)); the kernel doubles what it is asked for.
	if size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err == nil && size < 2*len(b) {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, len(b))
	}
	for {
		switch n, err := unix.Write(s.fd, b); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EMSGSIZE):
			return fmt.Errorf("sending %d octets: %w (sysctl net.core.wmem_max is too small for them)", len(b), err)
		case err != nil:
			return fmt.Errorf("sending to the kernel: %w", err)
		case n != len(b):
			return fmt.Errorf("sending to the kernel: %d octets of %d", n, len(b))
		default:
			return nil
		}
	}
}

// readAnswer reads one datagram; it is done once the acknowledgement is in, and err is the first refusal.
func readAnswer(b []byte, acknowledged int, messages []message) (done bool, err error) {
	answers, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return false, fmt.Errorf("reading the kernel's answer: %w", err)
	}
	for _, a := range answers {
		if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
			continue
		}
		i := int(a.Header.Seq) - 1
		if i < 0 || i >= len(messages) {
			return false, fmt.Errorf("reading the kernel's answer: it is to message %d of %d", i+1, len(messages))
		}
		code := int32(binary.NativeEndian.Uint32(a.Data))
		if code != 0 {
			return false, &refusal{messages[i], syscall.Errno(-code), reason(a)}
		}
		done = done || i == acknowledged
	}
	return done, nil
}

// appendAttribute appends an attribute as netlink(7) has it: its length, its type, its data, and octets up to the next
// multiple of four.
func appendAttribute(b []byte, kind uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(data)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, data...)
	return append(b, make([]byte, -len(data)&(unix.NLA_ALIGNTO-1))...)
}

// reason returns the text that came with a refusal. With NLM_F_CAPPED the attributes follow the refused header.
func reason(a syscall.NetlinkMessage) string {
	const capped = 4 + unix.NLMSG_HDRLEN
	if a.Header.Flags&unix.NLM_F_CAPPED == 0 || a.Header.Flags&unix.NLM_F_ACK_TLVS == 0 || len(a.Data) < capped {
		return ""
	}
	d, err := netlink.NewAttributeDecoder(a.Data[capped:])
	if err != nil {
		return ""
	}
	text := ""
	for d.Next() {
		if d.Type() == unix.NLMSGERR_ATTR_MSG {
			text = d.String()
		}
	}
	return text
}
