package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// secretUsers are the servers and inspectors that use secrets. Its methods are called in the loop.
type secretUsers interface {
	usersOf(key string) []string    // servers whose declarations name it
	askersWith(key string) []string // inspectors, in words
	receivers(vault.Change) error
	valueChanged(key string, when urgency) []control.Use
	give(server, digest string) (*control.Gift, error)
	replaced(server string, wired bool) (plan.Plan, bool)
}

// keeper answers what is asked of the vault.
type keeper struct {
	inbox
	log       *slog.Logger
	vault     *vault.Vault
	tokens    *tokens
	redaction *redaction
	audit     *auditor
	servers   secretUsers
	around    around
	bridges   *bridge.Talks
	flows     interface{ arrived(control.Change) } // set-ups, which may wait for a secret; nil: there are none
	gateway   func(plan.Plan) error                // tells it what a server that runs is by now
	// running returns the instances of a server whose bridges run. nil: each bridge that runs is talked with.
	running func(ctx context.Context, server string) ([]string, error)
}

// answer carries out what is asked of the vault, and leaves a record of it, never with a value.
func (k *keeper) answer(p control.Peer, q control.Request) (r control.Response, err error) {
	isNone := func(key string) bool { return !declaration.IsVaultKey(key) }
	misplaced := q.Key != "" && isNone(q.Key) || slices.ContainsFunc(q.Keys, isNone)
	if misplaced { // it may be a value, as in KEY=VALUE: it is neither recorded nor repeated
		q.Key, q.Keys = "", nil
	}
	defer func() { k.record(p, q, r, err) }()
	if err := k.audit.asked(p, q); err != nil {
		return r, err
	}
	if misplaced {
		return r, fmt.Errorf("%w: a key has 1 to 64 of a-z, 0-9, _ and -", control.ErrInvalid)
	}
	switch q.Verb {
	case control.Store, control.Rotate:
		put := k.vault.Put
		if q.Verb == control.Rotate {
			put = k.vault.Replace
		}
		secret, err := secretOf(q)
		if err != nil {
			return r, err
		}
		r.Changes, err = k.change(func() ([]vault.Change, error) {
			outcome, err := put(secret)
			return []vault.Change{{Key: q.Key, Outcome: outcome}}, err
		})
		return r, ofVault(err)
	case control.Remove:
		r.Changes, err = k.change(func() ([]vault.Change, error) {
			return []vault.Change{{Key: q.Key, Outcome: removed}}, k.vault.Remove(q.Key)
		})
		return r, ofVault(err)
	case control.Import:
		r.Changes, err = k.change(func() ([]vault.Change, error) { return k.vault.Import(q.Bundle, q.Replace) })
		return r, ofVault(err)
	case control.Export:
		r.Bundle, err = k.vault.Export(q.Keys, q.Recipient)
		return r, ofVault(err)
	case control.Rekey:
		return r, k.vault.Rekey()
	case control.Give:
		err = k.do(func() (err error) {
			r.Gift, err = k.servers.give(q.Server, q.Gift)
			return err
		})
		return r, err
	}
	r.Secrets, err = k.list()
	return r, err
}

// secretOf is what a request is to store.
func secretOf(q control.Request) (vault.Secret, error) {
	s := vault.Secret{Key: q.Key, Value: []byte(q.Secret)}
	if !q.OAuth {
		return s, nil
	}
	set, err := oauth.Parse(s.Value, time.Now())
	if err == nil {
		s.Kind = vault.OAuth
		s.Value, err = set.Encode()
	}
	if err != nil {
		return s, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	return s, nil
}

// removed is what has become of a secret that was taken out of the vault.
const removed vault.Outcome = "removed"

// vaultRefusal is an error of the vault's, in its own words, that is also one of the control socket's.
type vaultRefusal struct {
	error
	code error
}

func (r vaultRefusal) Unwrap() []error { return []error{r.error, r.code} }

func ofVault(err error) error {
	switch {
	case errors.Is(err, vault.ErrNotFound):
		return vaultRefusal{err, control.ErrNoKey}
	case errors.Is(err, vault.ErrExists):
		return vaultRefusal{err, control.ErrExists}
	case errors.Is(err, vault.ErrInvalid):
		return vaultRefusal{err, control.ErrInvalid}
	}
	return err
}

// record logs who has asked for what, and how that ended.
func (k *keeper) record(p control.Peer, q control.Request, r control.Response, err error) {
	keys := q.Keys
	if q.Key != "" {
		keys = []string{q.Key}
	}
	outcome := "done"
	for _, c := range r.Changes {
		if outcome = c.Result; q.Verb == control.Import {
			outcome = "done"
			keys = append(keys, c.Key+" "+c.Result)
		}
	}
	if r.Gift != nil {
		if keys = r.Gift.Keys; !r.Gift.Given {
			outcome = "shown"
		}
	}
	attributes := []any{"operation", string(q.Verb), "key", strings.Join(keys, ", "), "uid", p.UID}
	if q.Server != "" {
		attributes = append(attributes, "server", q.Server)
	}
	if r.Gift != nil && r.Gift.Given {
		attributes = append(attributes, "why", strings.Join(r.Gift.Why, "; "))
	}
	if err != nil {
		k.log.Warn("vault", append(attributes, "outcome", "failed", "error", err)...)
		return
	}
	k.log.Info("vault", append(attributes, slog.String("outcome", outcome))...)
}

// list tells what is in the vault, and whose it is.
func (k *keeper) list() ([]control.Secret, error) {
	entries, err := k.vault.List()
	if err != nil {
		return nil, err
	}
	var list []control.Secret
	err = k.do(func() error {
		for _, e := range entries {
			s := control.Secret{Key: e.Key, Kind: string(e.Kind), Servers: append(k.servers.usersOf(e.Key), k.servers.askersWith(e.Key)...)}
			if e.Damaged != nil {
				s.Damaged = e.Damaged.Error()
			} else {
				s.Stored = &e.Stored
			}
			if e.Kind == vault.OAuth {
				k.describeTokens(&s)
			}
			list = append(list, s)
		}
		return nil
	})
	return list, err
}

// describeTokens adds what is told of a token set alone.
func (k *keeper) describeTokens(s *control.Secret) {
	set, _, _, err := k.vault.Tokens(s.Key)
	if err != nil {
		s.Damaged = err.Error()
		return
	}
	if !set.Expiry.IsZero() {
		s.Expiry = &set.Expiry
	}
	s.Scopes = set.Scopes
	s.Problem, s.Refused = k.tokens.problem(s.Key)
	if s.Unrefreshed = set.Unrefreshed(); s.Unrefreshed == "" && !k.tokens.uses(s.Key) {
		s.Unrefreshed = "no server that may run uses it; it is refreshed when one does"
	}
}

// change changes the vault, has servers run with what it holds then, and says what becomes of them.
func (k *keeper) change(change func() ([]vault.Change, error)) ([]control.Change, error) {
	k.tokens.storing.Lock() // what comes of a refresh that is under way is dropped
	changes, err := change()
	k.tokens.storing.Unlock()
	if err != nil {
		return nil, err
	}
	k.redaction.fill(k.vault, k.log)
	for _, c := range changes {
		k.tokens.stored(c.Key)
	}
	var list []control.Change
	err = k.do(func() error {
		var failed error
		for _, c := range changes { // all of them, whatever cannot be remembered of one
			failed = errors.Join(failed, k.servers.receivers(c))
			told := control.Change{Key: c.Key, Result: string(c.Outcome), Unsearched: k.unsearched(c), Unrefreshed: k.unrefreshed(c)}
			if c.Outcome != vault.Equal {
				told.Uses = k.servers.valueChanged(c.Key, atOnce)
			}
			list = append(list, told)
		}
		k.around.tell()
		return failed
	})
	k.awaitWire(list)
	k.verifyAgain(list)
	for _, c := range list {
		if k.flows != nil && (c.Result == string(vault.New) || c.Result == string(vault.Changed)) {
			k.flows.arrived(c)
		}
	}
	return list, err
}

// verifyAgain has the gateway verify the secrets of servers that run on with others: nothing else tells it of them.
func (k *keeper) verifyAgain(list []control.Change) {
	for _, c := range list {
		for _, use := range c.Uses {
			if use.Then != control.RunsOn && use.Then != control.Unconfirmed {
				continue
			}
			var p plan.Plan
			ok, wired := false, use.Then == control.RunsOn
			err := k.do(func() error {
				p, ok = k.servers.replaced(use.Server, wired)
				k.around.tell()
				return nil
			})
			if err == nil && ok && wired && k.gateway != nil {
				err = k.gateway(p)
			}
			if err != nil { // it is about to start or to end
				k.log.Info("another value is not verified before the server starts again", "server", use.Server, "reason", err)
			}
		}
	}
}

// wireTime bounds how long bridges may take to put another value on the wire, all of them together.
const wireTime = 3 * time.Second

// awaitWire returns when what was changed is on the wire of servers that run on: their next request has the new value.
// Where that is not known it says so.
func (k *keeper) awaitWire(list []control.Change) {
	ctx, cancel := context.WithTimeout(context.Background(), wireTime)
	defer cancel()
	for _, c := range list {
		for i := range c.Uses {
			use := &c.Uses[i]
			if use.Then != control.RunsOn {
				continue
			}
			if err := k.bridges.Wired(ctx, use.Server, k.running); err != nil {
				use.Then = control.Unconfirmed
				k.log.Warn("it is not known that another value is on the wire", "server", use.Server, "secret", c.Key, "error", err)
			}
		}
	}
}

// unsearched says why what is under a key now is not kept out of what servers say; "" if it is. Of a token set it is
// about the access token: no server has the rest.
func (k *keeper) unsearched(c vault.Change) string {
	if c.Outcome == removed {
		return ""
	}
	values, err := k.vault.Values(c.Key)
	if err != nil || len(values) == 0 {
		return "" // fill has said so
	}
	return redact.Unsearched(values[0])
}

// unrefreshed says why what is under a key now is a token set that is never refreshed; "" if it is, or is none.
func (k *keeper) unrefreshed(c vault.Change) string {
	set, _, ok, err := k.vault.Tokens(c.Key)
	if c.Outcome == removed || err != nil || !ok {
		return ""
	}
	return set.Unrefreshed()
}

// urgency says when a server is started again whose launcher would be given another value now.
type urgency int

const (
	atOnce   urgency = iota // its owner has changed the value: calls that are under way have the time of any stop
	whenIdle                // a token was refreshed: once no request is under way
)
