package main

import (
	"slices"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// renewal is what a server needs whose launcher was given another value than there is now, because a token was
// refreshed or pfard has another environment: another process, once no request is under way. That the gateway knows,
// and asks for it (Sleep).
type renewal int

const (
	noRenewal   renewal = iota
	renewalDue          // the gateway is told so (OnDemand.Renews)
	renewalDone         // it is being started again, and the gateway keeps requests for it
)

// served is the vault for servers: of a token set they get the access token, once it is fresh.
type served struct {
	*vault.Vault
	tokens *tokens
}

// awaited is the error of a value for which a server is to wait, in words.
type awaited string

func (a awaited) Error() string { return string(a) }

func (s served) Deliver(key string) ([]byte, error) {
	if words := s.tokens.awaits(key); words != "" {
		return nil, awaited(words)
	}
	return s.Vault.Deliver(key)
}

// urgency says when a server is started again whose launcher would be given another value now.
type urgency int

const (
	atOnce   urgency = iota // its owner has changed the value: calls that are under way have the time of any stop
	whenIdle                // a token was refreshed: once no request is under way
)

// valueChanged has the servers that use a key run with what is under it now, and returns what becomes of them.
func (d *daemon) valueChanged(key string, when urgency) []control.Use {
	d.inspectors.rekey(key)
	var uses []control.Use
	for _, name := range d.usersOf(key) {
		s := d.servers[name]
		d.compareScopes(s)
		use := control.Use{Server: name, Then: d.revalue(s, when)}
		if use.Then == control.Waits {
			if use.Why = d.delivery.refusal(*s.want); use.Why == "" && s.undecided() {
				use.Why = s.status.Detail
			}
		}
		uses = append(uses, use)
	}
	return uses
}

// revalue has one server run with what there is now. Its bridge has it at once, and a server that waits for it. One
// whose launcher would be given the same as it was goes on: the value is with its bridge, and the placeholder has not
// changed. One whose tokens lack a scope that it requires stops at once.
func (d *daemon) revalue(s *server, when urgency) control.Then {
	now := d.delivery.handout(*s.want)
	lacks := now == ""
	d.rebroker(s.name)
	switch {
	case !s.runs():
		return control.Later
	case s.status.State == control.Waiting:
		d.retryWaiting(s)
		if lacks || s.undecided() {
			return control.Waits
		}
		return control.Starts
	case !lacks && now == s.given && s.started != nil && !s.busy && !s.again:
		return control.RunsOn
	case when == whenIdle && d.delivery.refusal(*s.want) == "":
		if !lacks && s.started != nil && !s.busy && s.renew != renewalDone {
			s.renew = renewalDue
			d.intents.keep(s)
		}
		return control.Restarts
	}
	s.again = s.again || s.started != nil && !s.busy
	d.converge(s)
	if lacks {
		return control.Waits
	}
	return control.Restarts
}

// tokenChanged has servers get a refreshed token.
func (d *daemon) tokenChanged(key string) {
	d.post(func() {
		d.valueChanged(key, whenIdle)
		d.tell()
	})
}

// giveLauncher takes it that systemd fetches what a launcher gets, or is told why it does not. With an error it must
// not get it.
func (d *daemon) giveLauncher(p plan.Plan, secrets units.Secrets, err error) error {
	if unrecorded := d.delivery.record(p, secrets, err); unrecorded != nil {
		return unrecorded
	}
	if err != nil || p.Gateway.Session != "" || len(p.Credentials) == 0 {
		return nil
	}
	digest := d.delivery.digest(secrets)
	go d.post(func() { // systemd is not to wait for what else there is to do
		if s := d.servers[p.Name]; s != nil {
			s.given = digest
			d.intents.keep(s)
		}
	})
	return nil
}

// outdated has servers started again, when they are idle, that an earlier pfard has given something else than there is
// now: a variable of its environment, or a token that was refreshed as it ended.
func (d *daemon) outdated() {
	for _, s := range d.servers {
		if s.started == nil || len(s.want.Credentials) == 0 {
			continue
		}
		if d.delivery.compare(*s.want).mismatch() != "" { // a token was refreshed as that pfard ended
			s.again = true // it stops with the first look at the declarations
			continue
		}
		now := d.delivery.handout(*s.want) // by which what it was given is recognised again as well
		if s.given != "" && now != "" && now != s.given {
			s.renew = renewalDue
			d.intents.keep(s)
		}
	}
}

// renewIdle starts a server again that is idle by the gateway's word.
func (d *daemon) renewIdle(s *server) {
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
	models, _ := d.policy.declared()
	for _, e := range models {
		if key := e.Secret(); key != "" && !slices.Contains(keys, key) {
			keys = append(keys, key)
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
			case d.waits && s.started != nil && !s.busy && d.delivery.handout(*s.want) == "":
				s.again = true // its unit says for what it waits when it starts, also if that is under way
				d.converge(s)
			default:
				d.notice(s.name, words)
			}
		}
	})
}

// usersOf are the servers whose declarations name a key, sorted.
func (d *daemon) usersOf(key string) []string {
	names := []string{}
	for _, s := range d.servers {
		if s.want != nil && slices.ContainsFunc(s.want.Credentials, func(c plan.Credential) bool { return c.Key == key }) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *daemon) askersWith(key string) []string { return d.inspectors.askersWith(key) }
