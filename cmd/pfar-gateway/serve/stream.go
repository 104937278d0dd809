package serve

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

// events is an answer that has become an event stream.
type events struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	write time.Duration
	retry bool // the first event says when to come back, should the connection break

	replay *replay       // nil: nobody can come back for this
	reader chan struct{} // what the replay knows this connection by
}

func (x *exchange) stream() *events {
	if x.events == nil {
		h := x.w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-store")
		h["X-Content-Type-Options"] = noSniff
		x.w.WriteHeader(http.StatusOK)
		x.events = &events{w: x.w, rc: http.NewResponseController(x.w), write: x.srv.limits.Write, retry: x.sse}
		x.prime()
	}
	return x.events
}

// send writes one message as one event. A line break between its tokens would end the line, so it begins another.
func (e *events) send(message []byte) error {
	return e.put(func(id string) []byte {
		b, rest := make([]byte, 0, len(message)+96), message
		if id != "" {
			b = append(append(append(b, "id: "...), id...), '\n')
		}
		if e.retry {
			b, e.retry = append(b, "retry: 1000\n"...), false // milliseconds
		}
		b = append(b, "event: message\ndata: "...)
		for {
			i := bytes.IndexAny(rest, "\r\n")
			if i < 0 {
				break
			}
			b = append(append(b, rest[:i]...), "\ndata: "...)
			rest = rest[i+1:]
		}
		return append(append(b, rest...), "\n\n"...)
	})
}

// put writes one event. If the client can come back for it, a connection that broke is no error.
func (e *events) put(encode func(id string) []byte) error {
	if e.replay == nil {
		return e.raw(encode(""))
	}
	event, attached, kept := e.replay.add(e.reader, encode)
	switch {
	case !attached && !kept:
		return errHungUp
	case !attached:
		return nil
	}
	err := e.raw(event)
	if err != nil && e.replay.leave(e.reader) {
		return nil
	}
	return err
}

// raw writes and flushes in bounded time: a client that does not read must not hold a call's memory.
func (e *events) raw(b []byte) error {
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.write))
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	if err := e.rc.Flush(); err != nil {
		return err
	}
	return e.rc.SetWriteDeadline(time.Time{})
}

// follow streams what a subscriber is to be told until either side ends it.
func (x *exchange) follow(ctx context.Context, sub *subscriber, ended <-chan struct{}) {
	e := x.stream()
	if e.raw([]byte(": open\n\n")) != nil {
		return
	}
	alive := time.NewTicker(x.srv.limits.Alive)
	defer alive.Stop()
	sub.poke() // for what came while nobody listened
	for {
		select {
		case <-sub.wake: // for one message: it may take as long as inspectors do
			m, ok := sub.next()
			if !ok {
				continue
			}
			message, err := x.heed(sub, m)
			if err == nil && e.send(message) != nil {
				return
			}
		case <-alive.C:
			if e.raw([]byte(": alive\n\n")) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-ended:
			return
		case <-x.srv.draining:
			return
		}
	}
}

// listen is subscriptions/listen: the stream of 2026-07-28, without a session.
func (x *exchange) listen(ctx context.Context) (reply, error) {
	if !x.modern || x.plain {
		return reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: subscriptions/listen begins with protocol %s", mcp.ProtocolVersion20260728)
	}
	wanted, err := jsonrpc.Object(x.params.Get("notifications"), nil)
	if err != nil {
		return reply{}, jsonrpc.Errorf(mcp.INVALID_PARAMS, `reading "notifications": %v`, err)
	}
	kinds, granted := chosen(wanted)
	sub := x.subscriber(kinds)
	sub.tag = x.msg.ID
	if !x.srv.hub.listen(sub, x.srv.limits.Listens) {
		return reply{}, jsonrpc.Errorf(registry.CodeBusy, "too many streams are open")
	}
	defer x.srv.closed(&session{sub: sub, bound: x.bound})
	if err := x.stays(); err != nil {
		return reply{}, err
	}
	uris := x.watchAll(ctx, sub, wanted.Get("resourceSubscriptions"))
	granted = append(granted, uris...)
	ack := fmt.Appendf(nil, `{"notifications":%s}`, jsonrpc.Members(nil).Merge(nil, nil, bytes.TrimPrefix(granted, []byte(","))))
	if x.stream().send(sub.message(string(mcp.MethodNotificationSubscriptionsAcknowledged), ack)) == nil && len(granted) > 0 {
		x.follow(ctx, sub, sub.over)
	}
	return reply{result: fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaKeySubscriptionID, x.msg.ID)}, nil
}

// subscriber is the client's interest in what happens from now on.
func (x *exchange) subscriber(kinds registry.Kinds) *subscriber {
	sub := newSubscriber(x.bound, x.endpoint, kinds, x.srv.limits.Queue)
	sub.rights.Store(x.member.rights)
	return sub
}

// stays looks again whether the client is let in, after something of it has been entered where Learn finds it: in
// between it may have been removed, or be another.
func (x *exchange) stays() error {
	m := x.srv.admits(x.srv.clients.table.Load(), x.bound)
	if m == nil {
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", errDismissed)
	}
	x.member = m
	return nil
}

// chosen returns the lists whose changes a filter names, and the members of the answer that say so, each after a comma.
func chosen(wanted jsonrpc.Members) (registry.Kinds, []byte) {
	var kinds registry.Kinds
	var granted []byte
	for name, k := range map[string]registry.Kinds{
		"toolsListChanged":     registry.Tools.Set(),
		"promptsListChanged":   registry.Prompts.Set(),
		"resourcesListChanged": registry.Resources.Set() | registry.Templates.Set(),
	} {
		if string(wanted.Get(name)) == "true" {
			kinds |= k
			granted = append(granted, `,"`+name+`":true`...)
		}
	}
	return kinds, granted
}
