package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/sandbox"
)

const (
	ownLeaf     = "pfard" // where this process moves, in a group that it divides (no internal processes, cgroups(7))
	groupPrefix = "mcp-"
	cpuPeriod   = 100_000 // microseconds, the kernel's default
)

// subtree is a part of the cgroup hierarchy that is ours to divide.
type subtree struct {
	kernel kernel
	root   group
	has    controllers
	mu     sync.Mutex
	groups map[string]placed
}

// placed is the group of one server, locked as long as it is in use.
type placed struct {
	group group
	path  string // from the root of the hierarchy
	lock  *os.File
}

// openSubtree finds the group that may be divided, makes it ready, and removes what a pfard that was killed left in it.
func openSubtree(k kernel, log *slog.Logger) (*subtree, error) {
	root, leaf, err := k.findSubtree()
	if err != nil {
		return nil, err
	}
	source := root
	if !leaf {
		source = group(filepath.Dir(string(root)))
	}
	if source.controllers() == (controllers{}) { // before anything is changed
		return nil, fmt.Errorf("cgroup v2 has none of the controllers memory, pids and cpu in %q; on a hybrid or v1 layout "+
			"they are elsewhere (boot with systemd.unified_cgroup_hierarchy=1)", source)
	}
	if err := k.enter(root, leaf); err != nil {
		return nil, fmt.Errorf("dividing the cgroup %q: %w", root, err)
	}
	t := &subtree{kernel: k, root: root, groups: map[string]placed{}}
	t.has = enable(root, log)
	if t.has == (controllers{}) {
		return nil, fmt.Errorf("the cgroup %q offers none of the controllers memory, pids and cpu", root)
	}
	t.removeStale(log)
	return t, nil
}

// findSubtree returns the group that is ours, and whether processes must leave it for a leaf before it is divided.
// Nothing is changed yet. Writable is not enough: below a user's systemd everything is, and belongs to that systemd.
func (k kernel) findSubtree() (root group, leaf bool, err error) {
	path, err := k.cgroupOf("self")
	if err != nil {
		return "", false, err
	}
	own, err := k.group(path)
	if err != nil {
		return "", false, err
	}
	point, _, err := k.cgroupMount()
	if err != nil {
		return "", false, err
	}
	if filepath.Base(string(own)) == ownLeaf && string(own) != point {
		own, path = group(filepath.Dir(string(own))), filepath.Dir(path) // an earlier pfard moved our shell there
	}
	if _, err := os.Stat(k.booted); err == nil {
		if !k.delegate(own, path) {
			return "", false, fmt.Errorf("the cgroup %q belongs to systemd, without Delegate=yes", path)
		}
		return own, true, k.checkWritable(own)
	}
	top := group(point)
	if _, err := top.read("cgroup.events"); errors.Is(err, fs.ErrNotExist) && k.uid == 0 {
		// The hierarchy's real root, which may hold processes and groups at once: a group of ours beside all others.
		if err := k.checkWritable(top); err != nil {
			return "", false, err
		}
		return group(filepath.Join(point, "pfar")), false, nil
	}
	st, err := os.Stat(string(own))
	if err != nil {
		return "", false, fmt.Errorf("looking at the cgroup: %w", err)
	}
	// A container's own hierarchy, or one that root gave to this user. Elsewhere the group may be shared with strangers.
	if own != top && (k.uid == 0 || int(statUID(st)) != k.uid) {
		return "", false, fmt.Errorf("the cgroup %q is not delegated to this user", path)
	}
	return own, true, k.checkWritable(own)
}

func (k kernel) checkWritable(g group) error {
	for _, path := range []string{string(g), filepath.Join(string(g), "cgroup.procs"), filepath.Join(string(g), "cgroup.subtree_control")} {
		if !k.writable(path) {
			return fmt.Errorf("%q is not writable for this process", path)
		}
	}
	return nil
}

// enter makes root ready to be divided: with leaf, every process in it moves to a leaf of its own.
func (k kernel) enter(root group, leaf bool) error {
	if !leaf {
		enable(group(filepath.Dir(string(root))), slog.New(slog.DiscardHandler)) // what fails here is missing below
		return ignoreExists(k.mkdir(string(root)))
	}
	own := group(filepath.Join(string(root), ownLeaf))
	if err := ignoreExists(k.mkdir(string(own))); err != nil {
		return err
	}
	const rounds = 16 // a process that forks meanwhile leaves a child behind for the next one
	for range rounds {
		pids, err := root.pids()
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := own.write("cgroup.procs", strconv.Itoa(pid)); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("moving process %d to %q: %w", pid, own, err)
			}
		}
	}
	return fmt.Errorf("processes in %q fork faster than they can be moved", root)
}

// enable gives the groups below g their controllers, as far as g has them.
func enable(g group, log *slog.Logger) controllers {
	all := g.controllers()
	one := func(available bool, name string) bool {
		if !available {
			return false
		}
		// One at a time: a write is all or nothing. cpu fails while the group holds real-time processes.
		if err := g.write("cgroup.subtree_control", "+"+name); err != nil {
			log.Warn("cannot enable a cgroup controller, ignoring", "cgroup", string(g), "controller", name, "err", err)
			return false
		}
		return true
	}
	return controllers{one(all.memory, "memory"), one(all.pids, "pids"), one(all.cpu, "cpu")}
}

// removeStale removes the groups that no living pfard has locked.
func (t *subtree) removeStale(log *slog.Logger) {
	dirs, err := filepath.Glob(filepath.Join(string(t.root), groupPrefix+"*"))
	if err != nil {
		return // the pattern is constant but for the mount point
	}
	for _, dir := range dirs {
		lock, err := group(dir).lock()
		if err != nil {
			continue // another pfard's
		}
		if err := group(dir).remove(t.kernel); err != nil {
			log.Warn("cannot remove a stale cgroup, ignoring", "cgroup", dir, "err", err)
		}
		lock.Close()
	}
}

func (t *subtree) Place(_ context.Context, name string, pid int, l sandbox.Limits) (string, error) {
	if err := checkPlace(t.kernel, name, pid, l); err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	if err := t.Remove(name); err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	p, err := t.make(name)
	if err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	held, err := t.hold(p.group, pid, l)
	if err == nil {
		p.path, err = t.kernel.cgroupOf(strconv.Itoa(pid))
	}
	if err == nil {
		var now group
		if now, err = t.kernel.group(p.path); err == nil && now != p.group {
			err = fmt.Errorf("process %d is in %q, want %q", pid, now, p.group)
		}
	}
	if err != nil {
		err = errors.Join(err, p.group.remove(t.kernel))
		p.lock.Close()
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	t.mu.Lock()
	t.groups[name] = p
	t.mu.Unlock()
	return describe(l, held, p.path), nil
}

// make makes the group. The name may be taken by a pfard that died, whose group goes, or by one that lives.
func (t *subtree) make(name string) (placed, error) {
	g := group(filepath.Join(string(t.root), groupPrefix+name))
	if g.exists() {
		if lock, err := g.lock(); err == nil {
			err := g.remove(t.kernel)
			lock.Close()
			if err != nil {
				return placed{}, err
			}
		} else {
			g += group("." + strconv.Itoa(os.Getpid())) // not a session's handle, which is longer than a process id
		}
	}
	if err := t.kernel.mkdir(string(g)); err != nil {
		return placed{}, fmt.Errorf("making the cgroup: %w", err)
	}
	lock, err := g.lock()
	if err != nil {
		return placed{}, errors.Join(err, g.remove(t.kernel))
	}
	return placed{group: g, lock: lock}, nil
}

// hold sets the limits, then moves pid in, and returns what the kernel says that it holds.
func (t *subtree) hold(g group, pid int, l sandbox.Limits) (controllers, error) {
	settings := []struct {
		on       bool
		file     string
		value    string
		optional bool
	}{
		{t.has.memory, "memory.max", strconv.FormatInt(l.Memory, 10), false},
		{t.has.memory, "memory.swap.max", "0", true},  // absent without swap accounting
		{t.has.memory, "memory.oom.group", "1", true}, // half a server is none; since Linux 4.19
		{t.has.pids, "pids.max", strconv.Itoa(l.Tasks), false},
		{t.has.cpu && l.CPU > 0, "cpu.max", cpuMax(l.CPU), false},
	}
	for _, s := range settings {
		if !s.on {
			continue
		}
		if err := g.write(s.file, s.value); err != nil && (!s.optional || !errors.Is(err, fs.ErrNotExist)) {
			return controllers{}, fmt.Errorf("setting %s to %s: %w", s.file, s.value, err)
		}
	}
	if err := g.write("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return controllers{}, fmt.Errorf("moving process %d: %w", pid, err)
	}
	return held(g, l), nil
}

func cpuMax(percent int) string { return fmt.Sprintf("%d %d", percent*cpuPeriod/100, cpuPeriod) }

// held reads back which of the limits the kernel has for the group, whoever was to set them.
func held(g group, l sandbox.Limits) controllers {
	number := func(file string) int64 {
		text, err := g.read(file)
		if err != nil {
			return 0
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0 // "max"
		}
		return n
	}
	var c controllers
	memory, tasks := number("memory.max"), number("pids.max")
	c.memory = memory > 0 && memory <= l.Memory // the kernel rounds down to pages
	c.pids = tasks > 0 && tasks <= int64(l.Tasks)
	text, _ := g.read("cpu.max")
	quota, period, _ := strings.Cut(text, " ")
	q, qerr := strconv.ParseInt(quota, 10, 64)
	p, perr := strconv.ParseInt(period, 10, 64)
	c.cpu = qerr == nil && perr == nil && q*100 <= int64(l.CPU)*p
	return c
}

func (t *subtree) OOMKilled(name string) bool {
	t.mu.Lock()
	p, ok := t.groups[name]
	t.mu.Unlock()
	if !ok {
		return false
	}
	n, err := p.group.event("memory.events", "oom_kill")
	return err == nil && n > 0
}

func (t *subtree) Remove(name string) error {
	t.mu.Lock()
	p, ok := t.groups[name]
	t.mu.Unlock()
	if !ok {
		return nil
	}
	if err := p.group.remove(t.kernel); err != nil {
		return err
	}
	p.lock.Close()
	t.mu.Lock()
	delete(t.groups, name)
	t.mu.Unlock()
	return nil
}

// Close removes all groups of this limiter. Its own leaf stays: the processes in it have nowhere else to go.
func (t *subtree) Close() error {
	t.mu.Lock()
	var names []string
	for name := range t.groups {
		names = append(names, name)
	}
	t.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, t.Remove(name))
	}
	if filepath.Base(string(t.root)) == "pfar" {
		_ = t.kernel.rmdir(string(t.root)) // fails while another pfard has groups in it
	}
	return errors.Join(errs...)
}

func ignoreExists(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
