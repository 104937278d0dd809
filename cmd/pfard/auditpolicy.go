package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// laxer is what a client's declaration gives a reason for, or that it is let in nowhere.
func laxer(c access.Client) string {
	switch {
	case !c.Enabled:
		return "let in nowhere"
	case c.Relax == "":
		return "profile " + c.Profile
	}
	return "relaxed: profile " + c.Profile + ", sessions " + string(c.Sessions)
}

func digestOf(c access.Client) string {
	b, _ := json.Marshal(c) // plain data
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// clients records those whose declaration is another than last recorded, with what is laxer in it than in others, and
// why. With an error not all of them are recorded.
func (a *auditor) clients(list []access.Client) error {
	there := map[string]bool{}
	for _, c := range list {
		there[c.Name] = true
		now := digestOf(c)
		was := a.known[c.Name]
		if was == now {
			continue
		}
		if err := a.append(audit.Record{Kind: audit.Policy, Method: "client", Client: c.Name, Subject: c.File, Old: was,
			New: now, Outcome: laxer(c), Reason: c.Relax}); err != nil {
			return err
		}
		a.known[c.Name] = now
	}
	for name, was := range a.known {
		if there[name] {
			continue
		}
		if err := a.append(audit.Record{Kind: audit.Policy, Method: "client", Client: name, Old: was}); err != nil {
			return err
		}
		delete(a.known, name)
	}
	return nil
}

// policies records what calls are to be decided by, if that is another policy than last recorded, with all that it
// allows beyond what is shipped, and why; the policy itself last. With an error nothing is to be decided by it.
func (a *auditor) policies(dir string, now *gate.Policy) error {
	if now.Digest == a.policy {
		return nil
	}
	for _, r := range now.Relaxed {
		if err := a.append(audit.Record{Kind: audit.Policy, Method: "relax", Subject: r.At, New: now.Digest, Outcome: r.What,
			Reason: r.Reason}); err != nil {
			return err
		}
	}
	err := a.append(audit.Record{Kind: audit.Policy, Method: "policy", Subject: dir, Old: a.policy, New: now.Digest,
		Outcome: fmt.Sprintf("relaxed %d", len(now.Relaxed))})
	if err == nil {
		a.policy = now.Digest
	}
	return err
}
