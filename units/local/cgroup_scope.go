package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/units/sandbox"
	"github.com/pfar/pfar/units/systemd"
)

const (
	scopePrefix = "pfar-mcp-"
	// scopeMark ends the description of scopes that are this runner's: those of the system's pfard have the same names
	// and must outlive any pfard.
	scopeMark = " (pfar up)"
	busWait   = 10 * time.Second // systemd answers in milliseconds; under emulation and load in one or two seconds
)

// scopes is a Limiter that has systemd make the groups.
type scopes struct {
	kernel kernel
	log    *slog.Logger
	link   *systemd.Link
	mu     sync.Mutex // held for the map, never while systemd is waited for
	groups map[string]scope
}

// scope is the scope of one server, its group locked as long as it is in use.
type scope struct {
	unit  string
	group group
	lock  *os.File
}

// openScopes connects to systemd, removes what a pfard that was killed left, and tries with a process of its own
// whether limits hold: systemd makes a scope also where it can set none.
func openScopes(ctx context.Context, k kernel, log *slog.Logger) (*scopes, controllers, error) {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	if _, err := os.Stat(k.booted); err != nil {
		return nil, controllers{}, errors.New("systemd does not run this machine")
	}
	s := &scopes{kernel: k, log: log, link: systemd.NewLink(systemd.Connect), groups: map[string]scope{}}
	if _, err := s.link.Bus(ctx); err != nil {
		return nil, controllers{}, err
	}
	s.removeStale(ctx)
	has, err := s.probe(ctx)
	if err != nil {
		s.link.Close()
		return nil, controllers{}, fmt.Errorf("trying a scope: %w", err)
	}
	return s, has, nil
}

// userDelegated asks the user's systemd, which leaves no mark on a group, whether it gave this one away.
func userDelegated(ctx context.Context, path string) bool {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	bus, err := systemd.Connect(ctx)
	if err != nil {
		return false
	}
	defer bus.Close()
	yes, err := bus.Delegated(ctx, path)
	return err == nil && yes
}

// probe holds a process that does nothing, and returns which limits it is then under.
func (s *scopes) probe(ctx context.Context) (has controllers, err error) {
	cmd := exec.CommandContext(ctx, "cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return has, err
	}
	if err := cmd.Start(); err != nil {
		return has, err
	}
	defer func() {
		stdin.Close() // its end, if nothing else has been
		_ = cmd.Wait()
	}()
	name := "probe." + strconv.Itoa(os.Getpid())
	l := sandbox.Limits{Memory: 64 << 20, Tasks: 64, CPU: 100}
	if _, err := s.Place(ctx, name, cmd.Process.Pid, l); err != nil {
		return has, err
	}
	s.mu.Lock()
	g := s.groups[name].group
	s.mu.Unlock()
	has = held(g, l)
	return has, s.Remove(name)
}

// removeStale stops the scopes of this runner that no living pfard has locked, and forgets those that failed.
func (s *scopes) removeStale(ctx context.Context) {
	bus, err := s.link.Bus(ctx)
	if err != nil {
		return // reported by the caller's own try
	}
	list, err := bus.Scopes(ctx, scopePrefix)
	if err != nil {
		s.log.Warn("cannot look for stale scopes, ignoring", "err", err)
		return
	}
	for _, u := range list {
		if !strings.HasSuffix(u.Description, scopeMark) {
			continue
		}
		if err := s.takeOver(ctx, bus, u.Name); err != nil {
			s.log.Warn("cannot remove a stale scope, ignoring", "scope", u.Name, "err", err)
		}
	}
}

// errInUse is returned for a scope that a living pfard has locked.
var errInUse = errors.New("another pfard uses it")

// takeOver stops a scope unless it is in use.
func (s *scopes) takeOver(ctx context.Context, bus *systemd.Bus, unit string) error {
	path, err := bus.ControlGroup(ctx, unit)
	if err != nil {
		return err
	}
	if path != "" {
		g, err := s.kernel.group(path)
		if err != nil {
			return err
		}
		lock, err := g.lock()
		if err != nil && g.exists() {
			return errInUse
		}
		if err == nil {
			defer lock.Close()
		}
	}
	return bus.Stop(ctx, unit)
}

func (s *scopes) Place(ctx context.Context, name string, pid int, l sandbox.Limits) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, busWait)
	defer cancel()
	err := checkPlace(s.kernel, name, pid, l)
	if err == nil {
		err = s.Remove(name)
	}
	if err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	sc, path, err := s.start(ctx, name, pid, l)
	if err != nil {
		return "", fmt.Errorf("placing %q: %w", name, err)
	}
	s.mu.Lock()
	s.groups[name] = sc
	s.mu.Unlock()
	return describe(l, held(sc.group, l), path), nil
}

// start makes the scope and checks that the process is in it.
func (s *scopes) start(ctx context.Context, name string, pid int, l sandbox.Limits) (sc scope, path string, err error) {
	bus, err := s.link.Bus(ctx)
	if err != nil {
		return sc, "", err
	}
	want := systemd.Scope{
		Name:        scopePrefix + name + ".scope",
		Description: "MCP server " + name + scopeMark,
		PID:         pid, Memory: uint64(l.Memory), Tasks: uint64(l.Tasks), CPU: l.CPU,
	}
	path, err = bus.StartScope(ctx, want)
	if errors.Is(err, systemd.ErrExists) {
		if s.takeOver(ctx, bus, want.Name) != nil {
			want.Name = scopePrefix + name + "." + strconv.Itoa(os.Getpid()) + ".scope" // not a session's handle, which is longer than a process id
		}
		path, err = bus.StartScope(ctx, want)
	}
	if err != nil {
		return sc, "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bus.Stop(ctx, want.Name))
		}
	}()
	g, err := s.kernel.arrived(pid, path)
	if err != nil {
		return sc, "", err
	}
	lock, err := g.lock()
	return scope{want.Name, g, lock}, path, err
}

// arrived checks that a process is in the cgroup that systemd has made for it: it may not be allowed to move it there.
func (k kernel) arrived(pid int, path string) (group, error) {
	now, err := k.cgroupOf(strconv.Itoa(pid))
	if err != nil {
		return "", err
	}
	if now != path {
		return "", fmt.Errorf("process %d is in %q, want %q", pid, now, path)
	}
	return k.group(path)
}

// OOMKilled asks the kernel while the group is there. systemd removes an empty group, but not before it has looked, and
// remembers a scope that failed until Remove resets it: that is why the scopes have no CollectMode=inactive-or-failed.
func (s *scopes) OOMKilled(name string) bool {
	s.mu.Lock()
	sc, ok := s.groups[name]
	s.mu.Unlock()
	if !ok {
		return false
	}
	if n, err := sc.group.event("memory.events", "oom_kill"); err == nil {
		return n > 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	bus, err := s.link.Bus(ctx)
	if err != nil {
		return false
	}
	result, err := bus.Result(ctx, sc.unit)
	if err != nil {
		s.log.Warn("cannot ask systemd how a scope ended, ignoring", "scope", sc.unit, "err", err)
	}
	return result == systemd.ResultOOM
}

func (s *scopes) Remove(name string) error {
	s.mu.Lock()
	sc, ok := s.groups[name]
	s.mu.Unlock()
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), busWait)
	defer cancel()
	bus, err := s.link.Bus(ctx)
	if err == nil {
		err = bus.Stop(ctx, sc.unit)
	}
	if err != nil {
		// Without systemd the processes must go all the same; it notices the empty group itself.
		if kerr := sc.group.killAll(s.kernel); kerr != nil && sc.group.exists() {
			return errors.Join(err, kerr)
		}
		s.log.Warn("cannot stop a scope, killed its processes instead", "scope", sc.unit, "err", err)
	}
	sc.lock.Close()
	s.mu.Lock()
	delete(s.groups, name)
	s.mu.Unlock()
	return nil
}

// Close removes all scopes of this limiter and leaves the bus.
func (s *scopes) Close() error {
	s.mu.Lock()
	var names []string
	for name := range s.groups {
		names = append(names, name)
	}
	s.mu.Unlock()
	var errs []error
	for _, name := range names {
		errs = append(errs, s.Remove(name))
	}
	s.link.Close()
	return errors.Join(errs...)
}
