package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
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

// proofs are what a server's verification is about.
type proofs struct {
	given   string  // digest of what its launcher was given (delivery.digest); "": nothing, or it is not known
	renew   renewal // whether that has changed since
	former  string  // the proof of secrets that were replaced while it ran: what is still said of them counts no more
	present string  // that of those it has by now, if it has had others
}

// shows takes what the gateway says of a server's secrets, unless it has others by now.
func (s *server) shows(v units.Verification) {
	if s.former != "" && v.For == s.former && v.For != s.present {
		return
	}
	s.status.Verification = v
}

// replaced notes that a server runs on with other secrets than before. Unless they are known to be wired, nothing that
// it answers is known to be about them.
func (f *fleet) replaced(name string, wired bool) (p plan.Plan, ok bool) {
	s := f.servers[name]
	if s == nil || s.want == nil || s.has.Started == nil || s.has.Stopping {
		return p, false
	}
	if was := s.status.Verification; was.Result != "" {
		if s.present = f.delivery.proof(*s.want); was.For != s.present {
			s.former = was.For
			s.status.Verification = units.Verification{Result: units.Verifying, For: s.present}
		}
		if !wired {
			s.status.Verification = units.Verification{
				Result: units.Unverified, For: s.present, Words: "it is not known whether its bridge has the new value; pfar test " + name,
			}
		}
	}
	return *s.want, true
}

// verified is a report's word on a server's secrets.
func verified(r *control.Server, p *plan.Plan) {
	v := &r.Verification
	v.For = ""
	if v.Result != units.Invalid || p == nil {
		return
	}
	if trial := p.Gateway.Trial; trial != nil {
		v.Remedy, v.Where = trial.Remedy, trial.Where
	}
	if r.State == control.Running {
		r.State, r.Detail = control.CredentialInvalid, handover.Refused(*v)
	}
}

// doubtful reports whether clients may see nothing of a server because its secrets are not known to be right.
func (s *server) doubtful() bool {
	if s.want.Gateway.Trial == nil {
		return false
	}
	switch s.status.Verification.Result {
	case units.Verified, units.Unverified:
		return false
	}
	return true
}

// replaced is that of the fleet.
func (u *uses) replaced(name string, wired bool) (plan.Plan, bool) {
	return u.fleet.replaced(name, wired)
}
