package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// network prepares the network namespace of a server's unit, which its launcher is in and has nothing in yet. The
// ruleset of a server that has been welcomed before is there.
func (a *attachments) network(p systemd.Process, plan plan.Plan, again bool) error {
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		return fmt.Errorf("looking for the network namespace of %q: %w", p.Instance, err)
	}
	defer netns.Close()
	if err := checkNamespace(netns, p.PID); err != nil {
		return err
	}
	if !again {
		err := firewall.InNamespace(netns, func() error {
			if _, err := firewall.Loopback(); err != nil {
				return err
			}
			return firewall.Apply(plan.Egress.Ruleset())
		})
		if err != nil {
			return lasting(fmt.Errorf("preparing the network namespace of %q: %w", p.Instance, err))
		}
	}
	a.openLog(p.Instance, netns)
	return nil
}

// openLog has what a namespace's ruleset rejects be reported, unless the bridge does: the socket of an earlier pfard
// may be the bridge's alone. When that has ended, this is called again.
func (a *attachments) openLog(instance string, netns *os.File) (taken bool) {
	var log *os.File
	err := firewall.InNamespace(netns, func() (err error) {
		log, err = firewall.OpenLog(egress.LogGroup)
		return err
	})
	switch {
	case err == nil:
		a.keep(instance, []*os.File{log})
	case errors.Is(err, unix.EPERM):
		return true
	default:
		a.log.Warn("nobody sees what a server tries beside its way out, ignoring", "server", instance, "error", err)
	}
	return false
}

// lasting marks an error of the kernel that says what it cannot do at all, or will not let us do. Whatever else it
// says, such as ENOBUFS or EBUSY, may be otherwise at the next start.
func lasting(err error) error {
	for _, lacks := range []error{unix.EPERM, unix.EOPNOTSUPP, unix.ENOENT, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT} {
		if errors.Is(err, lacks) {
			return fmt.Errorf("%w: %w", errForGood, err)
		}
	}
	return err
}

// bridgeLeft takes over from a bridge that has ended the reports that only it had.
func (a *attachments) bridgeLeft(instance string) {
	a.mu.Lock()
	l, reported := a.launchers[instance], a.kept[instance] != nil
	a.mu.Unlock()
	if l.conn == nil || reported || a.rootless {
		return
	}
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.pid))
	if err != nil {
		return // it has ended as well
	}
	defer netns.Close()
	// The kernel closes an ended process's descriptors one by one, and says so of none.
	for tries := 0; a.openLog(instance, netns) && tries < 5; tries++ {
		time.Sleep(20 * time.Millisecond)
	}
}

// checkNamespace refuses what fails open: systemd ignores PrivateNetwork= where it cannot have it, and puts a socket
// into a namespace of its own where JoinsNamespaceOf= does not say otherwise, both with a line in the log at most.
func checkNamespace(netns *os.File, pid int) error {
	var theirs, ours unix.Stat_t
	if err := unix.Fstat(int(netns.Fd()), &theirs); err != nil {
		return err
	}
	if err := unix.Stat("/proc/self/ns/net", &ours); err != nil {
		return err
	}
	if theirs.Ino == ours.Ino && theirs.Dev == ours.Dev {
		return fmt.Errorf("%w: its unit is in the network of the machine, for systemd has ignored PrivateNetwork=",
			errForGood)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	if !listens(bufio.NewScanner(f), egress.ProxyPort) {
		return errors.New("the sockets of its way out are not in its network namespace: see systemctl status pfar-egress@*.socket")
	}
	return nil
}

// listens reports whether a table of TCP sockets (proc(5), /proc/net/tcp) has one that listens on 127.0.0.1 and the
// port.
func listens(table *bufio.Scanner, port uint16) bool {
	const listening = "0A"
	// The address is a number in the machine's byte order, the port is not.
	want := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32([]byte{127, 0, 0, 1}), port)
	for table.Scan() {
		if f := strings.Fields(table.Text()); len(f) > 3 && f[1] == want && f[3] == listening {
			return true
		}
	}
	return false
}
