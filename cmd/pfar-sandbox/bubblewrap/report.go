package bubblewrap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
	"github.com/pfar/pfar/units"
)

// Descriptors of the process in the namespaces; those that bwrap reads follow from fdFirst.
const (
	fdReport = 3 // socket to the launcher: what is made, or what went wrong
	fdArgs   = 4 // pipe with bwrap's arguments, written once bwrap is in its cgroup
	fdFirst  = 5
)

// The first byte of each report to the launcher. A complaint goes on with its words.
const (
	reportMade      = iota // made.send
	reportFailed           // a complaint that no other kind is for
	reportPowerless        // powerless
	reportReplaced         // rootfs.ErrReplaced
)

// powerless is an error of a process without capabilities in its own namespaces, which is how AppArmor restricts them.
type powerless struct{ error }

// complain writes an error as a report.
func complain(err error) []byte {
	kind := byte(reportFailed)
	if _, ok := errors.AsType[powerless](err); ok {
		kind = reportPowerless
	} else if errors.Is(err, rootfs.ErrReplaced) {
		kind = reportReplaced
	}
	return append([]byte{kind}, err.Error()...)
}

// complaint is an error that the process in the namespaces has reported.
type complaint struct {
	words string
	kind  error // rootfs.ErrReplaced, or nil for any other
}

func (c complaint) Error() string { return "preparing the server's namespaces: " + c.words }
func (c complaint) Unwrap() error { return c.kind }

// readComplaint returns the error that a report tells, nil if it is no complaint.
func readComplaint(report []byte) error {
	if len(report) == 0 {
		return complaint{words: "the process in them ended without a word"}
	}
	words := string(report[1:])
	switch report[0] {
	case reportMade:
		return nil
	case reportPowerless:
		return noNamespaces(errors.New(words))
	case reportReplaced:
		return complaint{words, rootfs.ErrReplaced}
	}
	return complaint{words: words}
}

// made is what Enter has made for the launcher.
type made struct {
	rootfs.Made
	sockets []*os.File // of the network namespace
}

// send sends reportMade, the number of file system contexts, the numbers of the mounts
// that are made, a newline, and the sources that are shared, one a line. With that go the sockets and, last, the
// contexts.
func (m made) send() error {
	numbers := strings.Trim(fmt.Sprint(append([]int{len(m.Live)}, m.Mounts...)), "[]")
	text := string(rune(reportMade)) + numbers + "\n" + strings.Join(m.Shared, "\n")
	files := slices.Concat(m.sockets, m.Live)
	defer runtime.KeepAlive(files)
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(fdReport, []byte(text[:min(len(text), maxReport)]), rights, nil, 0)
}

// maxDescriptors is how many the namespaces may send: six sockets, and one for each of 64 paths. maxReport is how many
// bytes come with them.
const (
	maxDescriptors = 128
	maxReport      = 32 << 10
)

// received takes the descriptors out of a control message.
func received(oob []byte) ([]*os.File, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	var files []*os.File
	for _, m := range msgs {
		fds, rerr := unix.ParseUnixRights(&m)
		err = errors.Join(err, rerr)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), units.FDEgress))
		}
	}
	return files, err
}

// noNamespaces adds the remedy to an error from making or using a user namespace.
func noNamespaces(err error) error {
	restricted, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if bytes.HasPrefix(restricted, []byte("1")) {
		return fmt.Errorf("making a user namespace: %w; AppArmor restricts them here (Ubuntu 24.04 and later): "+
			"sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give this program and bwrap an AppArmor profile with "+
			"\"userns,\"; `pfar doctor` says more", err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		return fmt.Errorf("making a user namespace: %w; allow them: sysctl user.max_user_namespaces=15000, and "+
			"kernel.unprivileged_userns_clone=1 where it exists; `pfar doctor` says more", err)
	}
	return fmt.Errorf("entering the namespaces: %w", err)
}
