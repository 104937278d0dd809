package serve

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// subscribe has the client told when a resource changes.
func (x *exchange) subscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, onlyInSessions("subscriptions/listen")
	}
	var uri string
	t, release, err := x.hold(ctx, func() (t target, err error) {
		uri, t.Route, err = x.resource()
		return t, err
	})
	if err != nil {
		return reply{}, err
	}
	defer release()
	route := t.Route
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
		err = up.Watch(ctx, uri)
	default:
		re, err = x.forward(ctx, target{Route: route})
	}
	if err != nil && !had {
		sub.unwatch(uri)
	}
	x.srv.noted()
	return re, err
}

// unsubscribe tells the server only when nobody else watches.
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
	if err != nil {
		if had {
			return empty, nil // the resource is gone, and with it what the server knows
		}
		return reply{}, err
	}
	main := route.Upstream
	if !main.Hold() {
		return empty, nil // it sleeps, and knows of nobody who watches
	}
	defer main.Release()
	server := main.Server().Name
	if x.owns(main) {
		return empty, x.session.unwatched(ctx, server, uri)
	}
	switch wanted := func(uri string) bool { return x.srv.hub.watches(server, uri) }; {
	case wanted(uri):
		return empty, nil
	case main.Modern():
		return empty, main.Unwatch(ctx, wanted, uri)
	}
	return x.forward(ctx, target{Route: route})
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
		route, ok, err := x.srv.registry.Catalogue().ByURI(x.endpoint, uri)
		if err != nil || !ok || !route.Upstream.Agreed().Subscribes() || !sub.watch(uri, route.Upstream.Server().Name, x.srv.limits.Watched) {
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
		if err := x.watchOn(ctx, server, w.uris); err != nil {
			for _, uri := range w.uris {
				sub.unwatch(uri)
			}
			continue
		}
		granted = append(granted, w.raw...)
	}
	if len(granted) == 0 {
		return nil
	}
	return slices.Concat([]byte(`,"resourceSubscriptions":[`), bytes.Join(granted, []byte{','}), []byte{']'})
}

// watchOn has a server's shared process tell of changes to resources.
func (x *exchange) watchOn(ctx context.Context, server string, uris []string) error {
	t, release, err := x.hold(ctx, func() (target, error) {
		route, ok, err := x.srv.registry.Catalogue().ByURI(server, uris[0])
		if err == nil && !ok {
			err = invalidParams("server %q has no resource %.200q", server, uris[0])
		}
		return target{Route: route}, err
	})
	if err != nil {
		return err
	}
	defer release()
	return t.Upstream.Watch(ctx, uris...)
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
	if up.Modern() || !up.Agreed().Has("logging") {
		return // it is told with each call
	}
	params := fmt.Appendf(nil, `{"level":%q}`, levels[level])
	if _, err := up.Call(ctx, registry.Call{Method: string(mcp.MethodSetLogLevel), Params: params}); err != nil {
		s.log.Warn("setting a server's log level, ignoring", "server", up.Server().Name, "error", err.Error())
	}
}

// unwatch ends what only a client that left has watched.
func (s *Server) unwatch(sub *subscriber) {
	sub.mu.Lock()
	uris := maps.Clone(sub.uris)
	sub.mu.Unlock()
	if len(uris) == 0 {
		return
	}
	per := make(map[*registry.Upstream][]string)
	for uri, server := range uris {
		route, ok, err := s.registry.Catalogue().ByURI(server, uri)
		own := ok && route.Upstream.Server().Sessions.Own && sub.tag == nil // whoever was told of it is gone
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

// watches reports whether anybody watches a server's resource.
func (h *hub) watches(server, uri string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subscribers {
		s.mu.Lock()
		of, ok := s.uris[uri]
		s.mu.Unlock()
		if ok && of == server {
			return true
		}
	}
	return false
}
