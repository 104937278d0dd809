package approval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Digest is what a decision is bound to, in hexadecimal where people or programs name it.
type Digest [sha256.Size]byte

func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// bind returns the canonical form of the arguments, and the digest of it with everything else that the decision is
// bound to: two requests that differ in anything of it are two.
func bind(r *Request) (canonical []byte, _ Digest, err error) {
	raw := []byte(r.Arguments)
	if len(raw) == 0 {
		raw = []byte("null") // which is not {}
	}
	if canonical, err = jsonrpc.Canonical(nil, raw); err != nil {
		return nil, Digest{}, fmt.Errorf("reading the arguments: %w", err)
	}
	arguments := sha256.Sum256(canonical)
	bound, err := json.Marshal(struct {
		Client, Proof, Session, Server, Name, Method, Arguments string
		Label                                                   gate.Label
		Facts                                                   gate.Facts
		Rule, Profile                                           string
		Once                                                    bool
		Pin, Policy                                             string
		Findings                                                []string
		Run, Step                                               string `json:",omitempty"`
	}{
		r.Client, r.Proof, r.Session, r.Server, r.Name, r.Method, hex.EncodeToString(arguments[:]),
		r.Decision.Data, r.Facts, r.Decision.Rule, r.Decision.Profile, r.Decision.Once, r.Pin, r.Policy, slices.Sorted(slices.Values(r.Findings)),
		r.Run, r.Step,
	})
	return canonical, sha256.Sum256(bound), err
}

// errIncomplete is of a request that says too little to be bound to anything.
var errIncomplete = errors.New("the client, session, server, tool, method, pin, policy and label of a call have to " +
	"be known for it to be approved")

const (
	maxName     = 4096 // bytes
	maxFindings = 64
	maxFinding  = 4096 // bytes
)

func complete(r *Request) error {
	for _, s := range []string{r.Client, r.Session, r.Server, r.Name, r.Method, r.Pin, r.Policy, r.Decision.Rule, r.Decision.Profile} {
		if s == "" {
			return errIncomplete
		}
		if len(s) > maxName {
			return fmt.Errorf("a name of %d bytes is too long to be shown", len(s))
		}
	}
	if len(r.Findings) > maxFindings || slices.ContainsFunc(r.Findings, func(f string) bool { return len(f) > maxFinding }) {
		return errors.New("inspectors have found more than can be shown")
	}
	if !r.Decision.Data.Known() {
		return errIncomplete
	}
	return nil
}
