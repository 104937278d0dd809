package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/access"
)

// reach lets the users who are declared clients connect to the gateway's socket, which is its owner's otherwise, and
// those who are none any more not. Whom it lets in the gateway decides all the same.
func (c *clientele) reach(socket string, log *slog.Logger) {
	list, _, _ := c.now()
	if err := admit(socket, usersOf(list)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("letting users who are declared clients connect to the gateway, ignoring", "error", err)
	}
}

// usersOf are those who are clients that may come in, each once.
func usersOf(list []access.Client) []uint32 {
	var uids []uint32
	for _, c := range list {
		if c.Enabled {
			uids = append(uids, c.UIDs...)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids)
}

// An access control list, as the kernel has it in an extended attribute (acl(5), linux/posix_acl_xattr.h).
const (
	aclName    = "system.posix_acl_access"
	aclVersion = 2
	aclOwner   = 0x01
	aclUser    = 0x02
	aclGroup   = 0x04
	aclMask    = 0x10
	aclOther   = 0x20
	aclNobody  = 0xffffffff // the id of entries that have none

	readWrite = 6 // connect(2) takes leave to write
)

// admit makes users the only ones, beside its owner, who may connect to a socket. With none there is no list, and the
// mode alone counts.
func admit(path string, users []uint32) error {
	have := make([]byte, 64<<10)
	n, err := unix.Lgetxattr(path, aclName, have)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
		have = nil
	case err != nil:
		return fmt.Errorf("reading the access control list of %q: %w", path, err)
	default:
		have = have[:n]
	}
	want := aclOf(users)
	if slices.Equal(have, want) {
		return nil
	}
	if want == nil {
		if err = unix.Lremovexattr(path, aclName); err == nil {
			err = unix.Fchmodat(unix.AT_FDCWD, path, 0o600, 0) // the mask was its group's bits
		}
	} else {
		err = unix.Lsetxattr(path, aclName, want, 0)
	}
	if err != nil {
		return fmt.Errorf("changing the access control list of %q: %w", path, err)
	}
	return nil
}

// aclOf is the attribute's value: in the order of tags, and of ids.
func aclOf(users []uint32) []byte {
	if len(users) == 0 {
		return nil
	}
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	entry := func(tag, may uint16, id uint32) {
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, may)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	entry(aclOwner, readWrite, aclNobody)
	for _, uid := range users {
		entry(aclUser, readWrite, uid)
	}
	entry(aclGroup, 0, aclNobody)
	entry(aclMask, readWrite, aclNobody)
	entry(aclOther, 0, aclNobody)
	return b
}
