package registry

import (
	"context"
	"errors"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/jsonrpc"
)

// trials asks servers, on pfar's own account, whether their secrets are right and what they offer.
type trials struct {
	views     *views
	demand    *demand
	upstreams *upstreams
	limits    *Limits
}

// Verifies has the secrets of servers verified, from before the first comes up.
func (t *trials) Verifies(v Verifier) { t.upstreams.verifier = v }

// verify finds out whether a server's secrets are right. What is remembered counts, unless they are to be verified
// anew.
func (t *trials) verify(ctx context.Context, u *Upstream, tools []Item, anew bool) units.Verification {
	verifier := t.upstreams.verifier
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
	late := errors.New("the verification took too long")
	ctx, cancel := context.WithTimeoutCause(ctx, t.limits.Verify, late)
	defer cancel()
	v := verifier.Verify(ctx, u, tools, proof)
	v.For = proof
	u.log.Info("the server's secrets", "result", v.Result, "tool", v.Tool, "words", v.Words)
	u.trial.take(v)
	return v
}

// Verify verifies the secrets of a server now, and wakes it if it sleeps.
func (t *trials) Verify(ctx context.Context, server string) (units.Verification, error) {
	u, found, err := t.awakened(ctx, server)
	if err != nil {
		return units.Verification{}, err
	}
	v := t.verify(ctx, u, found[Tools], true)
	u.trial.wake() // it is to be shown
	return v, nil
}

// awakened is a server that runs, and what was found of it last.
func (t *trials) awakened(ctx context.Context, server string) (*Upstream, *Listing, error) {
	s, err := t.views.Catalogue().server(server)
	if err == nil && s.upstream.isAsleep() {
		if err = t.demand.Wake(ctx, s.upstream); err == nil {
			s, err = t.views.Catalogue().server(server)
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
