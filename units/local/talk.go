package local

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// Talks returns why no chat can be held; nil: chats are held. pfar-chat speaks with pfard and the gateway as the user
// who runs both.
func (i *Inspectors) Talks() error {
	if os.Getuid() == 0 {
		return errors.New("pfar up holds chats for an ordinary user, not for root")
	}
	return nil
}

// conversation is the process that talks with the owner of a chat, as long as the chat is declared. If it ends, another
// one follows. Its way is the socket of pfar-egress, which has the token of the account and a network.
func (e *examiner) conversation() *service {
	again, began := new(impatience), time.Time{}
	name := "pfar-chat@" + e.plan.Inspector.Name
	return &service{
		name: name, dirs: e.r.dirs, log: e.r.cfg.Log, timeout: stopTimeout,
		restart: func(code int) (time.Duration, bool) {
			again.ended(time.Since(began))
			return again.again(code)
		},
		prepare: func() (spec, error) {
			began = time.Now()
			log := e.r.dirs.log(units.ChatLog)
			notices, err := dup(e.notices)
			if err != nil {
				return spec{}, err
			}
			states := control.ChatStates(control.Dirs{State: e.r.cfg.State})
			return spec{
				name: name, log: log, credentials: map[string][]byte{"plan": e.raw},
				descriptors: []descriptor{{units.FDInspect, notices}},
				argv: []string{
					filepath.Join(e.r.cfg.Bin, "pfar-chat"), "--way", e.socket(), "--control", e.r.cfg.Gateway.Control,
					"--gateway", e.r.cfg.Gateway.Unix.Addr().String(),
					"--state", filepath.Join(states, e.plan.Inspector.Name),
				},
			}, rotate(log, units.LogSegment)
		},
		notice: func(m notification) {
			m.close()
			e.r.keepShort(units.ChatLog, m)
		},
		changed: func(p phase, _ *process, code int) {
			if p == autoRestart {
				e.r.cfg.Log.Warn("a chat has ended, beginning it again", "chat", e.plan.Inspector.Name, "status", code,
					"log", e.r.dirs.log(units.ChatLog))
			}
		},
	}
}
