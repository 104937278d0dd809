package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

const goarch = runtime.GOARCH

// plan is the launcher's part of generator.Plan. It is read again here, not imported: this process lives as long as the
// server and stays small.
type plan struct {
	Name        string          `json:"name"`
	Gateway     handover.Server `json:"gateway"`
	Sandbox     sandbox.Sandbox `json:"sandbox"`
	Egress      egress.Policy   `json:"egress"`
	Credentials []struct {
		Name string `json:"name"`
	} `json:"credentials"`
}

// launcher is one run of one server.
type launcher struct {
	plan    plan
	runtime string // $RUNTIME_DIRECTORY
	log     *stderrLog
	gateway *handover.Conn
	limits  *os.File // nil: nobody places bwrap in a cgroup
	history history
	ready   time.Time     // when the tools were first served; zero: never
	dropped []string      // what cannot be served, as last told
	heard   chan struct{} // closed when the server's stderr has been read to its end
}

// launch runs the server that the unit's plan describes until it ends or ctx does, and returns this process's exit code.
func launch(ctx context.Context) (int, error) {
	l, credentials, err := prepareLauncher()
	if err != nil {
		return units.ExitDisabled, err
	}
	if err := l.backOff(ctx); err != nil {
		return 0, nil // stopped while it waited
	}
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return l.cannotStart(fmt.Errorf("bubblewrap is not installed (apt install bubblewrap): %w", err))
	}
	l.state(units.StateStarting, "starting")
	s, err := start(bwrap, l.plan.Sandbox, l.plan.Egress.Literals(), credentials)
	if err != nil {
		return l.cannotStart(err)
	}
	l.heard = make(chan struct{})
	go func() {
		defer close(l.heard)
		l.log.copy(s.stderr)
	}()
	if err := l.connect(s); err != nil {
		_ = s.cmd.Process.Kill()
		<-s.exited
		return l.cannotStart(err)
	}
	return l.supervise(ctx, s), nil
}

func prepareLauncher() (*launcher, map[string]string, error) {
	fds, err := units.Descriptors()
	if err != nil {
		return nil, nil, err
	}
	raw, err := units.Credential("plan")
	if err != nil {
		return nil, nil, err
	}
	l := &launcher{runtime: os.Getenv("RUNTIME_DIRECTORY"), log: newStderrLog(os.Stderr)}
	if err := json.Unmarshal(raw, &l.plan); err != nil {
		return nil, nil, fmt.Errorf("reading the plan: %w", err)
	}
	l.log.mark = units.SessionMark(l.plan.Gateway.Session)
	if l.runtime == "" {
		return nil, nil, errors.New("RUNTIME_DIRECTORY is not set")
	}
	if err := lock(filepath.Join(l.runtime, "lock")); err != nil {
		return nil, nil, err
	}
	l.history = readHistory(l.runtime)
	credentials := make(map[string]string, len(l.plan.Credentials))
	for _, c := range l.plan.Credentials {
		v, err := units.Credential(c.Name)
		if err != nil {
			return nil, nil, err
		}
		credentials[c.Name] = string(v)
	}
	if l.gateway, err = gatewayConn(fds[units.FDGateway]); err != nil {
		return nil, nil, err
	}
	if f := fds[units.FDLimits]; len(f) == 1 {
		l.limits = f[0]
	}
	return l, credentials, nil
}

// lock keeps a second launcher of the same server from running beside one that an earlier pfard left to finish: they
// would share the server's state.
func lock(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX); err != nil { // held until this process ends
		return fmt.Errorf("locking %q: %w", path, err)
	}
	return nil
}

func gatewayConn(files []*os.File) (*handover.Conn, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("want one descriptor named %q, got %d", units.FDGateway, len(files))
	}
	c, err := net.FileConn(files[0])
	files[0].Close()
	if err != nil {
		return nil, fmt.Errorf("taking over the gateway's connection: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("descriptor %q is a %T, not a Unix socket", units.FDGateway, c)
	}
	return handover.Accepted(u), nil
}

// backOff waits until the time for the next start has come. It returns an error if ctx ended first.
func (l *launcher) backOff(ctx context.Context) error {
	wait := time.Until(l.history.Last.Add(l.history.delay()))
	if wait <= 0 {
		return nil
	}
	wait = min(wait, steps[len(steps)-1]) // whatever the clock did since
	l.state(units.StateBackOff, l.history.words())
	_ = notify([]string{set("EXTEND_TIMEOUT_USEC", fmt.Sprint((wait + 30*time.Second).Microseconds()))})
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect gives the server its cgroup, its way out and its client, and then lets it run.
func (l *launcher) connect(s *server) error {
	placed := make(chan error, 1)
	go func() { placed <- l.place(s.cmd.Process.Pid) }() // while the process prepares its network
	sockets, err := s.sockets()
	if err == nil {
		err = notify([]string{"FDSTORE=1", set("FDNAME", units.FDEgress)}, sockets...)
		closeAll(sockets)
	}
	if perr := <-placed; err == nil {
		err = perr
	}
	if err != nil {
		return err
	}
	if err := l.gateway.Send(handover.Message{Hello: &l.plan.Gateway}, s.stdin, s.stdout); err != nil {
		return fmt.Errorf("handing over to the gateway: %w", err)
	}
	// Without these copies the server sees the end of its stdin as soon as the gateway closes it.
	s.stdin.Close()
	s.stdout.Close()
	if err := s.release(); err != nil {
		return fmt.Errorf("writing bwrap's arguments: %w", err)
	}
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// place asks pfard to put bwrap into its cgroup while it is still one process that has read nothing.
func (l *launcher) place(pid int) error {
	if l.limits == nil {
		return nil
	}
	defer l.limits.Close()
	b, err := json.Marshal(units.Placement{PID: pid})
	if err != nil {
		return err
	}
	if _, err := l.limits.Write(b); err != nil {
		return fmt.Errorf("asking for a cgroup: %w", err)
	}
	answer := make([]byte, 4096)
	n, err := l.limits.Read(answer)
	if err != nil {
		return fmt.Errorf("waiting for a cgroup: %w", err)
	}
	var p units.Placement
	if err := json.Unmarshal(answer[:n], &p); err != nil {
		return fmt.Errorf("reading the answer about the cgroup: %w", err)
	}
	if p.Error != "" {
		return fmt.Errorf("placing the server in its cgroup: %s", p.Error)
	}
	return notify([]string{set(units.NotifyLimits, p.How)})
}

// supervise waits for whatever comes first: the operator's stop, the server's end, or the gateway's.
func (l *launcher) supervise(ctx context.Context, s *server) int {
	messages := make(chan handover.Message)
	lost := make(chan error, 1)
	go func() { lost <- l.receive(messages) }()
	for {
		select {
		case <-ctx.Done():
			l.stop(s)
			return 0
		case err := <-s.exited:
			select { // its last words are in the pipe, to whose end no process is left, unless it got out of the namespace
			case <-l.heard:
			case <-time.After(time.Second):
			}
			if ctx.Err() != nil { // it ended because it was told to, before this process was told
				l.state(units.StateStopping, "stopping")
				return 0
			}
			return l.crashed(exitWords(err))
		case m := <-messages:
			if m.Failed != "" {
				l.stop(s)
				return l.crashed(m.Failed)
			}
			l.served(m.Ready)
		case err := <-lost:
			l.state(units.StateStopping, "the gateway went away")
			s.stop(func() { l.gateway.Close() })
			if err != nil && !errors.Is(err, io.EOF) {
				l.log.write(time.Now(), fmt.Sprintf("pfar-sandbox: %v", err))
			}
			return units.ExitGateway
		}
	}
}

func (l *launcher) receive(messages chan<- handover.Message) error {
	for {
		m, files, err := l.gateway.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			f.Close() // the gateway has nothing to send
		}
		if m.Ready != nil || m.Failed != "" {
			messages <- m
		}
	}
}

func (l *launcher) served(r *handover.Ready) {
	first := l.ready.IsZero()
	if first {
		l.ready = time.Now()
	}
	if !slices.Equal(r.Why, l.dropped) {
		l.dropped = r.Why
		for _, why := range r.Why {
			l.log.write(time.Now(), "pfar-gateway: not served: "+why)
		}
	}
	lines := []string{set(units.NotifyState, units.StateRunning), set(units.NotifyTools, fmt.Sprint(r.Tools)), set(units.NotifyCrashes, fmt.Sprint(l.history.InRow))}
	status := fmt.Sprintf("%d tools", r.Tools)
	if r.Tools == 1 {
		status = "1 tool"
	}
	if r.Held > 0 {
		status += fmt.Sprintf(", %d held back until you accept them (pfar pins)", r.Held)
	}
	if r.Dropped > 0 {
		status += fmt.Sprintf(", %d that cannot be served (see its log)", r.Dropped)
	}
	if r.Server != "" {
		status += ", " + r.Server
	}
	if r.Drift != "" {
		status += ", " + r.Drift
	}
	lines = append(lines, set("STATUS", status))
	if first {
		lines = append(lines, "READY=1")
	}
	_ = notify(lines)
}

func (l *launcher) stop(s *server) {
	l.state(units.StateStopping, "stopping")
	_ = notify([]string{"STOPPING=1"})
	s.stop(func() { _ = l.gateway.Send(handover.Message{Stopping: true}) })
}

// crashed records that the server ended by itself and says what the runner is to do.
func (l *launcher) crashed(why string) int {
	if last := l.log.Last(); last != "" {
		why += ": " + last
	}
	if l.plan.Gateway.Session != "" { // it is not started again: there is nothing to count
		l.log.write(time.Now(), "pfar-sandbox: the session is over: "+why)
		l.state(units.StateFailed, why)
		return units.ExitCrashed
	}
	var up time.Duration
	if !l.ready.IsZero() {
		up = time.Since(l.ready)
	}
	l.history = l.history.crashed(time.Now(), up, why)
	if err := l.history.write(l.runtime); err != nil {
		l.log.write(time.Now(), "pfar-sandbox: "+err.Error())
	}
	state := units.StateBackOff
	if l.history.disabled() {
		state = units.StateFailed
	}
	l.log.write(time.Now(), "pfar-sandbox: server "+l.plan.Name+" crashed: "+l.history.words())
	l.state(state, l.history.words())
	return l.history.exitCode()
}

// cannotStart is for what another try would not mend: no sandbox, no server (SB-22: no weaker fallback).
func (l *launcher) cannotStart(err error) (int, error) {
	l.state(units.StateFailed, err.Error())
	if mark := l.log.mark; mark != "" {
		err = fmt.Errorf("%s%w", mark, err) // for the server's log, where others write as well
	}
	return units.ExitDisabled, err
}

func (l *launcher) state(state, status string) {
	_ = notify([]string{set(units.NotifyState, state), set(units.NotifyCrashes, fmt.Sprint(l.history.InRow)), set("STATUS", status)})
}

// noNamespaces adds the remedy to an error from making or using a user namespace.
func noNamespaces(err error) error {
	if b, rerr := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"); rerr == nil && len(b) > 0 && b[0] == '1' {
		return fmt.Errorf("making a user namespace: %w; AppArmor restricts them here (Ubuntu 24.04 and later): sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give this program and bwrap an AppArmor profile with \"userns,\"; `pfar doctor` says more", err)
	}
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		return fmt.Errorf("making a user namespace: %w; allow them: sysctl user.max_user_namespaces=15000, and kernel.unprivileged_userns_clone=1 where it exists; `pfar doctor` says more", err)
	}
	return fmt.Errorf("entering the namespaces: %w", err)
}
