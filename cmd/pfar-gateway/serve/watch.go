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
func (x *exchange) watching(ctx context.Context, route registry.Route, uri string, change func(*registry.Upstream, context.Context, ...string) error) (reply, error) {
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
	type watch struct {
		up   *registry.Upstream
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
			w = &watch{up: route.Upstream}
			per[route.Upstream.Server().Name] = w
		}
		w.uris, w.raw = append(w.uris, uri), append(w.raw, r)
	}
	var granted [][]byte
	for _, w := range per {
		if err := w.up.Watch(ctx, w.uris...); err != nil {
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
			if err := up.Unwatch(s.calls, uris...); err != nil {
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
