package registry

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// Verifier finds out by a call whether a server's secrets are right, and remembers it. A proof says which secrets
// (handover.Message.Proof).
type Verifier interface {
	// Known returns what is remembered of these secrets, the zero value for nothing.
	Known(server handover.Server, proof string) units.Verification
	// Last returns what is remembered of the server, whatever its secrets were.
	Last(server string) units.Verification
	// Verify makes the call. Its context is bounded.
	Verify(ctx context.Context, u *Upstream, tools []Item, proof string) units.Verification
}

// Verifies has the secrets of servers verified, from before the first comes up.
func (r *Registry) Verifies(v Verifier) { r.upstreams.verifier = v }

// trial is what is known of one server's secrets.
type trial struct {
	again   chan struct{} // there is something to be done, or to be shown
	calling sync.Mutex    // held during a call

	mu    sync.Mutex
	proof string // which secrets it has; "": none
	due   bool   // they are to be verified
	is    units.Verification
}

func newTrial() *trial { return &trial{again: make(chan struct{}, 1)} }

// now returns which secrets there are, and what is known of secrets: these, or those before them.
func (t *trial) now() (proof string, is units.Verification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proof, t.is
}

// has takes it that the server has these secrets, and had others perhaps. What is known of those counts until these are
// verified.
func (t *trial) has(proof string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proof = proof
}

// take takes what was found out, unless the secrets are others by now.
func (t *trial) take(v units.Verification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v.For == t.proof {
		t.is = v
	}
}

// request has the secrets verified soon.
func (t *trial) request() {
	t.mu.Lock()
	t.due = true
	t.mu.Unlock()
	t.wake()
}

func (t *trial) wake() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// taken reports whether the secrets are to be verified, and takes it that they are.
func (t *trial) taken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = false
	return due
}

// hides reports whether no client sees what the server offers.
func (t *trial) hides() bool {
	_, is := t.now()
	return is.Result == units.Invalid
}

// verification is what a launcher is told, nil of a server without secrets.
func (t *trial) verification() *units.Verification {
	proof, is := t.now()
	if proof == "" && is.Result == "" {
		return nil
	}
	return &is
}

// refusal is the answer to a call of a server whose secrets are wrong. What its tool says of them is for the owner: it
// has passed no gate.
func (u *Upstream) refusal() error {
	if !u.trial.hides() {
		return nil
	}
	remedy := "pfar status " + u.Server().Name
	if trial := u.Server().Trial; trial != nil && trial.Remedy != "" {
		remedy = trial.Remedy
	}
	return jsonrpc.Errorf(protocol.CodeUnavailable, "the service refuses the credentials of server %q: nothing of it can be "+
		"called until its owner has stored others: %s", u.Server().Name, remedy)
}

// verify finds out whether a server's secrets are right. What is remembered counts, unless they are to be verified anew.
func (r *Registry) verify(ctx context.Context, u *Upstream, tools []Item, anew bool) units.Verification {
	verifier := r.upstreams.verifier
	proof, _ := u.trial.now()
	if verifier == nil || proof == "" || u.Server().Session != "" {
		return units.Verification{}
	}
	u.trial.calling.Lock()
	defer u.trial.calling.Unlock()
	if !anew {
		if known := verifier.Known(u.Server(), proof); known.Result != "" {
			known.For = proof
			u.trial.take(known)
			return known
		}
	}
	late := errors.New("it took too long")
	ctx, cancel := context.WithTimeoutCause(ctx, r.limits.Verify, late)
	defer cancel()
	v := verifier.Verify(ctx, u, tools, proof)
	v.For = proof
	u.log.Info("the server's secrets", "result", v.Result, "tool", v.Tool, "words", v.Words)
	u.trial.take(v)
	return v
}

// newProof takes it that pfard has told which secrets a live server has by now.
func (u *Upstream) newProof(proof string, before handover.Server) {
	had, is := u.trial.now()
	if proof == "" {
		proof = had
	}
	u.trial.has(proof)
	if proof != "" && (proof != had || is.Result == units.Invalid || !reflect.DeepEqual(before.Trial, u.Server().Trial)) {
		u.trial.request()
	}
}

// Verify verifies the secrets of a server now, and wakes it if it sleeps.
func (r *Registry) Verify(ctx context.Context, server string) (units.Verification, error) {
	u, found, err := r.awakened(ctx, server)
	if err != nil {
		return units.Verification{}, err
	}
	v := r.verify(ctx, u, found[Tools], true)
	u.trial.wake() // it is to be shown
	return v, nil
}

// awakened is a server that runs, and what was found of it last.
func (r *Registry) awakened(ctx context.Context, server string) (*Upstream, *Listing, error) {
	s, err := r.views.Catalogue().server(server)
	if err == nil && s.upstream.isAsleep() {
		if err = r.demand.Wake(ctx, s.upstream); err == nil {
			s, err = r.views.Catalogue().server(server)
		}
	}
	switch {
	case err != nil:
		return nil, nil, err
	case !s.upstream.Alive():
		return nil, nil, jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "server %q is ending", server)
	}
	return s.upstream, s.found, nil
}
