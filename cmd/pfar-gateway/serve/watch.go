package serve

import (
	"context"
	"maps"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// subscribe has the client told when a resource changes.
func (x *exchange) subscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s it is subscriptions/listen", mcp.ProtocolVersion20260728)
	}
	uri, route, err := x.resource()
	if err != nil {
		return reply{}, err
	}
	if !x.session.sub.watch(uri, route.Upstream.Server().Name, x.srv.limits.Watched) {
		return reply{}, jsonrpc.Errorf(registry.CodeBusy, "at most %d resources can be watched", x.srv.limits.Watched)
	}
	re, err := x.watching(ctx, route, uri, (*registry.Upstream).Watch)
	if err != nil {
		x.session.sub.unwatch(uri)
	}
	return re, err
}

// watching has the server hear of it: as the client said it, or as servers of 2026-07-28 want to be told.
func (x *exchange) watching(ctx context.Context, route registry.Route, uri string, change func(*registry.Upstream, context.Context, string) error) (reply, error) {
	up, err := x.process(ctx, route.Upstream)
	if err != nil {
		return reply{}, err
	}
	if !up.Modern() {
		return x.forward(ctx, target{Route: route})
	}
	return empty, change(up, ctx, uri)
}

// unsubscribe tells the server only when nobody else watches.
func (x *exchange) unsubscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s it is subscriptions/listen", mcp.ProtocolVersion20260728)
	}
	uri, route, err := x.resource()
	if err != nil {
		return reply{}, err
	}
	x.session.sub.unwatch(uri)
	server := route.Upstream.Server()
	if !server.Sessions.Own && x.srv.hub.watches(server.Name, uri) {
		return empty, nil
	}
	return x.watching(ctx, route, uri, (*registry.Upstream).Unwatch)
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
	granted := []byte(`,"resourceSubscriptions":[`)
	first := true
	for _, r := range wanted {
		uri, err := jsonrpc.String(r)
		if err != nil {
			continue
		}
		route, ok, err := x.srv.registry.Catalogue().ByURI(x.endpoint, uri)
		if err != nil || !ok || !route.Upstream.Agreed().Subscribes() || !sub.watch(uri, route.Upstream.Server().Name, x.srv.limits.Watched) {
			continue
		}
		if err := route.Upstream.Watch(ctx, uri); err != nil {
			sub.unwatch(uri)
			continue
		}
		if !first {
			granted = append(granted, ',')
		}
		first = false
		granted = append(granted, r...)
	}
	if first {
		return nil
	}
	return append(granted, ']')
}

// resubscribe tells a server's new process what its clients watch.
func (s *Server) resubscribe(up *registry.Upstream, uris []string) {
	if !up.Agreed().Subscribes() {
		return
	}
	for _, uri := range uris {
		if err := up.Watch(s.calls, uri); err != nil {
			s.log.Warn("subscribing again after a restart, ignoring", "server", up.Server().Name, "error", err.Error())
		}
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
	go func() {
		for uri, server := range uris {
			route, ok, err := s.registry.Catalogue().ByURI(server, uri)
			if err != nil || !ok || s.hub.watches(server, uri) {
				continue
			}
			if route.Upstream.Server().Sessions.Own {
				continue // whoever was told of it is gone
			}
			if err := route.Upstream.Unwatch(s.calls, uri); err != nil {
				s.log.Debug("unsubscribing, ignoring", "server", server, "error", err.Error())
			}
		}
	}()
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

func (s *subscriber) unwatch(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uris, uri)
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
