package bubblewrap

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
	"github.com/pfar/pfar/units"
)

// EnterArg makes this binary the first process of the server's user namespace, of a mount namespace for what bwrap
// binds, and of its network namespace unless that is the unit's: it prepares them while it still may, gives that up,
// and becomes bwrap.
const EnterArg = "enter"

// Enter runs as `pfar-sandbox enter BWRAP TASKS FILE FDS NETWORK IDS VIEWS COMMAND [ARG...]`. bwrap takes its options
// by descriptor, but not the command, which holds nothing that is secret.
func Enter(args []string) {
	err := becomeBwrap(args)
	// The launcher tells the owner; an exit status alone would say nothing.
	_ = unix.Sendmsg(fdReport, complain(err), nil, nil, 0)
	os.Exit(1)
}

// becomeBwrap returns only if it could not.
func becomeBwrap(args []string) error {
	if len(args) < 8 {
		return fmt.Errorf(
			"entering the namespaces: want BWRAP, TASKS, FILE, FDS, NETWORK, IDS, VIEWS and COMMAND, got %d arguments",
			len(args))
	}
	tasks, err := strconv.ParseUint(args[1], 10, 31)
	if err != nil {
		return fmt.Errorf("reading the task limit: %w", err)
	}
	file, err := strconv.ParseUint(args[2], 10, 63)
	if err != nil {
		return fmt.Errorf("reading the limit of a file: %w", err)
	}
	fds, err := strconv.ParseUint(args[3], 10, 16)
	if err != nil {
		return fmt.Errorf("reading the number of descriptors: %w", err)
	}
	var as IDs
	if err := as.UnmarshalText([]byte(args[5])); err != nil {
		return err
	}
	// While this is the launcher's user still, who may be the only one to come through a home folder.
	views, err := rootfs.Open(args[6])
	if err != nil {
		return err
	}
	if err := as.become(); err != nil {
		return err
	}
	if args[4] != noNetwork {
		if err := boundCounts(); err != nil {
			return err
		}
	}
	var m made
	if m.sockets, err = prepareNetwork(args[4]); err != nil {
		return err
	}
	if m.Made, err = rootfs.Make(views); err != nil {
		return err
	}
	if err := m.send(); err != nil {
		return fmt.Errorf("sending the sockets of the namespace: %w", err)
	}
	if err := dropPrivileges(tasks, file); err != nil {
		return err
	}
	unix.CloseOnExec(fdReport)
	// What whoever started pfar had left open must not reach the server: bwrap closes only what it was told of.
	if err := unix.CloseRange(fdFirst+uint(fds), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("closing inherited descriptors: %w", err)
	}
	// bwrap takes the program only from argv.
	argv := append([]string{"bwrap", "--args", strconv.Itoa(fdArgs), "--"}, args[7:]...)
	err = unix.Exec(args[0], argv, nil)
	return fmt.Errorf("executing %q: %w", args[0], err)
}

// dropPrivileges leaves bwrap with nothing but the right that every process has, to make namespaces of its own.
func dropPrivileges(tasks, file uint64) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		return fmt.Errorf("reading RLIMIT_NOFILE: %w", err)
	}
	descriptors := had.Max
	limits := []struct {
		name     string
		resource int
		max      uint64
	}{
		// Counted per user namespace since Linux 5.14, so it holds a fork bomb even where there is no cgroup; the
		// launcher's own user is not affected.
		{"RLIMIT_NPROC", unix.RLIMIT_NPROC, tasks},
		// Half of what its launcher may have: descriptors in flight on Unix sockets are counted by user, and held against
		// the limit of who sends (unix(7), ETOOMANYREFS). The server's sends fail before pfar's do.
		{"RLIMIT_NOFILE", unix.RLIMIT_NOFILE, min(4096, descriptors/2)},
		{"RLIMIT_FSIZE", unix.RLIMIT_FSIZE, cmp.Or(file, math.MaxUint64)}, // what it writes to the host's disk
	}
	for _, l := range limits {
		var had unix.Rlimit
		err := unix.Getrlimit(l.resource, &had)
		most := min(l.max, had.Max) // nobody but root could raise it
		if err == nil {
			err = unix.Setrlimit(l.resource, &unix.Rlimit{Cur: most, Max: most})
		}
		if err != nil {
			return fmt.Errorf("setting %s to %d: %w", l.name, most, err)
		}
	}
	return units.NoCore() // a core file would hold the server's credentials
}
