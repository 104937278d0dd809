package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-sandbox/bubblewrap"
	"github.com/pfar/pfar/cmd/pfar-sandbox/rootfs"
	"github.com/pfar/pfar/cmd/pfar-sandbox/stderr"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// launcher is one run of one server.
type launcher struct {
	plan    plan.Plan
	runtime string // $RUNTIME_DIRECTORY
	log     *stderr.Log
	gateway *handover.Conn
	status
	options
	ready   time.Time          // when the tools were first served; zero: never
	dropped []string           // what cannot be served, as last told
	words   *stderr.Transcript // of the server
	keeper  *keeper
	staged  bool // only the unit's next start shows this user the server's socket, if it is made later
}

// launch runs the server that the unit's plan describes until it ends or ctx does, and returns this process's exit
// code.
func launch(ctx context.Context, o options) (int, error) {
	l, secrets, err := prepareLauncher(ctx, o)
	if err != nil {
		if ctx.Err() != nil { // stopped meanwhile
			return 0, nil
		}
		l = new(launcher) // for whoever looks at the unit
		l.pfard = &attachment{path: o.attach, told: map[string]string{}}
		return l.cannotStart(err)
	}
	if len(secrets.Missing) > 0 {
		return l.wait(ctx, secrets), nil
	}
	if code, ok := l.admitted(ctx, secrets); !ok {
		return code, nil
	}
	if err := l.backOff(ctx); err != nil {
		return 0, nil // stopped while it waited
	}
	if code, ok := l.reached(ctx); !ok {
		return code, nil
	}
	if l.plan.Sandbox.Once {
		return l.runOnce(ctx, secrets)
	}
	s, err := l.start(secrets, l.connect)
	if err != nil {
		return l.cannotStart(err)
	}
	return l.supervise(ctx, s), nil
}

// start starts the plan's program, which connect lets run.
func (l *launcher) start(secrets units.Secrets, connect func(*bubblewrap.Process) error) (*bubblewrap.Process, error) {
	bwrap, err := bubblewrap.Find()
	if err != nil {
		return nil, err
	}
	l.state(units.StateStarting, "starting")
	if !l.plan.Sandbox.Once {
		l.keeper = newKeeper(l.plan.Undo, l.attach, l.gateway.Send)
		if err := l.keeper.begin(); err != nil {
			l.log.Say("pfar-sandbox: " + err.Error())
		}
	}
	s, err := bubblewrap.Start(bwrap, l.plan.Sandbox, l.network(l.plan.Egress), l.as, secrets)
	if err != nil {
		return nil, err
	}
	l.words = stderr.Begin(s.Stderr, l.log, l.pfard.search)
	if err := connect(s); err != nil {
		s.Kill()
		l.words.Finish(stopSearch)
		return nil, err
	}
	return s, nil
}

// prepareLauncher reads what the unit was given. An error of pfard's that may not come again wraps attach.ErrLater.
func prepareLauncher(ctx context.Context, o options) (*launcher, units.Secrets, error) {
	none := units.Secrets{}
	fds, err := units.Descriptors()
	if err != nil {
		return nil, none, err
	}
	raw, err := units.Credential("plan")
	if err != nil {
		return nil, none, err
	}
	l := &launcher{runtime: os.Getenv("RUNTIME_DIRECTORY"), options: o}
	if err := json.Unmarshal(raw, &l.plan); err != nil {
		return nil, none, fmt.Errorf("reading the plan: %w", err)
	}
	l.shown.Label = l.plan.Gateway.Label
	if l.plan.Fault != "" {
		return nil, none, errors.New(l.plan.Fault)
	}
	l.log = stderr.NewLog(l.plan.Name, l.plan.Gateway.Session, func() {
		_ = notify([]string{set(units.NotifyLogFull, "1")})
	})
	if l.runtime == "" {
		return nil, none, errors.New("RUNTIME_DIRECTORY is not set")
	}
	if err := lock(filepath.Join(l.runtime, "lock")); err != nil {
		return nil, none, err
	}
	l.history = readHistory(l.runtime)
	l.history.Remote = l.plan.Sandbox.Remote != "" || l.plan.Sandbox.Attached != ""
	secrets, err := readSecrets(l.plan)
	if err != nil {
		return nil, none, err
	}
	gateway, err := l.begin(ctx, raw, fds)
	if err != nil {
		return nil, none, err
	}
	if !l.plan.Sandbox.Once {
		l.gateway, err = gatewayConn(gateway)
	}
	return l, secrets, err
}

// begin begins the conversation with pfard, and returns what is to become the connection to the gateway.
func (l *launcher) begin(ctx context.Context, plan []byte, fds map[string][]*os.File) (gateway []*os.File, err error) {
	if l.attach != "" {
		l.takeStaged(filepath.Dir(l.attach))
		l.pfard, gateway, err = attachTo(ctx, l.attach, units.Digest(plan), l.news)
		return gateway, err
	}
	f := fds[units.FDPfard]
	if len(f) != 1 {
		return nil, fmt.Errorf("want one descriptor named %q, got %d", units.FDPfard, len(f))
	}
	l.pfard, err = passedAttachment(f[0])
	return fds[units.FDGateway], err
}

// readSecrets returns all that the plan names, or what is missing of it. systemd starts the unit also if pfard ended as
// it was handing them over, with what had come by then.
func readSecrets(p plan.Plan) (units.Secrets, error) {
	var s units.Secrets
	raw, err := units.Credential(units.CredentialSecrets)
	if err != nil {
		return s, fmt.Errorf("%w: %w", attach.ErrLater, err)
	}
	err = json.Unmarshal(raw, &s)
	clear(raw)
	if err != nil {
		// The decoder's words may quote one.
		return s, fmt.Errorf("%w: reading the server's credentials: not what pfard writes", attach.ErrLater)
	}
	for _, c := range p.Credentials {
		if len(s.Values[c.Name]) == 0 && len(s.Missing) == 0 {
			return s, fmt.Errorf("reading the server's credentials: %q is empty", c.Name)
		}
	}
	brokered := slices.ContainsFunc(p.Sandbox.Mounts, func(m sandbox.Mount) bool { return m.Authority })
	if brokered && len(s.Authority) == 0 && len(s.Missing) == 0 {
		return s, errors.New("reading the server's credentials: one is brokered, " +
			"and the certificate of the bridge's authority is missing")
	}
	return s, nil
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
	c, err := packet.FromFile(files[0])
	if err != nil {
		return nil, fmt.Errorf("connecting to the gateway: %w", err)
	}
	return &handover.Conn{Conn: c}, nil
}

// connect gives the server its cgroup, its way out and its client, and then lets it run.
func (l *launcher) connect(s *bubblewrap.Process) error {
	if err := l.confine(s); err != nil {
		return err
	}
	hello := handover.Hello{Name: l.plan.Gateway.Name, Session: l.plan.Gateway.Session}
	if err := l.gateway.Send(handover.Message{Hello: &hello}, s.Stdin, s.Stdout); err != nil {
		return fmt.Errorf("%w: %w", errGatewayLeft, err)
	}
	// Without these copies the server sees the end of its stdin as soon as the gateway closes it.
	s.Stdin.Close()
	s.Stdout.Close()
	return s.Release()
}

// confine gives the server its cgroup and its way out.
func (l *launcher) confine(s *bubblewrap.Process) error {
	placed := make(chan error, 1)
	go func() { // while the process prepares its network, unless it waits for its ids
		err := l.place(s.PID())
		if err == nil {
			s.Mapped()
		} else {
			s.End() // or it would wait for ever
		}
		placed <- err
	}()
	sockets, err := s.Sockets()
	if err == nil && len(s.Shared) > 0 {
		l.notify(map[string]string{units.NotifyShared: strings.Join(s.Shared, "; ")})
	}
	if err == nil && len(sockets) > 0 {
		err = l.sendSockets(sockets)
	}
	if perr := <-placed; perr != nil {
		err = perr
	}
	return err
}

// sendSockets gives the namespace's sockets to whoever starts the bridge: the service manager keeps them, or pfard
// where that is systemd, which would not start another unit for them.
func (l *launcher) sendSockets(sockets []*os.File) error {
	if l.pfard.unit() {
		l.pfard.keep(sockets)
		return nil
	}
	defer attach.CloseAll(sockets)
	return notify([]string{"FDSTORE=1", set("FDNAME", units.FDEgress)}, sockets...)
}

// place asks pfard to put bwrap into its cgroup while it is still one process that has read nothing.
func (l *launcher) place(pid int) error {
	m, err := l.pfard.ask(attach.Message{Place: &attach.Place{PID: pid}})
	if err != nil {
		return fmt.Errorf("asking for a cgroup: %w", err)
	}
	if m.Placed == nil {
		return errors.New("asking for a cgroup: pfard answered something else")
	}
	switch {
	case m.Placed.Error == "":
	case m.Placed.Later:
		return fmt.Errorf("%w: placing the server in its cgroup: %s", attach.ErrLater, m.Placed.Error)
	default:
		return fmt.Errorf("placing the server in its cgroup: %s", m.Placed.Error)
	}
	l.notify(map[string]string{units.NotifyLimits: m.Placed.How, units.NotifyVersion: units.Version()})
	return nil
}

// oomKilled asks how the server's cgroup ended. The service's own cgroup, where systemd would see it, is another one.
func (l *launcher) oomKilled() bool {
	m, err := l.pfard.ask(attach.Message{Ended: true})
	return err == nil && m.End != nil && m.End.OOM
}

// supervise waits for whatever comes first: the operator's stop, the server's end, or the gateway's.
func (l *launcher) supervise(ctx context.Context, s *bubblewrap.Process) int {
	messages := make(chan handover.Message)
	lost := make(chan error, 1)
	go func() { lost <- l.receive(messages) }()
	defer rootfs.Follow(s.Live, func(err error) {
		l.log.Say(fmt.Sprintf("pfar-sandbox: %v; files that the machine replaces look as before until a restart, ignoring",
			err))
	})()
	for {
		select {
		case <-ctx.Done():
			l.stop(s)
			return 0
		case err := <-s.Exited():
			l.words.Finish(endSearch)
			if ctx.Err() != nil { // it ended because it was told to, before this process was told
				l.state(units.StateStopping, "stopping")
				return 0
			}
			if l.gateway.HungUp() { // before the server ended: it is the end of its stdin that it ended by
				l.state(units.StateStopping, gatewayLeft)
				return units.ExitGateway
			}
			m := l.failed(messages, lost, l.history.lastWord(err))
			if m.Unauthorized && l.history.Remote {
				return l.waitForLogin(ctx, m)
			}
			l.history.learned(m, !l.ready.IsZero())
			return l.crashed(cmp.Or(m.Failed, bubblewrap.ExitWords(err)), bubblewrap.WasKilled(err))
		case m := <-messages:
			if m.Failed != "" {
				l.stop(s)
				if m.Unauthorized && l.history.Remote {
					return l.waitForLogin(ctx, m)
				}
				l.history.learned(m, !l.ready.IsZero())
				return l.crashed(m.Failed, s.EndedKilled())
			}
			l.served(m.Ready)
		case err := <-l.pfard.ended():
			l.log.Say(fmt.Sprintf("pfar-sandbox: pfard does not take this server up again: %v", err))
			l.stop(s)
			return again(ctx)
		case err := <-lost:
			l.state(units.StateStopping, gatewayLeft)
			s.Stop(func() { l.gateway.Close() })
			l.words.Finish(stopSearch)
			if err != nil && !errors.Is(err, io.EOF) {
				l.log.Say(fmt.Sprintf("pfar-sandbox: %v", err))
			}
			return units.ExitGateway
		}
	}
}

// failed returns the message by which the gateway has given the server up, an empty one if it has not. The gateway
// closes the server's stdin then, so the server may end before its message has been read: what was sent before is read
// to its end. If late is not 0, the message is waited for.
func (l *launcher) failed(messages <-chan handover.Message, lost <-chan error, late time.Duration) handover.Message {
	over := time.NewTimer(late)
	defer over.Stop()
	for {
		select {
		case <-over.C:
			_ = l.gateway.CloseRead()
		case m := <-messages:
			if m.Failed != "" {
				return m
			}
		case <-lost:
			return handover.Message{}
		}
	}
}

const gatewayLeft = "the gateway went away"

var errGatewayLeft = errors.New(gatewayLeft)

func (l *launcher) receive(messages chan<- handover.Message) error {
	for {
		m, files, err := l.gateway.Receive()
		if err != nil {
			return err
		}
		for _, f := range files {
			f.Close() // the gateway has nothing to send
		}
		l.keeper.take(m)
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
			l.log.Say("pfar-gateway: not served: " + why)
		}
	}
	vars := map[string]string{
		units.NotifyState: units.StateRunning, units.NotifyTools: fmt.Sprint(r.Tools),
		units.NotifyCrashes: fmt.Sprint(l.history.InRow),
	}
	if b, err := json.Marshal(r.Speech); err == nil {
		vars[units.NotifySpeech] = string(b)
	}
	status := fmt.Sprintf("%d tools", r.Tools)
	if r.Tools == 1 {
		status = "1 tool"
	}
	for text, n := range []int{r.Held, r.Unreviewed, r.Dropped, r.Apart} {
		if n > 0 {
			status += fmt.Sprintf(notServed[text], n)
		}
	}
	if r.Server != "" {
		status += ", " + r.Server
	}
	vars["STATUS"] = verified(r.Verification, l.plan.Gateway.Trial, vars, status)
	if first {
		vars["READY"] = "1"
	}
	l.notify(vars)
}

var notServed = [...]string{
	", %d held back until you accept them (pfar pins)", ", %d unreviewed (pfar pins)",
	", %d that cannot be served (see its log)", ", %d resources not on /mcp (see its log)",
}

func (l *launcher) stop(s *bubblewrap.Process) {
	l.state(units.StateStopping, "stopping")
	l.notify(map[string]string{"STOPPING": "1"})
	s.Stop(func() { _ = l.gateway.Send(handover.Message{Stopping: true}) })
	l.words.Finish(stopSearch)
}

// How long the last words of a server wait for pfard. Of one that has ended by itself they say why, and pfard may be
// about to be started again; one that is stopped has its time (TimeoutStopSec=).
const (
	endSearch  = 5 * time.Second
	stopSearch = time.Second
)

// crashed records that the server ended by itself and says what the runner is to do. Only for one that was killed is
// the cgroup asked: that knows no more than that something in it was killed for memory at some time.
func (l *launcher) crashed(why string, killed bool) int {
	if killed && l.oomKilled() {
		why = "killed by the kernel: out of its memory_limit"
	}
	if cause := l.log.Cause(); cause != "" {
		why += ": " + cause
	}
	if l.plan.Gateway.Session != "" { // it is not started again: there is nothing to count
		l.state(units.StateFailed, why)
		return l.sessionOver(why)
	}
	var up time.Duration
	if !l.ready.IsZero() {
		up = time.Since(l.ready)
	}
	l.history = l.history.crashed(time.Now(), up, why)
	if err := l.history.write(l.runtime); err != nil {
		l.log.Say("pfar-sandbox: " + err.Error())
	}
	what := " crashed: "
	if l.history.Remote {
		what = " is offline: "
	}
	l.log.Say("pfar-sandbox: server " + l.plan.Name + what + l.history.words())
	l.state(l.history.state(), l.history.words())
	return l.history.exitCode()
}

// sessionOver returns the exit code of the process of a session, which nobody starts again.
func (l *launcher) sessionOver(why string) int {
	l.log.Say("pfar-sandbox: the session is over: " + why)
	if l.pfard.unit() {
		return 0 // or systemd would start it again
	}
	return units.ExitCrashed
}

// cannotStart ends a start: for good, if another try would not mend it (no sandbox, no server: there is no weaker
// fallback).
func (l *launcher) cannotStart(err error) (int, error) {
	state, code := units.StateFailed, units.ExitDisabled
	// It is started again after what is no fault of the server's.
	if errors.Is(err, attach.ErrLater) || errors.Is(err, errGatewayLeft) ||
		errors.Is(err, rootfs.ErrReplaced) || errors.Is(err, bubblewrap.ErrDoor) {
		state, code = units.StateStarting, units.ExitGateway
	}
	l.state(state, err.Error())
	if mark := units.SessionMark(l.plan.Gateway.Session); mark != "" {
		err = fmt.Errorf("%s%w", mark, err) // for the server's log, where others write as well
	}
	return code, err
}
