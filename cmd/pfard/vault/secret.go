package vault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/oauth"
)

// Kind is what a secret is to pfar.
type Kind string

const (
	Plain Kind = "plain" // a value that is delivered as it is
	OAuth Kind = "oauth" // a token set, which is refreshed
)

// Secret is what lies under a key.
type Secret struct {
	Key    string    `json:"key"`
	Kind   Kind      `json:"kind"`
	Stored time.Time `json:"stored"`
	Value  []byte    `json:"value"`
}

// Outcome is what storing a secret has changed.
type Outcome string

const (
	New     Outcome = "new"
	Changed Outcome = "changed"
	Equal   Outcome = "equal" // it was there with the same value
)

// unfit is an error that is ErrInvalid, in its own words.
type unfit struct{ error }

func (unfit) Is(target error) bool { return target == ErrInvalid }

// complete checks a secret that is to be stored, and gives it a kind.
func (s *Secret) complete() error {
	if err := checkKey(s.Key); err != nil {
		return err
	}
	if s.Kind == "" {
		s.Kind = Plain
	}
	switch {
	case s.Kind != Plain && s.Kind != OAuth:
		return unfit{fmt.Errorf("storing %q: unknown kind %q", s.Key, s.Kind)}
	case len(s.Value) == 0 || len(s.Value) > maxSecret:
		return unfit{fmt.Errorf("storing %q: a secret has 1 to %d bytes, this one %d", s.Key, maxSecret, len(s.Value))}
	case bytes.IndexByte(s.Value, 0) >= 0:
		return unfit{fmt.Errorf("storing %q: a secret cannot hold a NUL byte: no environment variable can", s.Key)}
	}
	if s.Kind == OAuth {
		if _, err := oauth.Decode(s.Value); err != nil {
			return unfit{fmt.Errorf("storing %q: reading the token set: %w", s.Key, err)}
		}
	}
	s.Stored = s.Stored.UTC().Truncate(time.Second)
	return nil
}

// stored is the text of a secret's file. It has the key in it, so that no file passes for that of another secret.
type stored struct {
	Version int `json:"pfar_secret"`
	Secret
}

// mark begins the text of a secret's file; one without it is a value alone, from before there were kinds.
var mark = []byte(`{"pfar_secret":`)

func (v *Vault) seal(s Secret) ([]byte, error) {
	text, err := json.Marshal(stored{1, s})
	if err != nil {
		return nil, fmt.Errorf("encoding %q: %w", s.Key, err)
	}
	sealed, err := encrypt(text, v.identities()[0].Recipient())
	if err != nil {
		return nil, fmt.Errorf("encrypting %q: %w", s.Key, err)
	}
	return sealed, nil
}

// parseSecret reads the text of a file that was written at that time. Its errors quote nothing of it.
func parseSecret(key string, text []byte, at time.Time) (Secret, error) {
	s := stored{1, Secret{key, Plain, at.UTC().Truncate(time.Second), text}}
	if bytes.HasPrefix(text, mark) {
		s.Value = nil
		if err := json.Unmarshal(text, &s); err != nil || s.Version != 1 {
			return Secret{}, fmt.Errorf("decrypting secret %q: it is not as this version of pfar writes secrets", key)
		}
	}
	if s.Key != key {
		return Secret{}, fmt.Errorf("decrypting secret %q: its file is that of secret %q", key, s.Key)
	}
	if len(s.Value) == 0 || len(s.Value) > maxSecret {
		return Secret{}, fmt.Errorf("decrypting secret %q: it has %d bytes", key, len(s.Value))
	}
	return s.Secret, nil
}
