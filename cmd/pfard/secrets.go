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
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// answerVault carries out what is asked of the vault, and leaves a record of it, never with a value (AUD-03).
func (d *daemon) answerVault(p control.Peer, q control.Request) (r control.Response, err error) {
	isNone := func(key string) bool { return !declaration.IsVaultKey(key) }
	misplaced := q.Key != "" && isNone(q.Key) || slices.ContainsFunc(q.Keys, isNone)
	if misplaced { // it may be a value, as in KEY=VALUE: it is neither recorded nor repeated
		q.Key, q.Keys = "", nil
	}
	defer func() { d.recordVault(p, q, r, err) }()
	if err := d.audit.asked(p, q); err != nil {
		return r, err
	}
	if misplaced {
		return r, fmt.Errorf("%w: a key has 1 to 64 of a-z, 0-9, _ and -", control.ErrInvalid)
	}
	switch q.Verb {
	case control.Store, control.Rotate:
		put := d.vault.Put
		if q.Verb == control.Rotate {
			put = d.vault.Replace
		}
		secret, err := secretOf(q)
		if err != nil {
			return r, err
		}
		r.Changes, err = d.changeVault(func() ([]vault.Change, error) {
			outcome, err := put(secret)
			return []vault.Change{{Key: q.Key, Outcome: outcome}}, err
		})
		return r, ofVault(err)
	case control.Remove:
		r.Changes, err = d.changeVault(func() ([]vault.Change, error) {
			return []vault.Change{{Key: q.Key, Outcome: removed}}, d.vault.Remove(q.Key)
		})
		return r, ofVault(err)
	case control.Import:
		r.Changes, err = d.changeVault(func() ([]vault.Change, error) { return d.vault.Import(q.Bundle, q.Replace) })
		return r, ofVault(err)
	case control.Export:
		r.Bundle, err = d.vault.Export(q.Keys, q.Recipient)
		return r, ofVault(err)
	case control.Rekey:
		return r, d.vault.Rekey()
	case control.Give:
		err = d.do(func() (err error) {
			r.Gift, err = d.give(q.Server, q.Gift)
			return err
		})
		return r, err
	}
	r.Secrets, err = d.listSecrets()
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
	case notFound(err):
		return vaultRefusal{err, control.ErrNoKey}
	case errors.Is(err, vault.ErrExists):
		return vaultRefusal{err, control.ErrExists}
	case errors.Is(err, vault.ErrInvalid):
		return vaultRefusal{err, control.ErrInvalid}
	}
	return err
}

// recordVault logs who has asked for what, and how that ended.
func (d *daemon) recordVault(p control.Peer, q control.Request, r control.Response, err error) {
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
		d.log.Warn("vault", append(attributes, "outcome", "failed", "error", err)...)
		return
	}
	d.log.Info("vault", append(attributes, slog.String("outcome", outcome))...)
}

// listSecrets tells what is in the vault, and whose it is.
func (d *daemon) listSecrets() ([]control.Secret, error) {
	entries, err := d.vault.List()
	if err != nil {
		return nil, err
	}
	var list []control.Secret
	err = d.do(func() error {
		for _, e := range entries {
			s := control.Secret{Key: e.Key, Kind: string(e.Kind), Servers: append(d.usersOf(e.Key), d.inspectors.askersWith(e.Key)...)}
			if e.Damaged != nil {
				s.Damaged = e.Damaged.Error()
			} else {
				s.Stored = &e.Stored
			}
			if e.Kind == vault.OAuth {
				d.describeTokens(&s)
			}
			list = append(list, s)
		}
		return nil
	})
	return list, err
}

// describeTokens adds what is told of a token set alone.
func (d *daemon) describeTokens(s *control.Secret) {
	set, _, _, err := d.vault.Tokens(s.Key)
	if err != nil {
		s.Damaged = err.Error()
		return
	}
	if !set.Expiry.IsZero() {
		s.Expiry = &set.Expiry
	}
	s.Scopes = set.Scopes
	s.Problem, s.Refused = d.tokens.problem(s.Key)
	if s.Unrefreshed = set.Unrefreshed(); s.Unrefreshed == "" && !d.tokens.uses(s.Key) {
		s.Unrefreshed = "no server that may run uses it; it is refreshed when one does"
	}
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

// changeVault changes the vault, has servers run with what it holds then, and says what becomes of them (CR-11).
func (d *daemon) changeVault(change func() ([]vault.Change, error)) ([]control.Change, error) {
	d.tokens.storing.Lock() // what comes of a refresh that is under way is dropped
	changes, err := change()
	d.tokens.storing.Unlock()
	if err != nil {
		return nil, err
	}
	d.redaction.fill(d.vault, d.log)
	for _, c := range changes {
		d.tokens.stored(c.Key)
	}
	var list []control.Change
	err = d.do(func() error {
		var failed error
		for _, c := range changes { // all of them, whatever cannot be remembered of one
			failed = errors.Join(failed, d.receivers(c))
			told := control.Change{Key: c.Key, Result: string(c.Outcome), Unsearched: d.unsearched(c), Unrefreshed: d.unrefreshed(c)}
			if c.Outcome != vault.Equal {
				told.Uses = d.valueChanged(c.Key, atOnce)
			}
			list = append(list, told)
		}
		d.tell()
		return failed
	})
	d.awaitWire(list)
	return list, err
}

// wireTime bounds how long bridges may take to put another value on the wire, all of them together.
const wireTime = 3 * time.Second

// awaitWire returns when what was changed is on the wire of servers that run on: their next request has the new value. Where that is
// not known it says so.
func (d *daemon) awaitWire(list []control.Change) {
	ctx, cancel := context.WithTimeout(context.Background(), wireTime)
	defer cancel()
	for _, c := range list {
		for i := range c.Uses {
			use := &c.Uses[i]
			if use.Then != control.RunsOn {
				continue
			}
			if err := d.wired(ctx, use.Server); err != nil {
				use.Then = control.Unconfirmed
				d.log.Warn("it is not known that another value is on the wire", "server", use.Server, "secret", c.Key, "error", err)
			}
		}
	}
}

// unsearched says why what is under a key now is not kept out of what servers say; "" if it is. Of a token set it is about
// the access token: no server has the rest.
func (d *daemon) unsearched(c vault.Change) string {
	if c.Outcome == removed {
		return ""
	}
	values, err := d.vault.Values(c.Key)
	if err != nil || len(values) == 0 {
		return "" // fill has said so
	}
	return redact.Unsearched(values[0])
}

// unrefreshed says why what is under a key now is a token set that is never refreshed; "" if it is, or is none.
func (d *daemon) unrefreshed(c vault.Change) string {
	set, _, ok, err := d.vault.Tokens(c.Key)
	if c.Outcome == removed || err != nil || !ok {
		return ""
	}
	return set.Unrefreshed()
}
