package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// uses knows which servers use which secrets, and passes changed secrets on to them.
type uses struct {
	inbox
	log        *slog.Logger
	around     around
	fleet      *fleet
	inspectors *inspectors
	policy     *policy
	vault      *vault.Vault
	tokens     *tokens
	delivery   *delivery
	redaction  *redaction
	bridges    interface{ Changed(server string) } // to tell when the secrets of a server have changed
}

// valueChanged passes the new value of a key on to the servers that use it, and returns what becomes of each.
func (u *uses) valueChanged(key string, when urgency) []control.Use {
	u.inspectors.rekey(key)
	var uses []control.Use
	for _, name := range u.usersOf(key) {
		s := u.fleet.servers[name]
		u.fleet.compareScopes(s)
		use := control.Use{Server: name, Then: u.revalue(s, when)}
		if use.Then == control.Waits {
			if use.Why = u.delivery.refusal(*s.want); use.Why == "" && s.undecided() {
				use.Why = s.status.Detail
			}
		}
		uses = append(uses, use)
		// The tokens may have gained or lost a scope that single tools need.
		if next := u.delivery.scoped(*s.want); plan.Digest(next) != plan.Digest(*s.want) {
			s.want = &next
			u.fleet.rewant(s)
			u.fleet.converge(s)
		}
	}
	return uses
}

// revalue passes the present values on to one server. Its bridge gets them at once. A server that waits for them
// starts. If the launcher would get the same as before, the server runs on: its bridge has the value, and the
// placeholder has not changed. A server whose tokens lack a required scope stops at once.
func (u *uses) revalue(s *server, when urgency) control.Then {
	now := u.delivery.handout(*s.want)
	lacks := now == ""
	s.opening.end()
	u.bridges.Changed(s.name)
	switch {
	case s.asleep && !s.off && !lacks && when == atOnce && s.doubtful(): // no client sees a tool whose call would wake it
		s.run, s.asleep = true, false
		u.fleet.converge(s)
		return control.Starts
	case !s.runs():
		return control.Later
	case s.status.State == control.Waiting && !s.refused():
		u.fleet.retryWaiting(s)
		if lacks || s.undecided() {
			return control.Waits
		}
		return control.Starts
	case !lacks && now == s.given && !s.refused() && s.has.Started != nil && !s.has.Stopping && !s.again:
		return control.RunsOn
	case when == whenIdle && !s.refused() && u.delivery.refusal(*s.want) == "":
		if !lacks && s.has.Started != nil && !s.has.Stopping && s.renew != renewalDone {
			s.renew = renewalDue
			u.fleet.intents.keep(s)
		}
		return control.Restarts
	}
	s.again = s.again || s.has.Started != nil && !s.has.Stopping
	u.fleet.converge(s)
	if lacks {
		return control.Waits
	}
	return control.Restarts
}

// tokenChanged passes a refreshed token on to the servers that use it.
func (u *uses) tokenChanged(key string) {
	u.post(func() {
		u.valueChanged(key, whenIdle)
		u.around.tell()
	})
}

// giveLauncher records that systemd gets the secrets of a launcher, or why it does not (err). If giveLauncher returns
// an error, systemd must not get them.
func (u *uses) giveLauncher(p plan.Plan, secrets units.Secrets, err error) error {
	if unrecorded := u.delivery.record(p, secrets, err); unrecorded != nil {
		return unrecorded
	}
	if err != nil || p.Gateway.Session != "" || len(p.Credentials) == 0 {
		return nil
	}
	digest := u.delivery.digest(secrets)
	go u.post(func() { // systemd must not wait for the loop
		if s := u.fleet.servers[p.Name]; s != nil {
			s.given = digest
			u.fleet.intents.keep(s)
		}
	})
	return nil
}

// outdated restarts servers, when they are idle, that an earlier pfard gave other secrets than there are now: a
// variable of pfard's environment has changed, or a token was refreshed while that pfard ended.
func (u *uses) outdated() {
	for _, s := range u.fleet.servers {
		if s.has.Started == nil || len(s.want.Credentials) == 0 {
			continue
		}
		if u.delivery.compare(*s.want).mismatch() != "" { // a token was refreshed as that pfard ended
			s.again = true // it stops when pfard first reads the declarations
			continue
		}
		now := u.delivery.handout(*s.want) // this also lets redaction learn the values
		if s.given != "" && now != "" && now != s.given {
			s.renew = renewalDue
			u.fleet.intents.keep(s)
		}
	}
}

// wakeWaiting tries again the servers that wait for a secret.
func (u *uses) wakeWaiting() {
	for _, s := range u.fleet.servers {
		u.fleet.retryWaiting(s)
	}
	u.around.tell()
}

// keysInUse returns the vault keys of the servers that may run, and of the policy's models.
func (u *uses) keysInUse() (keys []string) {
	for _, s := range u.fleet.servers {
		if s.want == nil || !s.want.Enabled || s.off {
			continue
		}
		keys = append(keys, keysOf(*s.want)...)
	}
	models, _ := u.policy.declared()
	for _, e := range models {
		if key := e.Secret(); key != "" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// problems says in words which token sets of a server are not refreshed.
func (u *uses) problems(s *server) (list []string) {
	if s.want == nil {
		return nil
	}
	for _, c := range s.want.Credentials {
		if words, _ := u.tokens.problem(c.Key); words != "" && !slices.Contains(list, words) {
			list = append(list, words)
		}
	}
	return list
}

func (u *uses) tokensTurned() { u.post(u.wakeWaiting) }

func (u *uses) tokenKnown(key string, values [][]byte) { u.redaction.addAll(key, values) }

func (u *uses) tokenHanded(key string) error { return u.delivery.over(toRefresh, key, "", "", nil) }

// tokenRefused tells the owner, and the servers that use it, why a token set is no longer refreshed.
func (u *uses) tokenRefused(key, words string) {
	if u.fleet.owner != nil {
		u.fleet.owner.tell(failure{secret: key, reason: words})
	}
	u.post(func() {
		for _, s := range u.fleet.servers {
			switch {
			case !slices.Contains(u.problems(s), words):
			case u.fleet.waits && s.has.Started != nil && !s.has.Stopping && u.delivery.handout(*s.want) == "":
				s.again = true // its unit says for what it waits when it starts, also if that is under way
				u.fleet.converge(s)
			default:
				u.fleet.units.notice(s.name, words)
			}
		}
	})
}

// usersOf are the servers whose declarations name a key, sorted.
func (u *uses) usersOf(key string) []string {
	names := []string{}
	for _, s := range u.fleet.servers {
		if s.want != nil && slices.ContainsFunc(s.want.Credentials, func(c plan.Credential) bool { return c.Key == key }) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

func (u *uses) askersWith(key string) []string { return u.inspectors.askersWith(key) }

// keysLeft returns the vault keys that were given to a server alone and that nothing names any more.
func (u *uses) keysLeft(name string) []string {
	stored, err := u.vault.List()
	if err != nil {
		u.log.Warn("looking for secrets that a server has left, ignoring", "server", name, "error", err)
	}
	keys := []string{}
	for _, e := range stored {
		if u.delivery.given.only(e.Key, name) && len(u.usersOf(e.Key)) == 0 && len(u.inspectors.askersWith(e.Key)) == 0 {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// holdBack keeps a running server as it is while its new declaration asks for secrets that it is not given. A server
// that does not run waits for them instead.
func (u *uses) holdBack(s declaration.Server, p plan.Plan) (diags hcl.Diagnostics) {
	have := u.fleet.servers[s.Name]
	if have == nil || have.has.Started == nil || have.want == nil || !p.Enabled || !have.runs() {
		return nil
	}
	switch have.status.State {
	case control.Running, control.Starting, control.BackOff, control.Offline, control.Stopping: // and starts again
	default:
		return nil
	}
	if words := u.delivery.given.refusal(*have.has.Started); words != "" { // it waits for its secrets already
		return nil
	}
	list, _ := u.delivery.given.check(p) // of an error, what runs has heard
	for _, w := range list {
		place := "auth"
		if len(w.excess) > 0 {
			place = w.excess[0].Key
		}
		at := s.Place(place)
		const format = "%s. The server runs on as it was. To give the secret, run \"pfar vault give %s\"."
		diags = diags.Append(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Secret not given", Subject: &at,
			Detail: fmt.Sprintf(format, w, s.Name),
		})
	}
	if !diags.HasErrors() {
		return nil
	}
	if word := plan.Digest(p); word != have.heldBefore {
		have.heldBefore = word
		for _, w := range list {
			_ = u.delivery.over(toLauncher, w.key, "", s.Name, errors.New(w.String())) // nothing is handed over
		}
	}
	have.held = &p
	return diags
}

// receivers gives a new secret to the servers that name it, and a removed one to none.
func (u *uses) receivers(c vault.Change) error {
	var plans []plan.Plan
	switch c.Outcome {
	case vault.New:
		for _, name := range u.usersOf(c.Key) {
			plans = append(plans, *u.fleet.servers[name].want)
		}
	case removed:
	default:
		return nil
	}
	return u.delivery.given.anew(c.Key, plans)
}

// give returns the secrets that are not given to a server, with a digest. If the caller passes that digest, it gives
// them.
func (u *uses) give(name, digest string) (*control.Gift, error) {
	s := u.fleet.servers[name]
	if s == nil || s.want == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	p, held := *s.want, s.held != nil
	if held {
		p = *s.held
	}
	list, err := u.delivery.given.check(p)
	if err != nil {
		return nil, err
	}
	g := &control.Gift{Server: name, Keys: []string{}, Why: []string{}}
	sum := sha256.New()
	for _, w := range list {
		g.Keys, g.Why = append(g.Keys, w.key), append(g.Why, w.String())
		text, err := json.Marshal(w.terms)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%q %q\n", w.key, text)
	}
	if len(list) == 0 {
		return g, nil
	}
	g.Digest = hex.EncodeToString(sum.Sum(nil))
	switch digest {
	case "":
		return g, nil
	case g.Digest:
	default:
		return nil, fmt.Errorf("%w: the declaration of %q has changed meanwhile; look at it again", control.ErrInvalid, name)
	}
	if err := u.delivery.given.give(p, g.Keys...); err != nil {
		return nil, err
	}
	g.Given = true
	u.around.reload()
	if !held { // the bridge of a held server has the earlier plan: giving it secrets would undo that
		u.bridges.Changed(name)
	}
	u.wakeWaiting()
	return g, nil
}

// replaced notes that a server runs on with other secrets. wired reports whether its bridge has them: otherwise its
// answers show nothing about them.
func (u *uses) replaced(name string, wired bool) (p plan.Plan, ok bool) {
	s := u.fleet.servers[name]
	if s == nil || s.want == nil || s.has.Started == nil || s.has.Stopping {
		return p, false
	}
	if was := s.status.Verification; was.Result != "" {
		if s.present = u.delivery.proof(*s.want); was.For != s.present {
			s.former = was.For
			s.status.Verification = units.Verification{Result: units.Verifying, For: s.present}
		}
		if !wired {
			s.status.Verification = units.Verification{
				Result: units.Unverified, For: s.present,
				Words: "it is not known whether its bridge has the new value; pfar test " + name,
			}
		}
	}
	return *s.want, true
}
