package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// subscribe has the client told when a resource changes.
func (x *exchange) subscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, onlyInSessions("subscriptions/listen")
	}
	uri, route, err := x.resource()
	if err != nil {
		x.missed(target{}, err)
		return reply{}, err
	}
	first := resourceOf(route)
	if err := x.enter(ctx, first); err != nil {
		return x.denied(ctx, first, err)
	}
	re, err := x.subscribed(ctx, uri, first)
	return x.left(ctx, re, err)
}

// subscribed wakes the server of a resource, and subscribes.
func (x *exchange) subscribed(ctx context.Context, uri string, first target) (reply, error) {
	t, release, err := x.hold(ctx, first.still(func() (t target, err error) {
		_, t.Route, err = x.resource()
		return t, err
	}, x.pass.Declared()))
	if err != nil {
		return reply{}, err
	}
	defer release()
	return x.subscribeTo(ctx, t.Route, uri)
}

// subscribeTo asks the server of the resource, which is awake.
func (x *exchange) subscribeTo(ctx context.Context, route registry.Route, uri string) (reply, error) {
	sub, server := x.session.sub, route.Upstream.Server().Name
	had := sub.watching(uri)
	if !sub.watch(uri, server, x.srv.limits.Watched) {
		return reply{}, jsonrpc.Errorf(registry.CodeBusy, "at most %d resources can be watched", x.srv.limits.Watched)
	}
	re := empty
	up, err := x.process(ctx, route.Upstream)
	switch {
	case err != nil:
	case up.Modern():
		err = ownWords(up, up.Watch(ctx, uri))
	default:
		re, err = x.forward(ctx, resourceOf(route))
	}
	if err != nil && !had {
		sub.unwatch(uri)
	}
	x.srv.noted()
	return re, err
}

// unsubscribe tells the server only when nobody else watches, and the session's label lets it hear that.
func (x *exchange) unsubscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, onlyInSessions("subscriptions/listen")
	}
	uri, err := x.text("uri")
	if err != nil {
		return reply{}, err
	}
	sub := x.session.sub
	had := sub.watching(uri)
	sub.unwatch(uri)
	x.srv.noted()
	_, route, err := x.resource()
	switch {
	case err != nil && had:
		return empty, nil // the resource is gone, and with it what the server knows
	case err != nil:
		return reply{}, err
	case !had:
		return empty, nil // the server hears of no address that the gate has not seen
	}
	main := route.Upstream
	server := main.Server().Name
	if !x.srv.heard(x.identity(), main.Server(), mcp.MethodResourcesUnsubscribe) {
		sub.leave(map[string]string{uri: server})
		x.srv.noted()
		return empty, nil
	}
	if !main.Hold() {
		return empty, nil // it sleeps, and knows of nobody who watches
	}
	defer main.Release()
	if x.owns(main) {
		err = x.session.unwatched(ctx, server, uri)
	} else {
		err = main.Unwatch(ctx, func(uri string) bool { return x.srv.hub.watches(server, uri) }, uri)
	}
	return empty, ownWords(main, err)
}

// ownWords is an error as a client may have it that has not passed the gate with its request: without what a server
// says in it.
func ownWords(up *registry.Upstream, err error) error {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && e.Raw != nil {
		return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q refuses it", up.Server().Name)
	}
	return err
}

// unwatched tells the session's own process of a server, if there is one: none is started only to be told.
func (s *session) unwatched(ctx context.Context, server, uri string) error {
	for _, p := range s.processes() {
		if p.up.Server().Name == server {
			return p.up.Unwatch(ctx, func(string) bool { return false }, uri)
		}
	}
	return nil
}

// onlyInSessions is the error of methods that since 2026-07-28 there are others for.
func onlyInSessions(instead string) error {
	return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s it is %s", mcp.ProtocolVersion20260728, instead)
}

// watchAll subscribes to the resources of a filter that can be, and returns the answer's member that says which,
// after a comma.
func (x *exchange) watchAll(ctx context.Context, sub *subscriber, raw []byte) []byte {
	if raw == nil {
		return nil
	}
	wanted, err := jsonrpc.Array(raw, nil, x.srv.limits.Watched)
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
		route, ok, err := x.catalogue().ByURI(x.endpoint, uri)
		if err != nil || !ok || !route.Upstream.Agreed().Subscribes() {
			continue
		}
		w := per[route.Upstream.Server().Name]
		if w == nil {
			w = new(watch)
			per[route.Upstream.Server().Name] = w
		}
		w.uris, w.raw = append(w.uris, uri), append(w.raw, r)
	}
	var granted [][]byte
	for server, w := range per {
		if x.watchOn(ctx, sub, server, w.uris) == nil {
			granted = append(granted, w.raw...)
		}
	}
	if len(granted) == 0 {
		return nil
	}
	return slices.Concat([]byte(`,"resourceSubscriptions":[`), bytes.Join(granted, []byte{','}), []byte{']'})
}

// watchOn has a server's shared process tell of changes to resources. Before all of them have passed the gate, none is
// where a restart of the server finds it, and the server sleeps on.
func (x *exchange) watchOn(ctx context.Context, sub *subscriber, server string, uris []string) error {
	find := func() (target, error) {
		route, ok, err := x.catalogue().ByURI(server, uris[0])
		if err == nil && !ok {
			err = invalidParams("server %q has no resource %.200q", server, uris[0])
		}
		return resourceOf(route), err
	}
	first, err := find()
	if err != nil {
		return err
	}
	if x.srv.gate == nil {
		return errNoGate
	}
	var passes []*enforce.Passage
	for _, uri := range uris {
		t := first
		t.Name = uri
		r := enforce.Request{Method: string(mcp.MethodResourcesSubscribe), Arguments: fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))}
		r.Params = r.Arguments
		pass, denied := x.srv.gate.Enter(ctx, x.identity(), itemOf(t), r)
		if err = denied; err != nil {
			break
		}
		passes = append(passes, pass)
	}
	if err == nil {
		err = x.watchNow(ctx, sub, first.still(find, passes[0].Declared()), uris)
	}
	outcome, _ := judged(ctx, reply{}, err)
	for _, pass := range passes {
		if unrecorded := pass.End(outcome.String(), 0); err == nil {
			err = unrecorded
		}
	}
	return err
}

// watchNow wakes the server and has it tell of resources that have passed the gate.
func (x *exchange) watchNow(ctx context.Context, sub *subscriber, find func() (target, error), uris []string) error {
	t, release, err := x.hold(ctx, find)
	if err != nil {
		return err
	}
	defer release()
	for i, uri := range uris {
		if sub.watch(uri, t.Upstream.Server().Name, x.srv.limits.Watched) {
			continue
		}
		for _, uri := range uris[:i] {
			sub.unwatch(uri)
		}
		return jsonrpc.Errorf(registry.CodeBusy, "at most %d resources can be watched", x.srv.limits.Watched)
	}
	if err = t.Upstream.Watch(ctx, uris...); err != nil {
		for _, uri := range uris {
			sub.unwatch(uri)
		}
	}
	return err
}

// restore tells a server's new process what its clients watch, and which log messages they want.
func (s *Server) restore(up *registry.Upstream) {
	server := up.Server()
	if uris := s.hub.watched(server); len(uris) > 0 && up.Agreed().Subscribes() {
		if err := up.Watch(s.calls, uris...); err != nil {
			s.log.Warn("subscribing again after a restart, ignoring", "server", server.Name, "error", err.Error())
		}
	}
	if level := s.hub.lowest(server.Name); level > 0 && !server.Sessions.Own {
		s.level(s.calls, up, level)
	}
}

// level sets the level of the log messages of a server that keeps one for all its clients.
func (s *Server) level(ctx context.Context, up *registry.Upstream, level int) {
	if up.Modern() || !up.Agreed().Has("logging") || !up.Louder(level) {
		return // it is told with each call, or has been
	}
	params := fmt.Appendf(nil, `{"level":%q}`, levels[level])
	if _, err := up.Call(ctx, registry.Call{Method: string(mcp.MethodSetLogLevel), Params: params}); err != nil {
		s.log.Warn("setting a server's log level, ignoring", "server", up.Server().Name, "error", err.Error())
	}
}

// heard reports whether a server may hear what a client does outside of any request, as the gate decides. What there
// would be too many records of, it does not hear.
func (s *Server) heard(who enforce.Identity, server handover.Server, method mcp.MCPMethod) bool {
	if s.gate == nil || !s.signals.allow(who.Client) {
		return false
	}
	return s.gate.Signal(who, enforce.Item{Server: server.Name, Declared: server.Declared, Kind: gate.Resource, Fits: true}, string(method))
}

// leaves takes back what a client that goes by itself has watched. Servers that may not hear of that go on telling, and
// nobody listens.
func (s *Server) leaves(t *session) {
	who, here := s.identityOf(t)
	sub := t.sub
	sub.mu.Lock()
	all := maps.Clone(sub.uris)
	kept := make(map[string]string)
	maps.Copy(kept, sub.kept)
	sub.mu.Unlock()
	silent := make(map[string]bool)
	for _, server := range slices.Compact(slices.Sorted(maps.Values(all))) {
		s.hub.mu.Lock()
		declared := s.hub.declared[server]
		s.hub.mu.Unlock()
		silent[server] = !here || !s.heard(who, handover.Server{Name: server, Declared: declared}, mcp.MethodResourcesUnsubscribe)
	}
	told := make(map[string]string)
	for uri, server := range all {
		if silent[server] {
			kept[uri] = server
		} else {
			told[uri] = server
		}
	}
	s.hub.leave(kept)
	s.unwatch(told, sub.tag)
}

// unwatch ends what only a client that left has watched; tag is that of its stream, if that is subscriptions/listen.
func (s *Server) unwatch(uris map[string]string, tag []byte) {
	if len(uris) == 0 {
		return
	}
	per := make(map[*registry.Upstream][]string)
	for uri, server := range uris {
		route, ok, err := s.registry.Catalogue().ByURI(server, uri)
		own := ok && route.Upstream.Server().Sessions.Own && tag == nil // whoever was told of it is gone
		if err == nil && ok && !own && !s.hub.watches(server, uri) {
			per[route.Upstream] = append(per[route.Upstream], uri)
		}
	}
	for up, uris := range per {
		go func() {
			if !up.Hold() {
				return
			}
			defer up.Release()
			wanted := func(uri string) bool { return s.hub.watches(up.Server().Name, uri) }
			if err := up.Unwatch(s.calls, wanted, uris...); err != nil {
				s.log.Debug("unsubscribing, ignoring", "server", up.Server().Name, "error", err.Error())
			}
		}()
	}
}

// watch adds a resource. It reports false if there are limit of them.
func (s *subscriber) watch(uri, server string, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.uris[uri]; !ok && len(s.uris) >= limit {
		return false
	}
	s.uris[uri] = server
	return true
}

func (s *subscriber) watching(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.uris[uri]
	return ok
}

func (s *subscriber) unwatch(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uris, uri)
}

// leave notes resources that the client watches no more, of which their servers have not been told.
func (s *subscriber) leave(uris map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = make(map[string]string)
	}
	maps.Copy(s.kept, uris)
}

// leave is that of a client that is gone. There are no more of a server than it can be watched for.
func (h *hub) leave(uris map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uri, server := range uris {
		if h.left[server] == nil {
			h.left[server] = make(map[string]struct{})
		}
		if len(h.left[server]) < registry.MaxWatched {
			h.left[server][uri] = struct{}{}
		}
	}
}

// watchesAny reports whether anybody watches a resource of the server's.
func (h *hub) watchesAny(server string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		if len(s.watchedOf(server)) > 0 {
			return true
		}
	}
	return false
}

// watches reports whether anybody watches a server's resource, for all that the server may know.
func (h *hub) watches(server, uri string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.left[server][uri]; ok {
		return true
	}
	for s := range h.subscribers {
		s.mu.Lock()
		watched := s.uris[uri] == server || s.kept[uri] == server
		s.mu.Unlock()
		if watched {
			return true
		}
	}
	return false
}
