package registry

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// listens is the gateway's stream of notifications from a server of 2026-07-28: one subscriptions/listen at a time, made
// anew when the resources that clients watch change.
type listens struct {
	change sync.Mutex // held while the stream is made anew
	id     int64      // of the one that stands, 0 for none
	stream *waiting
	uris   map[string]bool
}

// Watch has the server tell of changes to a resource, in whichever way it knows.
func (u *Upstream) Watch(ctx context.Context, uri string) error {
	if !u.Modern() {
		return u.subscription(ctx, mcp.MethodResourcesSubscribe, uri)
	}
	u.listens.change.Lock()
	defer u.listens.change.Unlock()
	if u.listens.uris[uri] {
		return nil
	}
	want := maps.Clone(u.listens.uris)
	if want == nil {
		want = make(map[string]bool)
	}
	want[uri] = true
	return u.listen(ctx, want)
}

// Unwatch takes it back.
func (u *Upstream) Unwatch(ctx context.Context, uri string) error {
	if !u.Modern() {
		return u.subscription(ctx, mcp.MethodResourcesUnsubscribe, uri)
	}
	u.listens.change.Lock()
	defer u.listens.change.Unlock()
	if !u.listens.uris[uri] {
		return nil
	}
	want := maps.Clone(u.listens.uris)
	delete(want, uri)
	return u.listen(ctx, want)
}

func (u *Upstream) subscription(ctx context.Context, method mcp.MCPMethod, uri string) error {
	_, err := u.Call(ctx, Call{Method: string(method), Params: fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))})
	return err
}

// follow opens the stream of changes to lists, if the server has any to tell of.
func (u *Upstream) follow(ctx context.Context) {
	u.listens.change.Lock()
	defer u.listens.change.Unlock()
	if err := u.listen(ctx, nil); err != nil {
		u.log.Warn("listening to changes of lists, ignoring", "error", err.Error())
	}
}

// listen replaces the stream by one for these resources. There is one at a time: servers that are asked for a second tell
// each thing once, on whichever they like. What changed in between may have gone untold, so the lists are looked at again.
// u.listens.change is held.
func (u *Upstream) listen(ctx context.Context, uris map[string]bool) error {
	again := u.hush(ctx)
	filter := u.filter(uris)
	if len(filter) > len("{}") {
		if err := u.open(ctx, filter); err != nil {
			return err
		}
	}
	u.listens.uris = uris
	if again {
		u.again(0, AllKinds)
	}
	return nil
}

// hush ends the stream and waits for the server to confirm it, if not for long. It reports whether there was one.
func (u *Upstream) hush(ctx context.Context) bool {
	id, w := u.listens.id, u.listens.stream
	if id == 0 {
		return false
	}
	u.listens.id, u.listens.stream = 0, nil
	u.tell(jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationCancelled), fmt.Appendf(nil, `{"requestId":%d,"reason":"replaced"}`, id)))
	select {
	case <-w.answer:
	case <-time.After(time.Second):
	case <-u.done:
	case <-ctx.Done():
	}
	u.forget(id)
	return true
}

// filter is what the gateway wants to hear: of each list that may change, and of the resources.
func (u *Upstream) filter(uris map[string]bool) []byte {
	b := []byte{'{'}
	add := func(name string, value []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), name...), `":`...), value...)
	}
	for _, k := range [...]Kind{Tools, Prompts, Resources} {
		if c := k.form().capability; u.Agreed().says(c, "listChanged") {
			add(c+"ListChanged", []byte("true"))
		}
	}
	if len(uris) > 0 {
		list := []byte{'['}
		for i, uri := range slices.Sorted(maps.Keys(uris)) {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(list, jsonrpc.Quote(uri)...)
		}
		add("resourceSubscriptions", append(list, ']'))
	}
	return append(b, '}')
}

// open sends subscriptions/listen and waits until the server says that it listens. The request itself stays in flight.
func (u *Upstream) open(ctx context.Context, filter []byte) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	id := u.last.Add(1)
	w := &waiting{call: &Call{Method: string(mcp.MethodSubscriptionsListen)}, answer: make(chan answer, 1), begun: make(chan struct{})}
	if err := u.expect(id, w); err != nil {
		return err
	}
	params := withMeta(fmt.Appendf(nil, `{"notifications":%s}`, filter), u.Agreed().meta)
	if err := u.conn.write(ctx, jsonrpc.AppendRequest(nil, id, w.call.Method, params)); err != nil {
		return u.unsent(ctx, id, err)
	}
	select {
	case <-w.begun:
		u.listens.id, u.listens.stream = id, w
		return nil
	case a := <-w.answer:
		_, err := u.judge(a, w.call.Method)
		if err == nil {
			err = jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q ended the stream of notifications at once", u.server.Name)
		}
		return err
	case <-u.done:
		return u.gone(true)
	case <-ctx.Done():
		u.abandon(id, "timed out")
		return u.late(w.call.Method)
	}
}

// acknowledged takes the first message of a stream, which says that it is open.
func (u *Upstream) acknowledged(params []byte) {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		u.faults.add(Noise, params)
		return
	}
	id, ok := ourID(subscription(ms))
	u.mu.Lock()
	w := u.waiting[id]
	if !ok || w == nil || w.begun == nil || w.open {
		w = nil
	} else {
		w.open = true
	}
	u.mu.Unlock()
	if w == nil {
		u.faults.add(Unsolicited, params)
		return
	}
	close(w.begun)
}

// subscription is the id of the stream that a notification came on.
func subscription(params jsonrpc.Members) []byte {
	meta, err := jsonrpc.Object(params.Get("_meta"), nil)
	if err != nil {
		return nil
	}
	return meta.Get(mcp.MetaKeySubscriptionID)
}

// unmarked takes the id of our stream out of a notification: clients have streams of their own.
func unmarked(params []byte) []byte {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil || !bytes.Contains(params, []byte(mcp.MetaKeySubscriptionID)) {
		return params
	}
	i := ms.Index("_meta")
	if i < 0 {
		return params
	}
	meta, err := jsonrpc.Object(ms[i].Raw(), nil)
	if err != nil {
		return params
	}
	rest := meta.Merge(nil, func(name []byte) bool { return string(name) != mcp.MetaKeySubscriptionID }, nil)
	if string(rest) == "{}" {
		return jsonrpc.Splice(nil, params, ms.Remove(i))
	}
	return jsonrpc.Splice(nil, params, ms.Replace(i, rest))
}
