package local

import (
	"os"
	"strings"

	"github.com/pfar/pfar/units"
)

// listen takes the listener from inside a server's network namespace and starts the egress bridge at the first
// connection. A listener of an earlier run goes away with its bridge.
func (s *server) listen(listener *os.File) {
	s.mu.Lock()
	old := s.bridge
	s.bridge = activate(listener, s.r.cfg.Log, s.bridgeService)
	s.mu.Unlock()
	if old != nil {
		go old.close()
	}
}

// bridgeService is the egress bridge, activated by its listener. When it ends, for whatever reason, the next connection
// starts it again.
func (s *server) bridgeService(a *activation) *service {
	name := bridgeName(s.plan.Name)
	return &service{
		name: name, dirs: s.r.dirs, log: s.r.cfg.Log, timeout: stopTimeout, restart: never,
		prepare: func() (spec, error) {
			program, binds, err := s.r.program("pfar-egress", name, s.bridgeUser)
			if err != nil {
				return spec{}, err
			}
			listener, err := a.dup()
			if err != nil {
				return spec{}, err
			}
			return spec{
				argv: []string{program}, user: s.bridgeUser, binds: binds,
				descriptors: []descriptor{{units.FDEgress, listener}},
				credentials: map[string][]byte{"plan": s.credentials["plan"]},
				log:         s.r.dirs.log(s.plan.Name),
			}, nil
		},
		notice:  s.bridgeNotice,
		changed: func(phase, *process, int) {},
	}
}

func (s *server) bridgeNotice(m notification) {
	m.close()
	status, ok := m.vars["STATUS"]
	if !ok || !strings.HasPrefix(status, "refused ") {
		return
	}
	s.mu.Lock()
	s.update.Refusal = status
	update := s.update
	s.mu.Unlock()
	s.r.cfg.Changed(update)
}
