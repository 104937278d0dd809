// Package enforce is the one point that every request to a server passes, whoever makes it: the gate decides,
// inspectors look, people are asked, labels rise, and the record is kept.
package enforce

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"golang.org/x/time/rate"
)

// Trail keeps the record (trail.Log).
type Trail interface {
	Open(*audit.Record) error
	Close(*audit.Record) error
	Append(*audit.Record) error
	Sync() error
	Failed() error
	Ready() <-chan struct{} // is closed when there is a file
}

// Inspectors are those of others' making, beside the built-in one: programs in a sandbox, models. Those that are named
// look at a text, as far as that is their direction. The report is Missing unless each of them has answered; one that
// there is not has not.
type Inspectors interface {
	Inspect(ctx context.Context, names []string, d inspector.Direction, about fence.Meta, value []byte) inspect.Report
}

// Vault knows secrets, once it has been told which there are: until then no request passes.
type Vault interface {
	inspect.Vault
	JSON(text []byte) ([]byte, []string) // a JSON text without secrets in it, and the names of those that were
	Known() bool
	Told() <-chan struct{} // is closed when they are
}

// Point is what all requests pass. Without a policy it lets none pass.
type Point struct {
	Sessions   *label.Sessions
	Approvals  *approval.Store
	Grants     *grant.Store      // nil: nothing is granted
	Reads      *provenance.Reads // what sessions receive; nil: nobody takes it down
	Trail      Trail
	Vault      Vault      // nil: there are no secrets
	Inspectors Inspectors // nil: there is none but the built-in one
	Keeper     Keeper     // nil: nothing is kept, and so nothing can be taken back
	Log        *slog.Logger
	Patience   time.Duration // that a request waits, at the beginning, for the policy and the file of the audit

	// Now says who somebody is by now, who has begun a request: with another profile, perhaps, and other rights. It
	// reports false of a client that may not be here any more. nil: everyone is as authenticated.
	Now func(Identity) (Identity, bool)

	policy  atomic.Pointer[gate.Policy]
	facts   known
	guesses guesses
	started started
}

// started has the parts of a Point that its first use makes.
type started struct {
	make, close sync.Once
	heard       chan struct{} // closed when there is a policy
	notes       *rate.Limiter // of records of findings that belong to no open record
}

const (
	foundAtOnce = 64 // records of findings that belong to no open record
	foundEvery  = 5 * time.Second
)

// Learn replaces the policy and the sandboxes of all servers. The gate decides by them from now on. Without sandboxes
// no server counts as confined.
func (p *Point) Learn(policy *gate.Policy, sandboxes *gate.Sandboxes) {
	p.policy.Store(policy)
	p.facts.sandboxes.Store(sandboxes)
	p.facts.forget()
	p.started.close.Do(func() { close(p.began().heard) })
}

func (p *Point) began() *started {
	p.started.make.Do(func() {
		p.started.heard = make(chan struct{})
		p.started.notes = rate.NewLimiter(rate.Every(foundEvery), foundAtOnce)
	})
	return &p.started
}

// await returns when there is what no request can do without, or there has been time enough for it.
func (p *Point) await(ctx context.Context) {
	if p.policy.Load() != nil && p.Trail.Failed() == nil && (p.Vault == nil || p.Vault.Known()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	needed := []<-chan struct{}{p.began().heard, p.Trail.Ready()}
	if p.Vault != nil {
		needed = append(needed, p.Vault.Told())
	}
	for _, there := range needed {
		select {
		case <-there:
		case <-ctx.Done():
			return
		}
	}
}

// Policy is the one that counts, nil for none yet.
func (p *Point) Policy() *gate.Policy { return p.policy.Load() }
