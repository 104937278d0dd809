package main

import (
	"slices"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/cmd/pfard/vault"
)

// renewal is what a server needs whose launcher was given another value than there is now, because a token was refreshed:
// another process, once no request is under way. That the gateway knows, and asks for it (Sleep).
type renewal int

const (
	noRenewal   renewal = iota
	renewalDue          // the gateway is told so (OnDemand.Renews)
	renewalDone         // it is being started again, and the gateway keeps requests for it
)

// served is the vault for servers: of a token set they get the access token, once it is fresh.
type served struct {
	unawaited
	tokens *tokens
}

// unawaited is the same whether that is fresh or not.
type unawaited struct{ *vault.Vault }

func (u unawaited) Get(key string) ([]byte, error) { return u.Deliver(key) }

// awaited is the error of a value for which a server is to wait, in words.
type awaited string

func (a awaited) Error() string { return string(a) }

func (s served) Get(key string) ([]byte, error) {
	if words := s.tokens.awaits(key); words != "" {
		return nil, awaited(words)
	}
	return s.unawaited.Get(key)
}

// tokenChanging is called before a refreshed token set is stored, and returns what is to be called afterwards.
func (d *daemon) tokenChanging() (changed func(key string)) {
	var before map[string]string
	_ = d.do(func() error { before = d.handouts(); return nil })
	return func(key string) { d.post(func() { d.tokenChanged(key, before) }) }
}

// tokenChanged has servers get a refreshed token: those that wait for it, and bridges, at once, those whose launchers would be
// given something else now when they are idle.
func (d *daemon) tokenChanged(key string, before map[string]string) {
	for _, name := range d.usersOf(key) {
		s := d.servers[name]
		now, lacks := d.delivery.handout(s)
		d.rebroker(name)
		switch {
		case s.status.State == control.Waiting:
			d.retryWaiting(s)
		case s.started != nil && !s.busy && s.renew != renewalDone && !lacks && now != before[name]:
			s.renew = renewalDue
			d.intents.keep(s)
		}
	}
	d.tell()
}

// renewed starts a server again that is idle by the gateway's word.
func (d *daemon) renewed(s *server) {
	s.renew, s.again = renewalDone, true
	d.converge(s)
	d.tell()
}

// wakeWaiting starts what may have got its credential.
func (d *daemon) wakeWaiting() {
	for _, s := range d.servers {
		d.retryWaiting(s)
	}
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
		if words, _ := d.tokens.problem(c.Key); words != "" && !slices.Contains(list, words) {
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
