package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// followPolicy learns what calls are decided by, until ctx ends. A policy of a later pfard may have a member that this
// gateway does not know, and that may be a restriction: the policy before stays in force. What servers may reach counts
// at once, since more of it makes decisions stricter.
func (g *gateway) followPolicy(ctx context.Context) {
	g.followPfard(ctx, "what calls are decided by", 2*time.Second, func(heard func()) error {
		return g.pfard.Policy(ctx, func(b, sandboxes []byte) error {
			policy := new(gate.Policy)
			refused := policy.UnmarshalJSON(b)
			if refused != nil {
				policy = g.point.Policy()
			}
			confined, unread := confinedBy(sandboxes)
			if policy != nil {
				g.decideBy(policy, confined)
			}
			if err := errors.Join(refused, unread); err != nil {
				return err
			}
			heard()
			g.kept.policy.keep(g.store, b, g.log)
			return nil
		})
	})
}

// confinedBy reads what all servers may reach. Without it, which is by a pfard of an earlier version, none is confined,
// nor is any if it cannot be read.
func confinedBy(b []byte) (*gate.Sandboxes, error) {
	if b == nil {
		return nil, nil
	}
	var told []gate.Sandbox
	if err := json.Unmarshal(b, &told); err != nil {
		return nil, fmt.Errorf("reading what servers may reach: %w", err)
	}
	return gate.NewSandboxes(told), nil
}

// decideBy takes a policy and the servers' sandboxes, and ends what was granted under another policy.
func (g *gateway) decideBy(policy *gate.Policy, sandboxes *gate.Sandboxes) {
	before := g.point.Policy()
	g.point.Learn(policy, sandboxes)
	if before != nil && before.Digest == policy.Digest {
		return
	}
	g.panel.Learn(policy.Inspectors)
	g.teller.Learn(policy.Notices)
	g.models.Learn(policy.Models)
	g.registry.Relist()
	g.point.Grants.Policy(policy.Digest)
}
