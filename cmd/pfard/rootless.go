package main

import (
	"errors"
	"os"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// An ordinary user's pfard runs under that user's systemd. It does all that root's does, but for what only root may:
// enter the units' network namespaces, so that launchers make those themselves and send their sockets (kept.go), and
// set the host's firewall. Nor does it stage what launchers cannot reach: they run as the user, who reaches what is
// declared.

// rootless reports whether this is an ordinary user's pfard.
func rootless() bool { return os.Getuid() != 0 }

var errRootless = errors.New("only root's pfard sets the machine's firewall")

// unheld has every bridge run on the strength of its own rules, and be told so.
func (c *holdConfig) unheld() {
	c.quiet = true
	c.apply = func(egress.Hold, time.Time) error { return errRootless }
	c.cgroups = func(int, string, string) (own, above egress.Cgroup, err error) { return own, above, errRootless }
}

const rootlessNote = "the machine's firewall does not hold the bridges of an ordinary user: they go by their own " +
	"rules alone (pfar doctor)"
