package main

import (
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
)

// answerVault carries out what is asked of the vault, and leaves a record of it, never with a value (AUD-03).
func (d *daemon) answerVault(p control.Peer, q control.Request) (r control.Response, err error) {
	defer func() { d.recordVault(p, q, r, err) }()
	switch q.Verb {
	case control.Store, control.Rotate:
		put := d.vault.Put
		if q.Verb == control.Rotate {
			put = d.vault.Replace
		}
		outcome, err := put(vault.Secret{Key: q.Key, Value: []byte(q.Secret)})
		if err != nil {
			return r, ofVault(err)
		}
		r.Changes, err = d.changed([]vault.Change{{Key: q.Key, Outcome: outcome}})
		return r, err
	case control.Remove:
		if err := d.vault.Remove(q.Key); err != nil {
			return r, ofVault(err)
		}
		r.Changes, err = d.changed([]vault.Change{{Key: q.Key, Outcome: removed}})
		return r, err
	case control.Import:
		changes, err := d.vault.Import(q.Bundle, q.Replace)
		if err != nil {
			return r, ofVault(err)
		}
		r.Changes, err = d.changed(changes)
		return r, err
	case control.Export:
		r.Bundle, err = d.vault.Export(q.Keys, q.Recipient)
		return r, ofVault(err)
	case control.Rekey:
		return r, d.vault.Rekey()
	}
	r.Secrets, err = d.listSecrets()
	return r, err
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
	attributes := []any{"operation", string(q.Verb), "key", strings.Join(keys, ", "), "uid", p.UID}
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
			s := control.Secret{Key: e.Key, Kind: string(e.Kind), Servers: d.usersOf(e.Key)}
			if e.Damaged != nil {
				s.Damaged = e.Damaged.Error()
			} else {
				s.Stored = &e.Stored
			}
			list = append(list, s)
		}
		return nil
	})
	return list, err
}

// usersOf are the servers whose declarations name a key, sorted.
func (d *daemon) usersOf(key string) []string {
	names := []string{}
	for _, s := range d.servers {
		if s.want != nil && slices.ContainsFunc(s.want.Credentials, func(c generator.Credential) bool { return c.Key == key }) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// changed has servers run with what the vault holds now, and says what becomes of them.
func (d *daemon) changed(changes []vault.Change) ([]control.Change, error) {
	var list []control.Change
	err := d.do(func() error {
		for _, c := range changes {
			told := control.Change{Key: c.Key, Result: string(c.Outcome)}
			if c.Outcome != vault.Equal {
				told.Uses = d.secretChanged(c.Key)
			}
			list = append(list, told)
		}
		d.tell()
		return nil
	})
	return list, err
}

// secretChanged is to be called in the loop when the vault has another value under key, or none any more (CR-11). What runs
// with the old one is started again; calls under way have the time of any stop.
func (d *daemon) secretChanged(key string) []control.Use {
	var uses []control.Use
	for _, name := range d.usersOf(key) {
		s, renew := d.servers[name], d.renew
		if !handedOver(*s.want, key) {
			renew = d.renewBrokered
		}
		uses = append(uses, control.Use{Server: name, Then: renew(s)})
	}
	return uses
}

// handedOver reports whether a server has the value itself, and not only its bridge.
func handedOver(p generator.Plan, key string) bool {
	return slices.ContainsFunc(p.Credentials, func(c generator.Credential) bool {
		return c.Key == key && c.Deliver != declaration.Brokered
	})
}

// renew has a server run with what the vault holds now, and returns what becomes of it.
func (d *daemon) renew(s *server) control.Then {
	secrets, err := d.delivery.secrets(*s.want)
	lacks := err != nil || len(secrets.Missing) > 0
	switch {
	case !s.runs():
		return control.Later
	case s.status.State == control.Waiting:
		d.retryWaiting(s)
		if lacks {
			return control.Waits
		}
		return control.Starts
	}
	if s.started != nil && !s.busy {
		s.again = true
	}
	d.converge(s)
	if lacks {
		return control.Waits
	}
	return control.Restarts
}

// renewBrokered does it for a server whose bridge alone has the value.
func (d *daemon) renewBrokered(s *server) control.Then { return d.renew(s) }
