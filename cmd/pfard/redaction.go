package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

// redaction is what secrets are recognised by, for those who see what servers say: the gateway, of a server's own
// secrets its bridge, and pfard itself, which searches what launchers are to log. What a server may have been started
// with stays in it until pfard is started again, also when it has been removed from the vault.
type redaction struct {
	mu      sync.Mutex
	set     *redact.Set
	stored  []byte
	changed chan struct{} // closed when there is another one

	searching sync.Mutex // held while a line is searched: servers can make that costly, and are not to have all of this machine
}

func newRedaction() *redaction {
	r := &redaction{changed: make(chan struct{})}
	r.set = redact.New(nil)
	r.store()
	return r
}

// fill adds what the vault holds.
func (r *redaction) fill(v *vault.Vault, log *slog.Logger) {
	if v == nil {
		return
	}
	keys, err := v.Keys()
	if err != nil {
		log.Error("looking for secrets that are to be kept out of logs and results", "error", err)
	}
	values := make(map[string][]byte, len(keys))
	for _, key := range keys {
		list, err := v.Values(key)
		if err != nil {
			log.Error("reading a secret that is to be kept out of logs and results", "error", err) // whoever needs it does not get it either
			continue
		}
		maps.Copy(values, named(key, list))
	}
	r.add(values)
}

// addAll adds the values under one key of the vault.
func (r *redaction) addAll(key string, values [][]byte) { r.add(named(key, values)) }

// named gives each value under a key a name: of a token set what a server gets has the key's own.
func named(key string, values [][]byte) map[string][]byte {
	all := make(map[string][]byte, len(values))
	for i, value := range values {
		name := key
		if i > 0 {
			name = fmt.Sprintf("%s.%d", key, i)
		}
		all[name] = value
	}
	return all
}

// put adds a value.
func (r *redaction) put(name string, value []byte) { r.add(map[string][]byte{name: value}) }

func (r *redaction) add(values map[string][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var added bool
	if r.set, added = r.set.With(values); added {
		r.store()
	}
}

// store is called with r.mu held.
func (r *redaction) store() {
	r.stored = stored(r.set)
	close(r.changed)
	r.changed = make(chan struct{})
}

func stored(s *redact.Set) []byte {
	b, err := s.MarshalBinary()
	if err != nil {
		panic(err) // of fields of fixed size
	}
	return b
}

// ofBridge is the part that a plan's bridge gets: the values that the plan names, and of a token set the access token
// alone.
func (r *redaction) ofBridge(p plan.Plan) attach.Redaction {
	names := make([]string, len(p.Credentials))
	for i, c := range p.Credentials {
		names[i] = secretName(c)
	}
	return func() ([]byte, <-chan struct{}) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return stored(r.set.Only(names)), r.changed
	}
}

// secretName is what the value of a credential is called in a set. No key has the sign for a variable in it, nor the
// dot of named.
func secretName(c plan.Credential) string {
	if c.From != "" {
		return "$" + c.From
	}
	return c.Key
}

// now is the whole, and a channel that is closed when there is another one.
func (r *redaction) now() ([]byte, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored, r.changed
}

// known is the whole, as it is searched by.
func (r *redaction) known() *redact.Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set
}

// serial says which set there is.
func (r *redaction) serial() int64 { return r.known().Serial() }

// clean is a text of pfard's own without secrets in it.
func (r *redaction) clean(text string) string { return redact.Strip(r.known().String(text)) }

// watch sends the set now and whenever it changes, until the peer hangs up.
func (r *redaction) watch(ctx context.Context, send func(control.Response) error) error {
	for {
		set, changed := r.now()
		if err := send(control.Response{Redaction: set}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
