package enforce

import (
	"context"
	"errors"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// Hear joins to a session's label what a server says outside of any request that it answers itself: its log messages,
// what it tells of resources, and the list of them, of which there are no parameters. It returns the notification's
// parameters as the client may have them. With an error the client must not get it.
//
// The owner has said declared of the server when it said that, and says now at present; nil: it is not up.
func (p *Point) Hear(ctx context.Context, who Identity, server string, declared, now []byte, method string, params []byte) ([]byte, error) {
	it := Item{Server: server, Declared: declared, Kind: gate.Resource, Fits: true}
	if now != nil {
		it.Now = func() (any, []byte) { return nil, now }
	}
	who, here := p.now(who, &it) // the stream that it comes on may be hours old
	if !here {
		return nil, errors.New("the client may not hear this server any more")
	}
	w, err := p.weigh(who, &it, &Request{Method: method, Answer: true})
	if err != nil {
		return nil, err
	}
	if d := w.policy.Decide(gate.Session{Profile: who.Profile, Label: gate.Start}, w.call); d.Verdict == gate.Deny {
		return nil, errors.New(lower(d.Reason))
	}
	pass := &Passage{point: p, who: who, item: it, method: method, facts: w.call.Facts, id: audit.NewID()}
	pass.closed.Store(true)
	if after := w.session.Label.Join(pass.Label()); after != w.session.Label {
		err := p.Trail.Append(&audit.Record{
			Kind: audit.Session, ID: pass.id, Client: who.Client, Session: who.Handle, Server: server, Method: method,
			Before: p.labelled(who, w.session.Label), After: &audit.Label{Label: after, Sources: []string{label.Source{Server: server, Call: pass.id}.String()}},
		})
		if err != nil {
			return nil, err
		}
	}
	message, ok := pass.Said(ctx, method, params)
	if !ok {
		return nil, errSuspicious
	}
	return message, nil
}
