package enforce

import (
	"context"
	"errors"
	"fmt"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// Listing is what a client is about to be shown of what a server lists.
type Listing struct {
	Lister
	Method  string
	Holding bool // resources or templates, whose words say what the server holds
	Strange bool // nobody has reviewed some of it
}

// Lister is a server that lists something. The fields are as in Item.
type Lister struct {
	Server   string
	Declared []byte
	Owner    any
}

// ErrNotListed is of a listing that the client's profile, or a rule, keeps from it.
var ErrNotListed = errors.New("the policy keeps it from this client")

// Listed joins a listing to a session's label, before the client is shown it. Words that nobody has reviewed are what
// the server answers, so they have the label of that. Reviewed words have none, but those that say which resources
// there are: they are as secret as the resources. With an error the client must not be shown it.
func (p *Point) Listed(ctx context.Context, who Identity, l Listing) error {
	if !l.Strange && !l.Holding || who.Person && !l.Holding { // a person reads it, and no model
		return nil
	}
	p.await(ctx)
	w, who, err := p.weighListing(who, l)
	more := gate.Joined(gate.Session{Label: gate.Start}, w.call.Facts)
	switch {
	case !l.Holding && more.Integrity == gate.Clean:
		return nil
	case err != nil:
		return err
	case !l.Strange:
		more.Integrity = gate.Clean
	}
	if d := w.policy.Decide(gate.Session{Profile: who.Profile, Label: gate.Start}, w.call); d.Verdict == gate.Deny {
		return fmt.Errorf("%w: %s", ErrNotListed, lower(d.Reason))
	}
	by := label.Source{Server: l.Server, Tool: l.Method, Call: audit.NewID()}
	if after := w.session.Label.Join(more); after != w.session.Label {
		err := p.Trail.Append(&audit.Record{
			Kind: audit.Session, ID: by.Call, Client: who.Client, Session: who.Handle, Server: l.Server, Method: l.Method,
			Before: p.labelled(who, w.session.Label), After: &audit.Label{Label: after, Sources: []string{by.String()}},
		})
		if err != nil {
			return err
		}
	}
	_, _, err = p.Sessions.Raise(who.Client, who.Handle, more, by)
	return err
}

// weighListing finds out what is known of the server. An error is none of the policy's making.
func (p *Point) weighListing(who Identity, l Listing) (weighed, Identity, error) {
	it := Item{Server: l.Server, Declared: l.Declared, Owner: l.Owner, Kind: gate.Resource, Fits: true}
	who, here := p.now(who, &it)
	if !here {
		return weighed{}, who, errGone
	}
	w, err := p.weigh(who, &it, &Request{Method: l.Method, Answer: true})
	switch {
	case err != nil:
	case w.policy == nil:
		err = errors.New("no policy yet")
	case !w.call.Audit:
		err = errors.New("the record of it cannot be written")
	}
	return w, who, err
}

// Clean reports whether strangers can write nothing of what a server says to this client. Without a policy nobody
// knows.
func (p *Point) Clean(ctx context.Context, who Identity, l Lister) bool {
	p.await(ctx)
	w, _, err := p.weighListing(who, Listing{Lister: l})
	return err == nil && gate.Joined(gate.Session{Label: gate.Start}, w.call.Facts).Integrity == gate.Clean
}

// Facts returns the facts of an item for every client. A client's own declaration may make them stricter.
func (p *Point) Facts(it Item) gate.Facts {
	return p.facts.of(p.policy.Load(), &it).facts.Stained(p.Sessions.Stained(it.Server))
}

// Offers reports whether a client's profile ever allows a call of a tool, in some session and with some arguments. It
// also reports true while there is no policy.
func (p *Point) Offers(who Identity, it Item) bool {
	policy := p.policy.Load()
	return policy == nil || !policy.Never(who.Profile, tightened(p.facts.of(policy, &it).facts, who.Rights, it.Server))
}
