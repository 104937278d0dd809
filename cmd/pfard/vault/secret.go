package vault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
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

// stored is the text of a secret's file. It has the key in it, so that no file passes for that of another secret.
type stored struct {
	Version int `json:"pfar_secret"`
	Secret
}

// mark begins the text of a secret's file; one without it is a value alone, from before there were kinds.
var mark = []byte(`{"pfar_secret":`)

// Put stores a secret as of now. A crash leaves the old one or the new one.
func (v *Vault) Put(s Secret) (Outcome, error) {
	if err := checkKey(s.Key); err != nil {
		return "", err
	}
	if len(s.Value) == 0 || len(s.Value) > maxSecret {
		return "", fmt.Errorf("storing %q: a secret has 1 to %d bytes, this one %d", s.Key, maxSecret, len(s.Value))
	}
	s.Stored = time.Now().UTC().Truncate(time.Second)
	text, err := json.Marshal(stored{1, s})
	if err != nil {
		return "", fmt.Errorf("encoding %q: %w", s.Key, err)
	}
	return "", v.store(s.Key, text)
}

// Get returns the value under key.
func (v *Vault) Get(key string) ([]byte, error) {
	s, err := v.Read(key)
	return s.Value, err
}

// Read returns the secret under key.
func (v *Vault) Read(key string) (Secret, error) {
	text, err := v.text(key)
	if err != nil {
		return Secret{}, err
	}
	s := stored{1, Secret{Key: key, Kind: Plain, Value: text}}
	if bytes.HasPrefix(text, mark) {
		s.Value = nil
		if err := json.Unmarshal(text, &s); err != nil || s.Version != 1 || s.Key != key {
			return Secret{}, fmt.Errorf("decrypting secret %q: it is not as this version of pfar writes secrets", key)
		}
	}
	if len(s.Value) == 0 || len(s.Value) > maxSecret {
		return Secret{}, fmt.Errorf("decrypting secret %q: it has %d bytes", key, len(s.Value))
	}
	return s.Secret, nil
}
