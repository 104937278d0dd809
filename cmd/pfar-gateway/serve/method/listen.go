package method

import (
	"bytes"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/hub"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Listens streams to clients what happens.
type Listens struct {
	Watches  *Watches
	Limit    int             // of streams without a session
	Queue    int             // messages that wait for one client
	Alive    time.Duration   // between signs of life
	Draining <-chan struct{} // closed when streams are to end
	Left     func(sub *hub.Subscriber, label string)
}

// listen is subscriptions/listen: the stream of 2026-07-28, without a session.
func (l *Listens) listen(v *call.Visit) (reply.Reply, error) {
	if !v.Modern || v.Response == nil {
		return reply.Reply{}, jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: subscriptions/listen begins with "+
			"protocol %s", mcp.ProtocolVersion20260728)
	}
	wanted, err := jsonrpc.Object(v.Parameters.Get("notifications"), nil)
	if err != nil {
		return reply.Reply{}, jsonrpc.Errorf(mcp.INVALID_PARAMS, `reading "notifications": %v`, err)
	}
	kinds, granted := chosen(wanted)
	sub := hub.NewSubscriber(hub.Interest{Bound: v.Bound, Endpoint: v.Endpoint, Kinds: kinds, Tag: v.ID}, l.Queue)
	sub.Allow(v.Member.Rights)
	if !l.Watches.Hub.Listen(sub, l.Limit) {
		return reply.Reply{}, jsonrpc.Errorf(protocol.CodeBusy, "too many streams are open")
	}
	defer l.Left(sub, "")
	if err := l.Watches.Calls.Clients.Stays(&v.Caller); err != nil {
		return reply.Reply{}, err
	}
	if uris := l.Watches.all(v, sub, wanted.Get("resourceSubscriptions")); len(uris) > 0 {
		granted = append(append(append(granted, `,"resourceSubscriptions":[`...), bytes.Join(uris, []byte{','})...), ']')
	}
	ack := fmt.Appendf(nil, `{"notifications":%s}`, jsonrpc.Members(nil).Merge(nil, nil, bytes.TrimPrefix(granted, []byte(","))))
	if v.Response.Stream().Send(sub.Acknowledge(ack)) == nil && len(granted) > 0 {
		l.Follow(v, sub, sub.Over())
	}
	return reply.Reply{Result: fmt.Appendf(nil, `{"_meta":{%q:%s}}`, mcp.MetaKeySubscriptionID, v.ID)}, nil
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

// Follow streams the messages of a subscriber until either side ends it.
func (l *Listens) Follow(v *call.Visit, sub *hub.Subscriber, ended <-chan struct{}) {
	e := v.Response.Stream()
	if e.Open() != nil {
		return
	}
	alive := time.NewTicker(l.Alive)
	defer alive.Stop()
	sub.Poke() // for messages that waited
	for {
		select {
		case <-sub.Wake: // for one message: it may take as long as inspectors do
			m, ok := sub.Next()
			if !ok {
				continue
			}
			message, err := l.heed(v, sub, m)
			if err == nil && e.Send(message) != nil {
				return
			}
		case <-alive.C:
			if e.Alive() != nil {
				return
			}
		case <-v.Ctx.Done():
			return
		case <-ended:
			return
		case <-l.Draining:
			return
		}
	}
}

// heed returns a message as the client may have it. A server's notification passes the gate, since the client reads it.
func (l *Listens) heed(v *call.Visit, sub *hub.Subscriber, m hub.Told) ([]byte, error) {
	calls := l.Watches.Calls
	if m.Says == "" {
		return sub.Message(m, nil), nil
	}
	if calls.Gate == nil {
		return nil, call.ErrNoGate
	}
	now := lister(calls.Registry.Catalogue(), m.Says).Declared
	said, err := calls.Gate.Hear(v.Ctx, v.Identity(), m.Says, m.Declared, now, m.Method, m.Params)
	return sub.Message(m, said), err
}
