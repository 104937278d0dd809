package local

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/bridge"
)

// listen takes the sockets from inside a server's network namespace and starts the egress bridge at the first sign of
// life on one of them, once that of an earlier run has ended: both have the same notify socket, credentials and files.
func (s *server) listen(sockets []*os.File) {
	watched, err := dup(s.monitor)
	if err != nil {
		s.r.cfg.Log.Warn("nobody can watch a bridge, ignoring", "server", s.name, "error", err)
	} else {
		sockets = append(sockets, watched)
	}
	previous := s.retireBridge()
	s.mu.Lock()
	s.bridge = activate(sockets, previous, s.bridgeService)
	s.mu.Unlock()
}

// retireBridge closes the bridge; the channel is closed when nothing is left of it, nor of those before it.
func (s *server) retireBridge() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	bridge, before := s.bridge, s.retired
	if bridge == nil {
		return before
	}
	gone := make(chan struct{})
	s.bridge, s.retired = nil, gone
	go func() {
		defer close(gone)
		bridge.close()
		if before != nil {
			<-before
		}
	}()
	return gone
}

// listenMonitor makes the socket by which the operator watches the bridge. It is there as long as the server is
// declared to run, whatever its processes do.
func (s *server) listenMonitor() error {
	path := s.r.dirs.monitor(s.name)
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) { // of a pfard that was killed
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("making the monitor's socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close() // the copy stays
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("making the monitor's socket: %w", err)
	}
	s.monitor, err = l.File()
	return err
}

// bridgeService is the egress bridge, activated by its sockets. When it ends, for whatever reason, the next connection
// starts it again.
func (s *server) bridgeService(a *activation) *service {
	name := bridgeName(s.name)
	return &service{
		name: name, dirs: s.r.dirs, log: s.r.cfg.Log, timeout: stopTimeout, restart: never,
		prepare: func() (spec, error) {
			program, binds, err := s.r.program("pfar-egress", name, s.bridgeUser)
			if err != nil {
				return spec{}, err
			}
			descriptors, err := bridgeDescriptors(a.sockets)
			if err != nil {
				return spec{}, err
			}
			if descriptors, err = s.converse(descriptors); err != nil {
				return spec{}, err
			}
			o := s.order.Load()
			credentials := map[string][]byte{"plan": o.raw}
			if s.r.cfg.Upstream != nil {
				credentials[units.CredentialUpstream] = s.r.cfg.Upstream
			}
			if hidden := s.r.cfg.Secrets.Hides(o.plan); hidden != nil {
				credentials[units.CredentialRedaction], _ = hidden()
			}
			return spec{
				argv: []string{program}, env: roots(os.Environ()), user: s.bridgeUser, binds: binds, descriptors: descriptors, credentials: credentials,
				runtimeDir: s.r.dirs.runtime(name), log: s.r.dirs.log(s.plan.Name),
			}, nil
		},
		notice:  s.bridgeNotice,
		changed: func(phase, *process, int) {},
	}
}

// converse begins a conversation with the bridge, and adds the bridge's end of it. It takes the descriptors over.
func (s *server) converse(descriptors []descriptor) (_ []descriptor, err error) {
	ours, theirs, err := attach.Pair("pfard")
	if err == nil {
		descriptors = append(descriptors, descriptor{units.FDPfard, theirs})
		err = s.talk(ours)
	}
	if err != nil {
		for _, d := range descriptors {
			d.file.Close()
		}
		return nil, fmt.Errorf("beginning a conversation with a bridge: %w", err)
	}
	return descriptors, nil
}

// talk converses with a bridge over one end of a connection, which it takes over. When it returns, the bridge has been
// sent its secrets.
func (s *server) talk(conn *attach.Conn) error {
	talk, over := s.r.cfg.Bridges.Begin(s.name, s.plan.Name)
	material, err := talk.First(s.brokered)
	if material != nil {
		err = conn.Send(attach.Message{Broker: true}, material)
		material.Close()
	}
	if err != nil {
		over()
		conn.Close()
		return err
	}
	s.mu.Lock()
	before := s.bridged
	s.bridged = conn
	s.mu.Unlock()
	if before != nil {
		before.Close()
	}
	var hide attach.Redaction
	if s.r.cfg.Secrets.Hides(s.order.Load().plan) != nil {
		hide = func() ([]byte, <-chan struct{}) { return s.r.cfg.Secrets.Hides(s.order.Load().plan)() }
	}
	go talk.Send(conn, s.brokered, hide, func(err error) {
		s.r.cfg.Log.Warn("telling a bridge of new secrets, ignoring", "server", s.name, "error", err)
	})
	go func() {
		defer over()
		defer conn.Close()
		talk.Hear(conn, bridge.Hearer{Refused: s.bridgeRefused, Newest: s.showRefusal})
	}()
	return nil
}

// brokered is bridge.Secrets of the plan by which processes are started now.
func (s *server) brokered() (*os.File, error) { return s.r.cfg.Secrets.Brokered(s.order.Load().plan) }

func (s *server) bridgeRefused(r egress.Refusal) {
	s.r.cfg.Events(units.BridgeRefused{Server: s.plan.Name, Session: s.plan.Gateway.Session, Refusal: r})
}

func (s *server) showRefusal(r egress.Refusal) {
	s.mu.Lock()
	s.update.Refusal = r
	update := s.update
	s.mu.Unlock()
	s.r.cfg.Events(update)
}

func bridgeDescriptors(sockets []*os.File) ([]descriptor, error) {
	var all []descriptor
	for _, f := range sockets {
		copied, err := dup(f)
		if err != nil {
			for _, d := range all {
				d.file.Close()
			}
			return nil, err
		}
		name := units.FDEgress
		if isUnix(f) {
			name = units.FDMonitor
		}
		all = append(all, descriptor{name, copied})
	}
	return all, nil
}

func isUnix(f *os.File) bool {
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	domain := 0
	_ = raw.Control(func(fd uintptr) { domain, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN) })
	return domain == unix.AF_UNIX
}

func (s *server) bridgeNotice(m notification) {
	m.close()
	if m.vars[units.NotifyLogFull] != "" || m.vars["READY"] != "" { // what earlier bridges wrote counts as well
		s.rotateLog()
	}
}
