package registry

import (
	"context"

	"github.com/pfar/pfar/policies/drift"
)

// driftKinds are the words for kinds of definitions.
var driftKinds = [...]string{
	Tools: drift.Tool, Prompts: drift.Prompt, Resources: drift.Resource, Templates: drift.Template,
}

// Offers returns all that a server has last offered, with what is held back.
func (t *trials) Offers(server string) ([]drift.Definition, error) {
	s, err := t.views.Catalogue().server(server)
	if err != nil {
		return nil, err
	}
	return definitions(s.found), nil
}

func definitions(l *Listing) []drift.Definition {
	list := []drift.Definition{}
	for k := Tools; k <= Templates; k++ {
		for _, i := range l[k] {
			list = append(list, drift.Definition{Kind: driftKinds[k], Name: i.Name, Raw: i.Raw})
		}
	}
	return list
}

// Refresh has a server list again what it offers, and returns what has changed.
func (t *trials) Refresh(ctx context.Context, server string) ([]drift.Change, error) {
	u, before, err := t.awakened(ctx, server)
	if err != nil {
		return nil, err
	}
	if !u.Hold() {
		return nil, errStopped
	}
	defer u.Release()
	round := u.lists.next()
	u.lists.again(0, AllKinds)
	if err := u.lists.await(ctx, round, u.Done()); err != nil {
		return nil, u.because(err)
	}
	s, err := t.views.Catalogue().server(server)
	if err != nil {
		return nil, err
	}
	list := drift.Compare(definitions(before), definitions(s.found))
	for i, c := range list {
		for k := Tools; k < Resources; k++ {
			list[i].Held = list[i].Held || c.Kind == driftKinds[k] && c.What != drift.Gone && s.held[k][c.Name]
		}
	}
	return list, nil
}
