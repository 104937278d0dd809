package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall"
	"github.com/pfar/pfar/units/systemd"
)

// network prepares the network namespace of a server's unit, which its launcher is in and has nothing in yet. The ruleset
// of a server that has been welcomed before is there.
func (a *attachments) network(p systemd.Process, plan generator.Plan, again bool) error {
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID))
	if err != nil {
		return fmt.Errorf("looking for the network namespace of %q: %w", p.Instance, err)
	}
	defer netns.Close()
	if err := checkNamespace(netns, p.PID); err != nil {
		return err
	}
	var log *os.File
	err = firewall.InNamespace(netns, func() error {
		if !again {
			if _, err := firewall.Loopback(); err != nil {
				return err
			}
			if err := firewall.Apply(plan.Egress.Ruleset()); err != nil {
				return err
			}
		}
		log, err = firewall.OpenLog(egress.LogGroup)
		if again && errors.Is(err, unix.EBUSY) { // the bridge has it
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("preparing the network namespace of %q: %w", p.Instance, err)
	}
	if log != nil {
		a.keep(p.Instance, []*os.File{log})
	}
	return nil
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
		return errors.New("its unit is in the network of the host: systemd has ignored PrivateNetwork=")
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

// listens reports whether a table of TCP sockets (proc(5), /proc/net/tcp) has one that listens on 127.0.0.1 and the port.
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
