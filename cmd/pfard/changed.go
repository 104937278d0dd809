package main

import (
	"slices"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
)

// renewal is what a server needs whose environment or files hold the earlier value of a secret: another process, once no
// request is under way. That the gateway knows, and asks for it (Sleep).
type renewal int

const (
	noRenewal   renewal = iota
	renewalDue          // the gateway is told so (OnDemand.Renews)
	renewalDone         // it is being started again, and the gateway keeps requests for it
)

// secretChanged has servers get a secret that is another one now: those that wait for it at once, those that have the
// earlier one in their environment or files when they are idle.
func (d *daemon) secretChanged(key string) {
	for _, s := range d.servers {
		before := s.started
		d.retryWaiting(s)
		if before != nil && before == s.started && !s.busy && s.renew != renewalDone && holds(*before, key) && s.status.State != control.Waiting {
			s.renew = renewalDue
			d.intents.keep(s)
		}
	}
	d.tell()
}

// holds reports whether the process of a plan has the value of a key itself.
func holds(p generator.Plan, key string) bool {
	return slices.ContainsFunc(p.Credentials, func(c generator.Credential) bool {
		return c.Key == key && c.Deliver != declaration.Brokered
	})
}

// renewed starts a server again that is idle by the gateway's word.
func (d *daemon) renewed(s *server) {
	s.renew, s.again = renewalDone, true
	d.converge(s)
	d.tell()
}

// keysInUse are those of the vault that servers use which may run.
func (d *daemon) keysInUse() (keys []string) {
	for _, s := range d.servers {
		if s.want == nil || !s.want.Enabled || s.off {
			continue
		}
		for _, c := range s.want.Credentials {
			if c.Key != "" && !slices.Contains(keys, c.Key) {
				keys = append(keys, c.Key)
			}
		}
	}
	return keys
}

// problems says in words which token sets of a server are not refreshed.
func (d *daemon) problems(s *server) (list []string) {
	if s.want == nil {
		return nil
	}
	for _, c := range s.want.Credentials {
		if words := d.tokens.problem(c.Key); words != "" && !slices.Contains(list, words) {
			list = append(list, words)
		}
	}
	return list
}

// tokenRefused has those told who must do something about a token set.
func (d *daemon) tokenRefused(key, words string) {
	if d.tellOwner != nil {
		d.tellOwner(failure{secret: key, reason: words})
	}
	d.post(func() {
		for _, s := range d.servers {
			switch {
			case !slices.Contains(d.problems(s), words):
			case d.waits && s.status.State == control.Waiting && s.started != nil && !s.busy:
				s.again = true // its unit says for what it waits when it starts
				d.converge(s)
			default:
				d.notice(s.name, words)
			}
		}
	})
}
