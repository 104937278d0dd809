package flowdesk

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/flow/native"
	"github.com/pfar/pfar/policies/flow/node"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/jsonrpc"
)

// catalogue is what a client's flows can call: pfar's own nodes, and the tools that the client may use.
func (d *Desk) catalogue(c *clients.Caller) *node.Catalogue {
	var all []flow.Node
	for _, n := range d.nodes.List() {
		if c.Member.Rights.Tool(access.OwnNodes, n.ID) {
			all = append(all, n)
		}
	}
	served := c.Catalogue(d.calls.Registry)
	var silent []string
	for name, state := range served.States() {
		if !state.Up {
			silent = append(silent, name)
		}
	}
	for route := range served.Tools() {
		all = append(all, nodeOf(route))
	}
	for server, tool := range served.HeldTools() {
		all = append(all, node.Of(node.Tool{
			Server: server, Definition: fmt.Appendf(nil, `{"name":%s}`, jsonrpc.Quote(tool)),
			Held: "the owner has not accepted its definition: pfar pins show " + server,
		}))
	}
	slices.Sort(silent)
	return node.New(all, silent)
}

// nodeOf is a tool as a node.
func nodeOf(r registry.Route) flow.Node {
	server := r.Upstream.Server()
	var agreed struct {
		Version string `json:"version"`
	}
	_ = json.Unmarshal(r.Upstream.Agreed().Info, &agreed)
	own := server.Tools[r.Name]
	t := node.Tool{
		Server: server.Name, Version: agreed.Version, Definition: r.Item.Raw, Pin: r.Item.Pin, Pure: r.Item.Pure,
		Read:        !r.Item.Strange(),
		Description: own.Description, Aliases: slices.Clone(own.Aliases),
		Ports: node.Ports{Inputs: own.Inputs, Params: own.Params, Outputs: own.Outputs},
	}
	if own.Rename != "" {
		t.Aliases = append(t.Aliases, own.Rename)
	}
	if err := r.Upstream.Granted(r.Name); err != nil {
		t.Held = err.Error()
	}
	return node.Of(t)
}

// find finds a tool of a server for a client, by the server's own name of it.
func (d *Desk) find(c *clients.Caller, server, tool string) (registry.Route, error) {
	served := c.Catalogue(d.calls.Registry)
	if _, err := served.View(server); err != nil {
		return registry.Route{}, err
	}
	for route := range served.Tools() {
		if route.Name == tool && route.Upstream.Server().Name == server {
			return route, route.Upstream.Granted(tool)
		}
	}
	return registry.Route{}, jsonrpc.Errorf(protocol.CodeUnavailable,
		"this client has no tool %[2]s of %[1]s now", server, protocol.Quote([]byte(tool)))
}

// target is a tool with arguments as they would be called.
func target(r registry.Route, arguments []byte) (call.Target, error) {
	t := call.Target{Route: r, Kind: gate.Tool, Reads: r.Item.Reads}
	violation := r.Item.CheckArguments(arguments)
	if t.Fits = violation == nil; !t.Fits {
		return t, jsonrpc.Errorf(protocol.CodeUnavailable, "arguments of tool %q: %s", r.Name, violation.Text)
	}
	return t, nil
}

// appears waits until a server is known, for the first seconds of a gateway: servers that go on with it come one by
// one. It also waits for a server that is starting, as each is when pfard has ended and was started again.
func (d *Desk) appears(ctx context.Context, server string) {
	const first, starts = 15 * time.Second, 2 * time.Minute
	clock := d.calls.Clock
	left := first - clock.Now().Sub(d.begun)
	var late, given <-chan time.Time
	for {
		now := d.calls.Registry.Catalogue()
		switch known := now.Known(server); {
		case known && !now.Starting(server), !known && left <= 0:
			return
		case !known && late == nil:
			late = clock.After(left)
		case known && given == nil:
			given = clock.After(starts)
		}
		select {
		case <-now.Replaced():
		case <-late:
			left = 0
		case <-given:
			return
		case <-ctx.Done():
			return
		}
	}
}

// plan is a plan as the gate judges it.
func (d *Desk) plan(c *clients.Caller, who enforce.Identity, p *flow.Plan, floor gate.Label) (enforce.Plan, error) {
	plan := enforce.Plan{Flow: p.Flow.Name, Digest: p.Digest, Floor: floor}
	given := originsOf(p)
	for i := range p.Steps {
		s := &p.Steps[i]
		planned, err := given.arguments(i)
		if err != nil {
			return plan, err
		}
		if planned.Item, err = d.judged(c, who, s.Node, planned.Known, planned.Whole()); err != nil {
			return plan, &stepError{s.ID, err}
		}
		for _, next := range s.Next {
			planned.Next = append(planned.Next, next)
		}
		slices.Sort(planned.Next)
		plan.Steps = append(plan.Steps, planned)
	}
	return plan, nil
}

// stepError is the error of a step of a plan.
type stepError struct {
	step string
	err  error
}

func (e *stepError) Error() string { return "the step " + e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// judged is a node as the gate judges it. whole says that the arguments are all that a call will have.
func (d *Desk) judged(c *clients.Caller, who enforce.Identity, n *flow.Node, known []byte, whole bool) (
	enforce.Item, error) {
	if n.Server == "" {
		return d.nodes.Item(n.ID, who, known)
	}
	route, err := d.find(c, n.Server, n.Tool)
	if err != nil {
		return enforce.Item{}, err
	}
	t, wrong := target(route, known)
	if !whole {
		t.Fits = true
	} else if wrong != nil {
		return enforce.Item{}, wrong
	}
	return t.Judged(), nil
}

// writes reports whether a call of a node may change something. Of what is not known, it may.
func (d *Desk) writes(c *clients.Caller, n *flow.Node) bool {
	if n.Server == "" {
		return n.ID == native.WriteFile
	}
	route, err := d.find(c, n.Server, n.Tool)
	if err != nil {
		return true
	}
	t := call.Target{Route: route, Kind: gate.Tool, Fits: true}
	_, err = enforce.OwnCalls{Point: d.calls.Gate}.OnlyReads(t.Judged())
	return err != nil
}
