package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// proof tells a server's secrets from any others, "" if it has none or lacks one. The gateway remembers by it which
// secrets it has verified, and learns nothing of them: without the vault it is of no use to guess them by.
func (d delivery) proof(p plan.Plan) string {
	if len(p.Credentials) == 0 {
		return ""
	}
	seed, err := d.vault.Seed()
	if err != nil {
		return ""
	}
	values := make(map[string]string, len(p.Credentials))
	for _, c := range p.Credentials {
		value, err := d.lasting(c)
		if err != nil {
			return ""
		}
		values[c.Name] = value
	}
	text, err := json.Marshal(values)
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, seed)
	fmt.Fprintf(mac, "verification of %s\x00", p.Name) // no other digest by this key begins so
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

// lasting is the value of a credential. Of a token set that is refreshed it is what stays: a refresh has shown that the
// set is right, and is no reason to ask the service again.
func (d delivery) lasting(c plan.Credential) (string, error) {
	if c.From == "" {
		set, _, ok, err := d.vault.Tokens(c.Key)
		if err != nil {
			return "", err
		}
		if ok && set.RefreshToken != "" {
			text, err := json.Marshal(oauth.Set{TokenURL: set.TokenURL, ClientID: set.ClientID, Scopes: set.Scopes})
			return string(text), err
		}
	}
	value, err := d.value(c)
	return string(value), err
}

// gatewayAt tells the gateway behind a socket what a server that runs is by now.
func gatewayAt(socket string, secrets *delivery) func(plan.Plan) error {
	return func(p plan.Plan) error { return handover.Tell(socket, p.Gateway, secrets.proof(p)) }
}
