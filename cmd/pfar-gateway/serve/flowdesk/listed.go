package flowdesk

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/toolname"
	"github.com/pfar/pfar/units/flows"
)

// listMethod is what a client is shown of nodes counts as: their words are those of a list of tools.
const listMethod = "tools/list"

// lookup finds nodes for one order, and knows of which servers the mistakes that are found may repeat words that nobody
// has reviewed.
type lookup struct {
	*node.Catalogue
	strange map[string]bool
}

// unread reports whether a node has words that nobody has reviewed.
func unread(n *flow.Node) bool { return n.Server != "" && !n.Reviewed }

// Find is that of the catalogue.
func (n *lookup) Find(name string) (*flow.Node, error) {
	found, err := n.Catalogue.Find(name)
	if err == nil {
		if unread(found) {
			n.strange[found.Server] = true
		}
		return found, nil
	}
	text := err.Error()
	if wrong, is := errors.AsType[*toolname.Error](err); is {
		text += " " + wrong.Advice
	}
	for _, other := range n.All() { // it may name some as near
		if unread(&other) && strings.Contains(text, other.Tool) {
			n.strange[other.Server] = true
		}
	}
	return nil, err
}

// nodes are those that the client's flows can call, for this order.
func (x *exchange) nodes() *lookup {
	x.looked = &lookup{Catalogue: x.catalogue(&x.caller), strange: make(map[string]bool)}
	return x.looked
}

// listed passes the gate with what the client is about to be shown of what servers list, as tools/list does. It returns
// why servers are left out. An operator at the Unix socket, who has named the client, shows it to no model: pfar's own
// commands name "default", too, and no order of a program that is a client does.
func (x *exchange) listed(servers map[string]bool) (left map[string]error) {
	if x.caller.Named || len(servers) == 0 {
		return nil
	}
	owners := make(map[string]enforce.Lister)
	for _, up := range x.caller.Catalogue(x.calls.Registry).Upstreams() {
		owner, word := up.Declared()
		owners[up.Server().Name] = enforce.Lister{Server: up.Server().Name, Declared: word, Owner: owner}
	}
	left = make(map[string]error)
	for _, server := range slices.Sorted(maps.Keys(servers)) {
		l := enforce.Listing{Lister: owners[server], Method: listMethod, Strange: true}
		l.Server = server
		if err := x.calls.Gate.Listed(x.r.Context(), x.identity(), l); err != nil {
			left[server] = err
		}
	}
	return left
}

// shown takes down what the client is shown of lists, as secret as all that its session has seen.
func (x *exchange) shown(a any) {
	if x.caller.Named {
		return
	}
	who := x.identity()
	l, err := x.calls.Gate.Sessions.Label(who.Client, who.Handle)
	text, wrong := json.Marshal(a)
	if err == nil && wrong == nil {
		x.calls.Gate.Reads.Note(who.Client, who.Handle, l, text)
	}
}

// catalogued answers with the nodes that the client's flows can call, without those that the gate keeps from it.
func (x *exchange) catalogued() {
	all := x.catalogue(&x.caller).All()
	strange := make(map[string]bool)
	for i := range all {
		if unread(&all[i]) {
			strange[all[i].Server] = true
		}
	}
	left := x.listed(strange)
	for _, server := range slices.Sorted(maps.Keys(left)) {
		if err := left[server]; !errors.Is(err, enforce.ErrNotListed) {
			x.refuse(fmt.Errorf("listing the tools of %s: %w", server, err))
			return
		}
	}
	all = slices.DeleteFunc(all, func(n flow.Node) bool { return left[n.Server] != nil })
	if len(strange) > 0 {
		x.shown(all)
	}
	x.send(flows.Answer{Nodes: all})
}

// worded passes the gate with the problems of an answer, which may repeat words of nodes that nobody has reviewed. Of
// those that the client may not be shown it says where they are.
func (x *exchange) worded(a *flows.Answer) {
	if len(a.Problems) == 0 || x.looked == nil || len(x.looked.strange) == 0 {
		return
	}
	if why := withheld(x.listed(x.looked.strange)); why != "" {
		for i := range a.Problems {
			p := &a.Problems[i]
			p.Text, p.Advice = "there is a mistake here, whose words are withheld: "+why, ""
		}
		return
	}
	x.shown(a.Problems)
}

// withheld says why the client may not have words of the first server that is left out; "": none is.
func withheld(left map[string]error) string {
	for _, server := range slices.Sorted(maps.Keys(left)) {
		return fmt.Sprintf("they may repeat what the server %s lists: %v", server, left[server])
	}
	return ""
}

// stepped passes the gate with the steps of an answer, which may repeat words of nodes that nobody has reviewed. If the
// client may not be shown these, the plan cannot run. The answer to an order to run it leaves such steps out: the
// session is to begin with what it has seen, and the order to show the plan shows them.
func (x *exchange) stepped(p *flow.Plan, a *flows.Answer) {
	servers := repeated(p, a.Steps)
	if x.order.Verb == flows.Run && len(servers) > 0 {
		a.Steps = nil
		return
	}
	if why := withheld(x.listed(servers)); why != "" {
		a.Steps = nil
		a.Problems = append(a.Problems, flow.Problem{Text: "the flow cannot run, for its steps are withheld: " + why})
	} else if len(servers) > 0 {
		x.shown(a.Steps)
	}
}

// repeated are the servers whose unreviewed words the steps of an answer may repeat: names of arguments that the flow
// does not give, and defaults.
func repeated(p *flow.Plan, steps []flows.Judged) map[string]bool {
	servers := make(map[string]bool)
	defaults := func(p flow.Port) bool { return p.Required && len(p.Default) > 0 }
	for i := range p.Steps {
		s := &p.Steps[i]
		at := slices.IndexFunc(steps, func(j flows.Judged) bool { return j.Step == s.ID })
		if at < 0 || !unread(s.Node) {
			continue
		}
		if len(steps[at].From) > 0 || len(steps[at].Or) > 0 || slices.ContainsFunc(s.Node.Inputs, defaults) ||
			slices.ContainsFunc(s.Node.Params, defaults) {
			servers[s.Node.Server] = true
		}
	}
	return servers
}
