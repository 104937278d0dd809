package vault

import (
	"fmt"

	"github.com/pfar/pfar/policies/oauth"
)

// PutTokens stores a token set under key. A crash leaves the old value or the new one.
func (v *Vault) PutTokens(key string, s oauth.Set) error {
	text, err := s.Encode()
	if err != nil {
		return fmt.Errorf("storing %q: %w", key, err)
	}
	_, err = v.Put(Secret{Key: key, Kind: OAuth, Value: text})
	return err
}

// Tokens returns the token set under key, and its text. Of a secret of another kind ok is false.
func (v *Vault) Tokens(key string) (s oauth.Set, text []byte, ok bool, err error) {
	secret, err := v.Read(key)
	if err != nil || secret.Kind != OAuth {
		return oauth.Set{}, nil, false, err
	}
	s, err = secret.tokens()
	return s, secret.Value, err == nil, err
}

// Deliver returns the value under key as a server may have it: of a token set the access token.
func (v *Vault) Deliver(key string) ([]byte, error) {
	secret, err := v.Read(key)
	if err != nil || secret.Kind != OAuth {
		return secret.Value, err
	}
	s, err := secret.tokens()
	if err != nil {
		return nil, err
	}
	return []byte(s.AccessToken), nil
}

// Values are all under key that nobody may see but who is given it: of a token set also what no server gets.
func (v *Vault) Values(key string) ([][]byte, error) {
	secret, err := v.Read(key)
	if err != nil {
		return nil, err
	}
	if secret.Kind != OAuth {
		return [][]byte{secret.Value}, nil
	}
	s, err := secret.tokens()
	return ValuesOf(s), err
}

// ValuesOf are Values of a token set: the first is the access token.
func ValuesOf(s oauth.Set) (list [][]byte) {
	for _, value := range s.Secrets() {
		list = append(list, []byte(value))
	}
	return list
}

func (s Secret) tokens() (oauth.Set, error) {
	set, err := oauth.Decode(s.Value)
	if err != nil {
		return oauth.Set{}, fmt.Errorf("reading the token set %q: %w; store it anew with pfar vault set %s --oauth", s.Key, err, s.Key)
	}
	return set, nil
}
