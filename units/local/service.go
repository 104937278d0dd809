package local

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
)

// phase is where a service is in its life, in systemd's words.
type phase int

const (
	inactive     phase = iota // not started, or stopped
	activating                // process runs, READY=1 not yet seen
	active                    // READY=1 seen
	autoRestart               // ended, will be started again
	failed                    // ended, will not
	deactivating              // told to end
)

// service keeps one process running, as systemd does with Type=notify and Restart=on-failure.
type service struct {
	name      string
	dirs      dirs
	log       *slog.Logger
	prepare   func() (spec, error)                 // called for each start; descriptors are made anew
	notice    func(notification)                   // called for each message of the main process or what it forked
	changed   func(p phase, m *process, code int)  // called after each change, from a goroutine of the service
	restart   func(code int) (time.Duration, bool) // whether to start again after this exit code, and when
	timeout   time.Duration                        // from SIGTERM to SIGKILL
	store     *store                               // what its process may keep for the next one; nil: nothing
	unstarted error                                // why the last process could not be started
	served    time.Time                            // when a process has ended that was ready, or the first was started

	stopOnce sync.Once
	stopping chan struct{}
	done     chan struct{}
}

// notStarted is in place of the exit code of a process that could not be started.
const notStarted = -2

// onFailure restarts after any exit but 0 and ExitDisabled; a fault of the gateway's costs no waiting.
func onFailure(code int) (time.Duration, bool) {
	switch code {
	case 0, units.ExitDisabled:
		return 0, false
	case units.ExitGateway:
		return 100 * time.Millisecond, true
	}
	return units.RestartSec * time.Second, true
}

// start runs the service until stop, or until its process ends and is not to be started again.
func (s *service) start() {
	s.stopping, s.done, s.served = make(chan struct{}), make(chan struct{}), time.Now()
	go func() {
		defer close(s.done)
		for s.once() {
		}
		if s.store != nil {
			s.store.clear()
		}
	}()
}

// stop ends the service and waits until nothing is left of its process.
func (s *service) stop() {
	s.stopOnce.Do(func() { close(s.stopping) })
	<-s.done
}

// once runs one process from start to end and reports whether to run another.
func (s *service) once() bool {
	p, socket, err := s.spawn()
	if err != nil { // for want of what other processes of this user hold, and may give back
		if s.unstarted == nil {
			s.log.Error("starting "+s.name, "error", err)
		}
		s.unstarted = err
		return s.after(notStarted, false)
	}
	s.unstarted = nil
	s.changed(activating, p, 0)
	messages, ready := make(chan struct{}), false
	go func() {
		defer close(messages)
		ready = s.follow(socket, p)
	}()
	stopped := false
	select {
	case <-p.exited:
	case <-s.stopping:
		stopped = true
		s.changed(deactivating, p, 0)
		s.terminate(p)
	}
	_ = socket.conn.CloseRead()             // what it forked may run on, and is not heard any more
	socket.conn.SetReadDeadline(time.Now()) // what it said last is still in the socket, and is read
	<-messages
	socket.close()
	_ = removeCredentials(s.dirs.credentials(s.name))
	if ready {
		s.served = time.Now()
	} else if s.store != nil && time.Since(s.served) > s.store.patience {
		s.store.clear()
	}
	return s.after(p.code, stopped)
}

func (s *service) spawn() (*process, *notifySocket, error) {
	sp, err := s.prepare()
	if err != nil {
		return nil, nil, err
	}
	sp.name, sp.notify = s.name, s.dirs.notify(s.name)
	socket, err := listenNotify(sp.notify, sp.user)
	if err != nil {
		sp.close()
		return nil, nil, err
	}
	if s.store != nil {
		socket.stores = true
		kept, err := s.store.descriptors()
		if err != nil {
			socket.close()
			sp.close()
			return nil, nil, err
		}
		sp.descriptors = append(sp.descriptors, kept...)
	}
	p, err := spawn(sp, s.dirs.credentials(s.name))
	if err != nil {
		socket.close()
		return nil, nil, err
	}
	return p, socket, nil
}

// after says what comes after a process has ended, and waits until it is time for another.
func (s *service) after(code int, stopped bool) bool {
	delay, again := s.restart(code)
	switch {
	case stopped || !again && code == 0:
		s.changed(inactive, nil, code)
		return false
	case !again:
		s.changed(failed, nil, code)
		return false
	}
	s.changed(autoRestart, nil, code)
	select {
	case <-time.After(delay):
		return true
	case <-s.stopping:
		s.changed(inactive, nil, code)
		return false
	}
}

// terminate is SIGTERM to the main process alone (KillMode=mixed: bwrap must not get one while it sets up), and SIGKILL
// to its whole process group if it does not end in time.
func (s *service) terminate(p *process) {
	_ = unix.Kill(p.pid, unix.SIGTERM)
	select {
	case <-p.exited:
		return
	case <-time.After(s.timeout):
		s.log.Warn("killing "+s.name+": it did not end in time", "after", s.timeout)
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		<-p.exited
	}
}

// follow passes on messages that come from the process itself: anybody could write to the socket who got at its path.
// It reports whether the process was ready.
func (s *service) follow(socket *notifySocket, p *process) (ready bool) {
	heard, sent := false, false
	for {
		m, err := socket.receive()
		if err != nil {
			return ready
		}
		if m.pid != p.pid {
			m.close()
			continue
		}
		if !heard { // it has read them before it speaks; a killed pfard could not remove them any more
			heard = true
			_ = removeCredentials(s.dirs.credentials(s.name))
		}
		if s.store != nil {
			if err := s.store.heed(&m); err != nil {
				s.log.Warn("killing "+s.name+": it stores what it should not", "pid", p.pid, "error", err)
				m.close()
				_ = unix.Kill(-p.pid, unix.SIGKILL)
				continue
			}
		} else if len(m.files) > 0 || m.odd {
			// One set of sockets a process, from a launcher: with more, whoever took a launcher over could exhaust this one.
			if sent || m.odd || m.vars["FDSTORE"] != "1" {
				s.log.Warn("killing "+s.name+": it sends descriptors that it should not", "pid", p.pid)
				m.close()
				_ = unix.Kill(-p.pid, unix.SIGKILL)
				continue
			}
			sent = true
		}
		s.notice(m)
		if m.vars["READY"] == "1" && !ready {
			ready = true
			s.changed(active, p, 0)
		}
	}
}

// dirs are the places of the runner's own files.
type dirs struct{ run, state string }

func (d dirs) credentials(unit string) string { return filepath.Join(d.run, "credentials", unit) }
func (d dirs) notify(unit string) string      { return filepath.Join(d.run, "notify", unit) }
func (d dirs) runtime(unit string) string     { return filepath.Join(d.run, "runtime", unit) }
func (d dirs) monitor(server string) string   { return filepath.Join(d.run, "egress", server+".sock") }
func (d dirs) binds(unit string) string       { return filepath.Join(d.run, "binds", unit) }
func (d dirs) home(server string) string      { return filepath.Join(d.state, "home", server) }
func (d dirs) pins() string                   { return filepath.Join(d.state, "pins") }
func (d dirs) gateway() string                { return filepath.Join(d.state, "gateway") }
func (d dirs) log(unit string) string         { return filepath.Join(d.state, "log", unit+".log") }

// make creates them. Those that hold other users' files must let them pass, and no more.
func (d dirs) make() error {
	for _, dir := range []struct {
		path string
		mode os.FileMode
	}{
		{d.run, 0o711}, {d.state, 0o711},
		{filepath.Join(d.run, "credentials"), 0o711}, {filepath.Join(d.run, "notify"), 0o711},
		{filepath.Join(d.run, "runtime"), 0o711}, {filepath.Join(d.run, "binds"), 0o711},
		{filepath.Join(d.run, "egress"), 0o700}, {units.InspectDir(d.run), 0o711}, {filepath.Join(d.state, "home"), 0o711},
		{filepath.Join(d.state, "undo"), 0o711}, {filepath.Join(d.state, "log"), 0o700},
	} {
		if err := os.MkdirAll(dir.path, dir.mode); err != nil {
			return fmt.Errorf("making %q: %w", dir.path, err)
		}
		if err := os.Chmod(dir.path, dir.mode); err != nil {
			return err
		}
	}
	return nil
}

// never does not.
func never(int) (time.Duration, bool) { return 0, false }

const stopTimeout = 10 * time.Second // a stop takes 8 s at most

func launcherName(instance string) string { return "pfar-mcp@" + instance }

func bridgeName(instance string) string { return "pfar-egress@" + instance }
