package serve

import (
	"context"
	"fmt"
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
	uri, up, err := x.resource()
	if err != nil {
		return reply{}, err
	}
	if !x.session.sub.watch(uri, up.Server().Name, x.srv.limits.Watched) {
		return reply{}, jsonrpc.Errorf(registry.CodeBusy, "at most %d resources can be watched", x.srv.limits.Watched)
	}
	re, err := x.forward(ctx, up)
	if err != nil {
		x.session.sub.unwatch(uri)
	}
	return re, err
}

// unsubscribe tells the server only when nobody else watches.
func (x *exchange) unsubscribe(ctx context.Context) (reply, error) {
	if x.session == nil {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s it is subscriptions/listen", mcp.ProtocolVersion20260728)
	}
	uri, up, err := x.resource()
	if err != nil {
		return reply{}, err
	}
	x.session.sub.unwatch(uri)
	if x.srv.hub.watches(up.Server().Name, uri) {
		return empty, nil
	}
	return x.forward(ctx, up)
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
		if err := watch(ctx, route.Upstream, mcp.MethodResourcesSubscribe, uri); err != nil {
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

func watch(ctx context.Context, up *registry.Upstream, method mcp.MCPMethod, uri string) error {
	params := fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))
	_, err := up.Call(ctx, registry.Call{Method: string(method), Params: params})
	return err
}

// resubscribe tells a server's new process what its clients watch.
func (s *Server) resubscribe(up *registry.Upstream, uris []string) {
	if !up.Agreed().Subscribes() {
		return
	}
	for _, uri := range uris {
		if err := watch(s.calls, up, mcp.MethodResourcesSubscribe, uri); err != nil {
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
			if err := watch(s.calls, route.Upstream, mcp.MethodResourcesUnsubscribe, uri); err != nil {
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
