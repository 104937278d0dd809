package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Of linux/netfilter/nfnetlink_log.h.
const (
	nfulnlMsgConfig = 1

	nfulaCfgCmd     = 1
	nfulaCfgMode    = 2
	nfulaCfgQthresh = 5

	nfulnlCfgCmdBind = 1
	nfulnlCopyPacket = 2
)

// copyRange is how many octets of a packet are handed out: the longest IPv4 header with the ports that follow. A rule
// may ask for less.
const copyRange = 64

// OpenLog returns a socket from which each read(2) takes one datagram of what the calling thread's network namespace
// logs to the NFLOG group, for nflog.Parse. It wants CAP_NET_ADMIN over the namespace; whoever is handed the socket
// needs no right at all. It is non-blocking and close-on-exec; os.File's Fd would make it blocking, SyscallConn does
// not. A group has one reader: it is EPERM while another one is open. What a slow reader does not take is lost, and
// delays nobody.
func OpenLog(group uint16) (*os.File, error) {
	s, err := dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, logging(group, err)
	}
	if err := s.bindLog(group); err != nil {
		s.close()
		return nil, logging(group, err)
	}
	return os.NewFile(uintptr(s.fd), "nflog"), nil
}

func logging(group uint16, err error) error {
	// nfnetlink answers EINVAL where it has no such subsystem, and everything else that is sent here is right.
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("opening NFLOG group %d: the kernel has no nfnetlink_log (modprobe nfnetlink_log): %w", group, err)
	}
	return fmt.Errorf("opening NFLOG group %d: %w", group, err)
}

func (s socket) bindLog(group uint16) error {
	b := nfgenmsg(unix.AF_UNSPEC, group)
	b = appendAttribute(b, nfulaCfgCmd, []byte{nfulnlCfgCmdBind})
	// struct nfulnl_msg_config_mode is packed: copy_range, copy_mode, and an octet of padding.
	b = appendAttribute(b, nfulaCfgMode, append(binary.BigEndian.AppendUint32(nil, copyRange), nfulnlCopyPacket, 0))
	// Otherwise the kernel waits for a hundred packets, or for a second.
	b = appendAttribute(b, nfulaCfgQthresh, number(1))
	bind := message{doing: "binding", kind: unix.NFNL_SUBSYS_ULOG<<8 | nfulnlMsgConfig, body: b}
	if err := s.exchange(0, []message{bind}); err != nil {
		return err
	}
	// A reader has nothing to do about packets that were lost (ENOBUFS): they were refused all the same.
	return unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_NO_ENOBUFS, 1)
}
