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
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"golang.org/x/time/rate"
)

// Identity is who asks, as authenticated.
type Identity struct {
	Client  string
	Handle  string // of the session whose label counts: one that the operator has minted, the default one, or one of a single connection
	Proof   string // how it has shown that it is that client
	Profile string
	Rights  *access.Rights // what the client's declaration says of servers; nil: nothing
	Person  bool           // types each call and reads what comes back: no model does
}

// Item is what is asked for: a tool, a prompt, a resource.
type Item struct {
	Owner    any // whose it is: facts are kept as long as this is the same
	Server   string
	Declared []byte                              // what the owner says of the server, a gate.Declared as JSON; nil: nothing
	Now      func() (owner any, declared []byte) // the same by now: its declaration may be edited during a request; nil: it does not change
	Kind     gate.Kind
	Name     string                      // the server's own; of a resource its URI
	Pin      string                      // digest of the accepted definition; "": definitions of this kind are not pinned
	Hints    func() *gate.Hints          // what its server claims of it; nil: nothing that counts
	Fits     bool                        // what is sent conforms to the schema of what it is sent to, or there is none
	Typed    func() bool                 // reports whether its output is typed values without free text, by what a person has accepted; nil: it is not
	FreeText func(arguments []byte) bool // reports whether they hold text that the schema does not bound; nil: they may

	unkept string // why no version is kept of its folders; "": one is, or nobody has asked
}

// Request is what is sent to the server.
type Request struct {
	Method    string
	Arguments []byte // of a tool or prompt; of others the parameters that it has instead: what a person is shown
	Params    []byte // all of it, as the client sent it
	Answer    bool   // it is what the client answers to a question of the server's, in the course of another request
	Stays     bool   // of an answer: the server may keep it
	Last      bool   // of an answer: nobody can give it again
}

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
	notes       *rate.Limiter // of records of what was found outside of any other
}

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
