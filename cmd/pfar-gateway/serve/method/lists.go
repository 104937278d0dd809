package method

import (
	"errors"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// list answers from the ready bytes.
func list(calls *call.Calls, v *call.Visit, k registry.Kind) (reply.Reply, error) {
	cursor := ""
	if v.Parameters.Index("cursor") >= 0 {
		var err error
		if cursor, err = v.Text("cursor"); err != nil {
			return reply.Reply{}, err
		}
	}
	c := v.Catalogue(calls.Registry)
	view, err := c.View(v.Endpoint)
	if err != nil {
		return reply.Reply{}, err
	}
	if k == registry.Tools && searching(v) && cursor == "" {
		return reply.Reply{Result: own, Hint: view.Lists[k].Hint()}, nil
	}
	left, err := listed(calls, v, c, view.Lists[k])
	if err != nil {
		return reply.Reply{}, err
	}
	if len(left) > 0 {
		view = calls.Registry.Without(c, v.Endpoint, left)
	}
	page, ok := view.Lists[k].Page(cursor)
	if !ok {
		return reply.Reply{}, invalidParams("the cursor is not of this list, which may have changed: begin again")
	}
	if len(view.Lists[k].Strange())+len(view.Lists[k].Holding()) > 0 {
		noted(calls, v, page)
	}
	return reply.Reply{Result: page, Closed: true, Hint: view.Lists[k].Hint()}, nil
}

// listed passes the gate with unreviewed text in a list, which counts as an answer of its server. It returns the
// servers that the client's profile or a rule leaves out.
func listed(calls *call.Calls, v *call.Visit, c *registry.Catalogue, list *registry.List) (left []string, err error) {
	strange, holding := list.Strange(), list.Holding()
	servers := slices.Concat(strange, holding)
	slices.Sort(servers)
	for _, server := range slices.Compact(servers) {
		err := show(calls, v, lister(c, server), slices.Contains(holding, server), slices.Contains(strange, server))
		switch {
		case errors.Is(err, enforce.ErrNotListed):
			left = append(left, server)
		case err != nil:
			return nil, jsonrpc.Errorf(approval.Code, "what %q lists may not be shown: %v", server, err)
		}
	}
	return left, nil
}

// noted takes down a page of a list, as secret as all that the session has seen: servers have their parts in it.
func noted(calls *call.Calls, v *call.Visit, page []byte) {
	if calls.Gate == nil {
		return
	}
	who := v.Identity()
	if l, err := calls.Gate.Sessions.Label(who.Client, who.Handle); err == nil {
		calls.Gate.Reads.Note(who.Client, who.Handle, l, page)
	}
}

// show passes the gate with text of one server's list.
func show(calls *call.Calls, v *call.Visit, of enforce.Lister, holding, strange bool) error {
	if !holding && !strange {
		return nil
	}
	if calls.Gate == nil {
		return call.ErrNoGate
	}
	l := enforce.Listing{Lister: of, Method: v.Method, Holding: holding, Strange: strange}
	return calls.Gate.Listed(v.Ctx, v.Identity(), l)
}

// lister returns what the owner says of a server of the catalogue, nothing if it has none of that name. A list and its
// lister are of one catalogue: a server that ends between the two would count as one of which nothing is known.
func lister(c *registry.Catalogue, server string) enforce.Lister {
	for _, up := range c.Upstreams() {
		if up.Server().Name == server {
			return listerOf(up)
		}
	}
	return enforce.Lister{Server: server}
}

func listerOf(up *registry.Upstream) enforce.Lister {
	owner, word := up.Declared()
	return enforce.Lister{Server: up.Server().Name, Declared: word, Owner: owner}
}
