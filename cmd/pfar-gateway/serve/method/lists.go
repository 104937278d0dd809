package method

import (
	"errors"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
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
	view, err := v.Catalogue(calls.Registry).View(v.Endpoint)
	if err != nil {
		return reply.Reply{}, err
	}
	left, err := listed(calls, v, view.Lists[k])
	if err != nil {
		return reply.Reply{}, err
	}
	if len(left) > 0 {
		view = calls.Registry.Without(v.Catalogue(calls.Registry), v.Endpoint, left)
	}
	page, ok := view.Lists[k].Page(cursor)
	if !ok {
		return reply.Reply{}, invalidParams("the cursor is not of this list, which may have changed: begin again")
	}
	return reply.Reply{Result: page, Closed: true, Hint: view.Lists[k].Hint()}, nil
}

// listed passes the gate with unreviewed text in a list, which counts as an answer of its server. It returns the
// servers that the client's profile or a rule leaves out.
func listed(calls *call.Calls, v *call.Visit, list *registry.List) (left []string, err error) {
	strange, holding := list.Strange(), list.Holding()
	servers := slices.Concat(strange, holding)
	slices.Sort(servers)
	for _, server := range slices.Compact(servers) {
		err := show(calls, v, server, slices.Contains(holding, server), slices.Contains(strange, server))
		switch {
		case errors.Is(err, enforce.ErrNotListed):
			left = append(left, server)
		case err != nil:
			return nil, jsonrpc.Errorf(approval.Code, "what %q lists may not be shown: %v", server, err)
		}
	}
	return left, nil
}

// show passes the gate with text of one server's list.
func show(calls *call.Calls, v *call.Visit, server string, holding, strange bool) error {
	if !holding && !strange {
		return nil
	}
	if calls.Gate == nil {
		return call.ErrNoGate
	}
	return calls.Gate.Listed(v.Ctx, v.Identity(), enforce.Listing{
		Lister: lister(calls.Registry, server), Method: v.Method, Holding: holding, Strange: strange,
	})
}

// lister returns what the owner says of a server, nothing if it is not up.
func lister(reg *registry.Registry, server string) enforce.Lister {
	for _, up := range reg.Catalogue().Upstreams() {
		if up.Server().Name == server {
			owner, word := up.Declared()
			return enforce.Lister{Server: server, Declared: word, Owner: owner}
		}
	}
	return enforce.Lister{Server: server}
}
