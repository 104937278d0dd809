package method

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Watches has servers tell of changes to resources.
type Watches struct {
	Calls   *call.Calls
	Hub     *hub.Hub
	Signals *Signals
	Limit   int    // resources that one client watches
	Noted   func() // is called when what the next gateway has to know has changed
}

// subscribe has the client told when a resource changes.
func (w *Watches) subscribe(v *call.Visit) (reply.Reply, error) {
	if v.Session == nil {
		return reply.Reply{}, onlyInSessions("subscriptions/listen")
	}
	find := func() (call.Target, error) { return resource(w.Calls, v) }
	first, err := find()
	if err != nil {
		w.Calls.Missed(v, call.Target{}, err)
		return reply.Reply{}, err
	}
	return w.Calls.Admit(v, first, func(c *call.Call) (reply.Reply, error) {
		t, release, err := c.Hold(v.Ctx, first.Still(find, c.Pass.Declared()))
		if err != nil {
			return reply.Reply{}, err
		}
		defer release()
		return w.subscribeTo(c, t)
	})
}

// subscribeTo asks the server of the resource, which is awake.
func (w *Watches) subscribeTo(c *call.Call, t call.Target) (reply.Reply, error) {
	uri, err := c.Text("uri")
	if err != nil {
		return reply.Reply{}, err
	}
	sub := c.Session.Sub
	had := sub.Watching(uri)
	if !sub.Watch(uri, t.Upstream.Server().Name, w.Limit) {
		return reply.Reply{}, w.full()
	}
	re := reply.Empty
	up, err := c.Starter.Process(c.Ctx, c.Session, t.Upstream)
	switch {
	case err != nil:
	case up.Modern():
		err = ownWords(up, up.Watch(c.Ctx, uri))
	default:
		re, err = c.Forward(t)
	}
	if err != nil && !had {
		sub.Unwatch(uri)
	}
	w.Noted()
	return re, err
}

func (w *Watches) full() error {
	return jsonrpc.Errorf(protocol.CodeBusy, "at most %d resources can be watched", w.Limit)
}

// unsubscribe tells the server if no other client watches, and the gate lets the server hear it.
func (w *Watches) unsubscribe(v *call.Visit) (reply.Reply, error) {
	if v.Session == nil {
		return reply.Reply{}, onlyInSessions("subscriptions/listen")
	}
	uri, err := v.Text("uri")
	if err != nil {
		return reply.Reply{}, err
	}
	sub := v.Session.Sub
	had := sub.Watching(uri)
	sub.Unwatch(uri)
	w.Noted()
	t, err := resource(w.Calls, v)
	switch {
	case err != nil && had:
		return reply.Empty, nil // the resource is gone, and with it what the server knows
	case err != nil:
		return reply.Reply{}, err
	case !had:
		return reply.Empty, nil // the server hears of no address that the gate has not seen
	}
	main := t.Upstream
	server := main.Server().Name
	if !w.Signals.heard(v.Identity(), main.Server(), mcp.MethodResourcesUnsubscribe) {
		sub.Leave(map[string]string{uri: server})
		w.Noted()
		return reply.Empty, nil
	}
	if !main.Hold() {
		return reply.Empty, nil // it sleeps, and knows of nobody who watches
	}
	defer main.Release()
	if !v.Session.Owns(main) {
		err = main.Unwatch(v.Ctx, func(uri string) bool { return w.Hub.Watches(server, uri) }, uri)
	} else if p, runs := v.Session.Own.Running()[server]; runs { // none is started only to be told
		err = p.Up.Unwatch(v.Ctx, func(string) bool { return false }, uri)
	}
	return reply.Empty, ownWords(main, err)
}

// ownWords is an error as a client may have it that has not passed the gate with its request: without what a server
// says in it.
func ownWords(up *registry.Upstream, err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Raw != nil {
		return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q refuses it", up.Server().Name)
	}
	return err
}

// all subscribes to the resources of a filter that can be, and returns those, as the filter has them.
func (w *Watches) all(v *call.Visit, sub *hub.Subscriber, raw []byte) (granted [][]byte) {
	if raw == nil {
		return nil
	}
	wanted, err := jsonrpc.Array(raw, nil, w.Limit)
	if err != nil {
		return nil
	}
	type watch struct {
		uris []string
		raw  [][]byte
	}
	per := make(map[string]*watch)
	for _, r := range wanted {
		uri, err := jsonrpc.String(r)
		if err != nil {
			continue
		}
		route, ok, err := v.Catalogue(w.Calls.Registry).ByURI(v.Endpoint, uri)
		if err != nil || !ok || !route.Upstream.Agreed().Subscribes() {
			continue
		}
		one := per[route.Upstream.Server().Name]
		if one == nil {
			one = new(watch)
			per[route.Upstream.Server().Name] = one
		}
		one.uris, one.raw = append(one.uris, uri), append(one.raw, r)
	}
	for server, one := range per {
		if w.on(v, sub, server, one.uris) == nil {
			granted = append(granted, one.raw...)
		}
	}
	return granted
}

// on subscribes to resources at a server's shared process. All of them pass the gate before the server is woken, and
// before a restart of the server finds any.
func (w *Watches) on(v *call.Visit, sub *hub.Subscriber, server string, uris []string) error {
	find := func() (call.Target, error) {
		route, ok, err := v.Catalogue(w.Calls.Registry).ByURI(server, uris[0])
		if err == nil && !ok {
			err = invalidParams("server %q has no resource %.200q", server, uris[0])
		}
		return call.Resource(route), err
	}
	first, err := find()
	if err != nil {
		return err
	}
	if w.Calls.Gate == nil {
		return call.ErrNoGate
	}
	var passes []*enforce.Passage
	for _, uri := range uris {
		t := first
		t.Name = uri
		r := enforce.Request{Method: string(mcp.MethodResourcesSubscribe), Arguments: fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))}
		r.Params = r.Arguments
		pass, denied := w.Calls.Gate.Enter(v.Ctx, v.Identity(), t.Judged(), r)
		if err = denied; err != nil {
			break
		}
		passes = append(passes, pass)
	}
	if err == nil {
		err = w.now(v.Ctx, sub, first.Still(find, passes[0].Declared()), uris)
	}
	outcome, _ := call.Judge(v.Ctx, reply.Reply{}, err)
	for _, pass := range passes {
		if unrecorded := pass.End(outcome.String(), 0); err == nil {
			err = unrecorded
		}
	}
	return err
}

// now wakes the server and has it tell of resources that have passed the gate.
func (w *Watches) now(ctx context.Context, sub *hub.Subscriber, find call.Find, uris []string) error {
	t, release, err := w.Calls.Hold(ctx, find)
	if err != nil {
		return err
	}
	defer release()
	for i, uri := range uris {
		if !sub.Watch(uri, t.Upstream.Server().Name, w.Limit) {
			sub.Unwatch(uris[:i]...)
			return w.full()
		}
	}
	if err = t.Upstream.Watch(ctx, uris...); err != nil {
		sub.Unwatch(uris...)
	}
	return err
}

// Restore tells a server's new process what its clients watch.
func (w *Watches) Restore(up *registry.Upstream) {
	server := up.Server()
	if uris := w.Hub.Watched(server); len(uris) > 0 && up.Agreed().Subscribes() {
		if err := up.Watch(w.Calls.Life, uris...); err != nil {
			w.Calls.Log.Warn("subscribing again after a restart, ignoring", "server", server.Name, "error", err.Error())
		}
	}
}

// Leave ends the subscriptions of a client that has left. who is that client, if here says that it is still let in. The
// gate may not let a server hear it: then the subscription stays, and its notifications go to no client.
func (w *Watches) Leave(sub *hub.Subscriber, who enforce.Identity, here bool) {
	state := sub.State()
	kept, told, silent := make(map[string]string), make(map[string]string), make(map[string]bool)
	maps.Copy(kept, state.Kept)
	for _, server := range slices.Compact(slices.Sorted(maps.Values(state.URIs))) {
		is := handover.Server{Name: server, Declared: w.Hub.Declared(server)}
		silent[server] = !here || !w.Signals.heard(who, is, mcp.MethodResourcesUnsubscribe)
	}
	for uri, server := range state.URIs {
		if silent[server] {
			kept[uri] = server
		} else {
			told[uri] = server
		}
	}
	w.Hub.Leave(kept)
	w.Unwatch(told, sub.Tag)
}

// Unwatch ends what only a client that left has watched; tag is that of its stream, if that is subscriptions/listen.
func (w *Watches) Unwatch(uris map[string]string, tag []byte) {
	per := make(map[*registry.Upstream][]string)
	for uri, server := range uris {
		route, ok, err := w.Calls.Registry.Catalogue().ByURI(server, uri)
		own := ok && route.Upstream.Server().Sessions.Own && tag == nil // the process that was told of it is gone
		if err == nil && ok && !own && !w.Hub.Watches(server, uri) {
			per[route.Upstream] = append(per[route.Upstream], uri)
		}
	}
	for up, uris := range per {
		go func() {
			if !up.Hold() {
				return
			}
			defer up.Release()
			wanted := func(uri string) bool { return w.Hub.Watches(up.Server().Name, uri) }
			if err := up.Unwatch(w.Calls.Life, wanted, uris...); err != nil {
				w.Calls.Log.Debug("unsubscribing, ignoring", "server", up.Server().Name, "error", err.Error())
			}
		}()
	}
}
