// Package setup decides about set-ups of servers: events and people's texts in, next states and actions out. It is
// pure.
package setup

import (
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
)

// Flow is one set-up, as far as it has come. It is kept as JSON, and has no secret.
type Flow struct {
	ID        string `json:"id"`
	Server    string `json:"server"`
	Service   string `json:"service,omitempty"`
	Principal string `json:"principal"` // "uid 1000", "client NAME", or "chat NAME"
	Package   string `json:"package,omitempty"`

	State  control.FlowState `json:"state"`
	Step   Step              `json:"step,omitempty"` // of FlowSpawning; AwaitingConsent; SignIn
	Detail string            `json:"detail,omitempty"`

	Secrets  []Secret  `json:"secrets,omitempty"` // in the order in which they are asked for
	At       int       `json:"at,omitempty"`      // which of them it waits for, or stores
	Attempts int       `json:"attempts,omitempty"`
	Deadline time.Time `json:"deadline,omitzero"` // of the present state and step
	Asked
	Result
}

// Asked is how somebody asked for the set-up, and what has happened since.
type Asked struct {
	Page    bool `json:"page,omitempty"`     // a one-time page takes what is missing
	Consent bool `json:"consent,omitempty"`  // nothing is written or started before a person has used the page
	Again   bool `json:"again,omitempty"`    // values did not work: all are asked for again
	Touched bool `json:"touched,omitempty"`  // it has begun to write and start: a failure stops the server
	SignIns int  `json:"sign_ins,omitempty"` // that a person has begun
	Retry   bool `json:"retry,omitempty"`    // it waits once more, and Detail says why the last answer did not serve
	Ended   bool `json:"ended,omitempty"`    // of Again: no service refused the last value, but the server crashed with it
}

// Result is what the end of a flow tells.
type Result struct {
	Reason   control.FlowReason `json:"reason,omitempty"` // of FlowFailed
	Tools    int                `json:"tools,omitempty"`
	Verified string             `json:"verified,omitempty"` // the tool that was called; "": none was
}

// Step is what is under way in a state that has several.
type Step string

const (
	AwaitingConsent Step = "consent" // of AwaitingCredential: nothing is missing but a person's word
	SignIn          Step = "sign-in" // of the states that wait for a secret: a person signs in to get it
	Storing         Step = "store"
	Installing      Step = "install"
	Writing         Step = "write"
	Starting        Step = "start"
)

// Secret is one that the server needs, and what has become of it.
type Secret struct {
	control.Wanted
	Fate Fate `json:"fate,omitempty"`
}

// Fate is what has become of a secret. The zero value is that it is missing.
type Fate string

const (
	Had   Fate = "had"   // it was in the vault before
	Taken Fate = "taken" // a person has given it to this set-up
	Left  Fate = "left"  // the server does without
)

// Limits of the states in which a flow waits for a person or a process.
const (
	PersonTime  = 10 * time.Minute
	SignInTime  = oauth.LoginTime + 2*time.Minute // longer than a sign-in, whose own end comes first
	InstallTime = 25 * time.Minute                // more than an installation may take
	StartTime   = 5 * time.Minute                 // more than systemd gives a unit
	VerifyTime  = 3 * time.Minute
)

// MaxRefused is how many values may fail in one set-up, all in all.
const MaxRefused = 3

// MaxSignIns is how many sign-ins a person may begin in one set-up: each one extends the deadline.
const MaxSignIns = 10

// View returns the state of a flow for people.
func (f Flow) View() control.Flow {
	v := control.Flow{
		ID: f.ID, Server: f.Server, Service: f.Service, Principal: f.Principal, State: f.State, Detail: f.Detail,
		Retry: f.Retry, Reason: f.Reason, Attempts: f.Attempts, Tools: f.Tools, Verified: f.Verified,
	}
	if f.waits() {
		v.Deadline = f.Deadline
	}
	if f.State == control.CredentialRefused && f.Ended {
		v.Reason = control.FlowNotStarted
	}
	if s := f.wants(); s != nil {
		w := s.Wanted
		w.Optional = f.skippable()
		v.Wants = &w
	}
	return v
}

// Over reports whether a flow has ended.
func (f Flow) Over() bool { return f.State == control.FlowComplete || f.State == control.FlowFailed }

// waits reports whether it is a person's turn.
func (f Flow) waits() bool {
	return f.State == control.AwaitingCredential || f.State == control.CredentialRefused
}

// wants returns the secret that the flow waits for; nil: it waits for none.
func (f Flow) wants() *Secret {
	if !f.waits() || f.Step == AwaitingConsent || f.At >= len(f.Secrets) {
		return nil
	}
	return &f.Secrets[f.At]
}

// skippable reports whether a person may skip the secret that the flow waits for: the server runs without it or, after
// one that did not work, another secret may have been the wrong one.
func (f Flow) skippable() bool {
	if f.Again {
		return f.others() > 0
	}
	return f.Secrets[f.At].Optional
}

// others counts the secrets that may be wrong, apart from the one that the flow waits for.
func (f Flow) others() (n int) {
	for i, s := range f.Secrets {
		if i != f.At && s.Fate != Left && s.Fate != "" {
			n++
		}
	}
	return n
}

// Taken are the keys that a person has given values for.
func (f Flow) Taken() (keys []string) {
	for _, s := range f.Secrets {
		if s.Fate == Taken {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// Omitted are the variables that the server does without.
func (f Flow) Omitted() (variables []string) {
	for _, s := range f.Secrets {
		if s.Fate == Left {
			variables = append(variables, s.Variable)
		}
	}
	return variables
}

// variable is the name by which a person was asked for a key.
func (f Flow) variable(key string) string {
	for _, s := range f.Secrets {
		if s.Key == key {
			return s.Variable
		}
	}
	return fmt.Sprintf("%q", key)
}

// place says where a flow is, for people.
func (f Flow) place() string {
	switch {
	case f.State == control.FlowFailed:
		return "it has failed: " + f.Detail
	case f.wants() != nil:
		return fmt.Sprintf("it waits for %s", f.wants().Variable)
	case f.Detail != "":
		return "it is " + string(f.State) + ": " + f.Detail
	}
	return "it is " + string(f.State)
}
