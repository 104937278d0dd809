package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// server is one server's launcher and egress bridge, or those of a single session.
type server struct {
	r          *Runner
	name       string                // of the instance
	plan       plan.Plan             // by which it was made
	order      atomic.Pointer[order] // by which its processes are started
	secrets    []byte                // of the launcher
	user       identity              // of the launcher and the sandboxed process
	bridgeUser identity
	inside     subordinate // of the sandboxed process alone; zero: it runs as its launcher does
	argv       string      // the launcher's program
	binds      []bind
	launcher   *service
	monitor    *os.File // listener for those who watch the bridge

	mu      sync.Mutex
	update  units.Update
	bridge  *activation
	bridged *attach.Conn // to the bridge that runs; nil: none has

	retired   <-chan struct{} // closed when the last bridge that was closed is gone; nil: there was none
	launching                 // what is known of the launcher that runs
}

// launching is what is known of a launcher that runs.
type launching struct {
	started chan struct{} // closed once its pid is known
	conn    *attach.Conn  // to it; nil: there is none
}

// Try has the launcher of a server that is offline try it now.
func (r *Runner) Try(name string) {
	r.mu.Lock()
	s := r.servers[name]
	r.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Send(attach.Message{News: attach.News{Try: true}})
	}
}

func (r *Runner) newServer(name string, p plan.Plan, given units.Secrets) (*server, error) {
	s := &server{r: r, name: name, plan: p}
	session := p.Gateway.Session
	var err error
	if s.user, err = r.users.acquire(launcherName(name)); err != nil {
		return nil, err
	}
	if s.bridgeUser, err = r.users.acquire(bridgeName(name)); err != nil {
		return nil, err
	}
	if r.subs != nil && asOthers(p) {
		if s.inside, err = r.subs.acquire(name); err != nil {
			return nil, err
		}
	}
	s.update = units.Update{Server: p.Name, Session: session, State: units.StateStarting, UID: s.uid()}
	if err := s.makeHome(); err != nil {
		return nil, err
	}
	if p.Undo != nil {
		if err := makeHome(p.Undo.Dir, s.user); err != nil {
			return nil, err
		}
	}
	if err := s.stageMounts(); err != nil {
		return nil, err
	}
	if err := s.startBy(p, s.plan); err != nil {
		return nil, err
	}
	if s.secrets, err = json.Marshal(given); err != nil {
		return nil, err
	}
	if err := s.makeRuntime(); err != nil {
		return nil, err
	}
	if err := s.listenMonitor(); err != nil {
		return nil, err
	}
	s.launcher = &service{
		name: launcherName(name), dirs: r.dirs, log: r.cfg.Log, timeout: stopTimeout, restart: onFailure,
		prepare: s.prepare, notice: s.notice, changed: s.changed,
	}
	if session != "" {
		s.launcher.restart = never
		s.rotateLog() // none of many short sessions writes enough to ask for it
	}
	return s, nil
}

// uid returns the user id of the sandboxed process on the host.
func (s *server) uid() int {
	if s.inside != (subordinate{}) {
		return s.inside.uid
	}
	return s.user.uid()
}

// arguments are those of the launcher's command line.
func (s *server) arguments() []string {
	if s.inside == (subordinate{}) {
		return nil
	}
	return []string{"--ids", s.inside.String()}
}

// makeHome makes the private home of a server with state = true, its own from one run to the next; or the directory in
// which a program that runs once leaves what it makes.
func (s *server) makeHome() error {
	if s.plan.Sandbox.Once {
		return makeHome(s.plan.PrivateHome(), s.user)
	}
	if !s.plan.State {
		return nil
	}
	return makeHome(s.r.dirs.home(s.plan.Name), s.user)
}

// MakeOwn makes a directory of a server whose processes run as the user id, and gives it all that is in there. A file
// in its place stays one: a program that runs once may leave no more than that.
func MakeOwn(dir string, uid int) error {
	return makeHome(dir, identity{id: uid, set: uid != os.Getuid()})
}

func makeHome(home string, user identity) error {
	if st, err := os.Lstat(home); err != nil || !st.Mode().IsRegular() {
		if err := os.MkdirAll(home, 0o700); err != nil {
			return fmt.Errorf("making the state directory: %w", err)
		}
	}
	if err := own(home, user); err != nil {
		return fmt.Errorf("giving the state directory to user %d: %w", user.uid(), err)
	}
	return nil
}

// makeRuntime makes RUNTIME_DIRECTORY of launcher and bridge. What an earlier run left in it is forgotten: the operator
// starts anew.
func (s *server) makeRuntime() error {
	for _, unit := range []struct {
		name string
		user identity
		past []string
	}{
		{launcherName(s.name), s.user, []string{"crashes"}},
		{bridgeName(s.name), s.bridgeUser, []string{"leases", "connections"}},
	} {
		dir := s.r.dirs.runtime(unit.name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the runtime directory: %w", err)
		}
		if err := own(dir, unit.user); err != nil {
			return err
		}
		for _, file := range unit.past {
			if err := os.Remove(filepath.Join(dir, file)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// stageMounts makes reachable for the server's user what pfard may reach and the plan shows: as root only.
func (s *server) stageMounts() error {
	argv, binds, err := s.r.program("pfar-sandbox", launcherName(s.name), s.user)
	if err != nil {
		return err
	}
	s.argv, s.binds = argv, binds
	if !s.user.set {
		return nil
	}
	st := stage{dir: s.r.dirs.binds(launcherName(s.name)), binds: binds}
	s.plan.Sandbox.Mounts = slices.Clone(s.plan.Sandbox.Mounts)
	if err := s.stageUndo(&st); err != nil {
		return err
	}
	for i, m := range s.plan.Sandbox.Mounts {
		if !m.ReadOnly() && m.Kind != sandbox.Bind || units.Reachable(m.Source) {
			continue
		}
		staged, err := st.add(m.Source, m.ReadOnly())
		if err != nil {
			return err
		}
		s.plan.Sandbox.Mounts[i].Source = staged
		s.plan.Undo.Found(m.Source, staged)
	}
	s.binds = st.binds
	return nil
}

// stageUndo makes what is kept reachable for the launcher.
func (s *server) stageUndo(st *stage) error {
	if s.plan.Undo == nil {
		return nil
	}
	u := *s.plan.Undo
	u.Folders = slices.Clone(u.Folders)
	s.plan.Undo = &u
	if units.Reachable(u.Dir) {
		return nil
	}
	staged, err := st.add(u.Dir, false)
	u.Dir = staged
	return err
}

// prepare is the launcher's process, made anew for each start.
func (s *server) prepare() (spec, error) {
	begun, o := handover.Now(), s.order.Load()
	told := s.r.programs.Told(os.DirFS("/").(fs.ReadLinkFS), o.plan)
	var descriptors []descriptor
	if !s.plan.Sandbox.Once {
		gateway, err := handover.DialFor(s.r.cfg.Gateway.Servers.Addr().String(), handover.Message{
			Expect: &told, At: begun, Secrets: s.r.cfg.Secrets.Serial(), Proof: s.r.cfg.Secrets.Proof(o.plan),
		})
		if err != nil {
			return spec{}, err
		}
		descriptors = append(descriptors, descriptor{units.FDGateway, gateway})
	}
	ours, theirs, err := attach.Pair("pfard")
	if err != nil {
		for _, d := range descriptors {
			d.file.Close()
		}
		return spec{}, err
	}
	started := make(chan struct{})
	s.mu.Lock()
	s.started = started
	s.mu.Unlock()
	go s.place(ours, started)
	return spec{
		argv: append([]string{s.argv}, s.arguments()...), user: s.user,
		credentials: map[string][]byte{"plan": o.raw, units.CredentialSecrets: s.secrets},
		descriptors: append(descriptors, descriptor{units.FDPfard, theirs}),
		makes:       true, runtimeDir: s.r.dirs.runtime(launcherName(s.name)), binds: s.binds, log: s.r.dirs.log(s.plan.Name),
	}, nil
}

// place answers what the launcher asks: to put this bwrap into its cgroup, how that ended, and what may be logged.
func (s *server) place(conn *attach.Conn, started <-chan struct{}) {
	s.talking(nil, conn)
	defer conn.Close()
	defer s.talking(conn, nil)
	ctx, over := context.WithCancel(context.Background())
	defer over()
	searches := conn.Searches(ctx, s.r.cfg.Search, attach.NewBudget())
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return // the launcher ended
		}
		if m.Search != nil {
			searches.Take(*m.Search, files)
			continue
		}
		attach.CloseAll(files)
		switch {
		case m.Place != nil:
			<-started
			how, err := s.placeProcess(m.Place.PID)
			answer := attach.Placed{How: how}
			if err != nil {
				answer = attach.Placed{Error: err.Error()}
			}
			_ = conn.Send(attach.Message{Placed: &answer})
		case m.Ended:
			_ = conn.Send(attach.Message{End: &attach.End{OOM: s.r.cfg.Limits.OOMKilled(s.name)}})
		}
	}
}

// talking takes it that the conversation with the launcher is another one, unless that is so already.
func (s *server) talking(before, now *attach.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now != nil || s.conn == before {
		s.conn = now
	}
}

func (s *server) placeProcess(pid int) (string, error) {
	s.mu.Lock()
	launcher := s.update.PID
	s.mu.Unlock()
	// The launcher runs as the server's user: it may have its own child moved, and no other process.
	if err := ChildOf(pid, launcher); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	how, err := s.r.cfg.Limits.Place(ctx, s.name, pid, s.plan.Sandbox.Limits)
	if err == nil && s.inside != (subordinate{}) {
		err = s.inside.assign(pid)
	}
	return how, err
}

// ChildOf returns an error unless pid is a child of the launcher's.
func ChildOf(pid, launcher int) error {
	if parent, err := parentOf(pid); err != nil || parent != launcher {
		return fmt.Errorf("process %d is not a child of the launcher", pid)
	}
	return nil
}

func parentOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), ") ") // comm may hold anything but this is its last occurrence for our own
	f := strings.Fields(rest)
	if !ok || len(f) < 2 {
		return 0, fmt.Errorf("reading the parent of process %d", pid)
	}
	return strconv.Atoi(f[1])
}

// notice takes the launcher's messages (package units).
func (s *server) notice(m notification) {
	if m.vars["FDSTORE"] == "1" && m.vars["FDNAME"] == units.FDEgress && len(m.files) > 0 {
		s.listen(m.files)
	} else {
		m.close()
	}
	if m.vars[units.NotifyLogFull] != "" {
		s.rotateLog()
	}
	s.mu.Lock()
	s.update.Take(m.vars)
	update := s.update
	s.mu.Unlock()
	s.r.cfg.Events(update) // which may wait for whoever waits for s.mu
}

// rotateLog is asked for by launchers and bridges: those of all sessions write to the server's one file.
func (s *server) rotateLog() {
	s.r.logs.Lock()
	defer s.r.logs.Unlock()
	if err := rotate(s.r.dirs.log(s.plan.Name), units.LogSegment); err != nil {
		s.r.cfg.Log.Warn("rotating a log, ignoring", "server", s.plan.Name, "error", err)
	}
}

// changed follows the launcher's process. Why it ended the launcher has said itself; what it cannot say is that it was
// killed.
func (s *server) changed(p phase, m *process, code int) {
	s.mu.Lock()
	u := &s.update
	switch p {
	case activating:
		u.PID, u.Tools, u.State = m.pid, 0, units.StateStarting
		close(s.started)
		u.Detail = "starting"
	case inactive, autoRestart, failed:
		s.ended(p, code)
	}
	update := *u
	s.mu.Unlock()
	if m == nil {
		s.retireBridge() // the next start brings a namespace and sockets of its own
	}
	s.r.cfg.Events(update)
}

func (s *server) ended(p phase, code int) {
	u := &s.update
	if err := s.r.cfg.Limits.Remove(s.name); err != nil {
		s.r.cfg.Log.Warn("removing a control group, ignoring", "server", s.name, "error", err)
	}
	u.PID, u.Tools, u.Limits, u.Shared, u.Version, u.Ended = 0, 0, "", "", "", p != autoRestart
	switch {
	case p == inactive:
		u.State, u.Detail = units.StateStopped, "stopped"
	case code == notStarted && p == autoRestart:
		u.State, u.Detail = units.StateBackOff, fmt.Sprintf("the launcher could not be started, trying again: %v",
			s.launcher.unstarted)
	case code == notStarted && p == failed:
		u.State, u.Detail = units.StateFailed, fmt.Sprintf("the launcher could not be started: %v", s.launcher.unstarted)
	case p == failed && u.State != units.StateFailed:
		u.State, u.Detail = units.StateFailed, fmt.Sprintf("the launcher ended with status %d; see its log", code)
	case p == autoRestart && code == units.ExitGateway: // no fault of the server's: it is on its way
		u.State = units.StateStarting
	case p == autoRestart && u.State != units.StateBackOff && u.State != units.StateOffline:
		u.State, u.Detail = units.StateBackOff, fmt.Sprintf("the launcher ended with status %d", code)
	}
}

// close stops the bridge, and then the launcher and with it the server: a server has seconds to end, and what it has
// open is cut at once. Of a remote server pfar's adapter alone runs here, which first tells it that the session is
// over.
func (s *server) close() {
	if s.plan.Sandbox.Remote == "" {
		s.closeBridge()
	}
	s.launcher.stop()
	s.closeBridge() // of a server that was about to start
	s.monitor.Close()
	_ = os.Remove(s.r.dirs.monitor(s.name))
	_ = os.RemoveAll(s.r.dirs.binds(launcherName(s.name)))
	_ = os.RemoveAll(s.r.dirs.binds(bridgeName(s.name)))
}

func (s *server) closeBridge() {
	if gone := s.retireBridge(); gone != nil {
		<-gone
	}
}
