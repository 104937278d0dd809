package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// listens is the gateway's stream of notifications from a server of 2026-07-28: one subscriptions/listen at a time,
// made anew by a goroutine of its own when the resources that clients watch change, and when it ends.
type listens struct {
	mu      sync.Mutex
	want    map[string]bool // resources
	waiting []chan error    // of those who changed want since it was last looked at
	kick    chan struct{}

	id     int64 // of the stream that stands, 0 for none; these two are the goroutine's
	stream *waiting
}

// Watch has the server tell of changes to resources, in whichever way it knows.
func (u *Upstream) Watch(ctx context.Context, uris ...string) error {
	if !u.Modern() {
		return u.subscribe(ctx, mcp.MethodResourcesSubscribe, uris)
	}
	if !u.Agreed().Subscribes() {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "server %q does not tell of changes to single resources", u.Server().Name)
	}
	return u.change(ctx, func(want map[string]bool) {
		for _, uri := range uris {
			want[uri] = true
		}
	})
}

// Unwatch takes it back, but of resources that somebody still wants.
func (u *Upstream) Unwatch(ctx context.Context, wanted func(uri string) bool, uris ...string) error {
	if !u.Modern() {
		return u.subscribe(ctx, mcp.MethodResourcesUnsubscribe, slices.DeleteFunc(slices.Clone(uris), wanted))
	}
	return u.change(ctx, func(want map[string]bool) {
		for _, uri := range uris {
			if !wanted(uri) {
				delete(want, uri)
			}
		}
	})
}

func (u *Upstream) subscribe(ctx context.Context, method mcp.MCPMethod, uris []string) error {
	for _, uri := range uris {
		if _, err := u.Call(ctx, Call{Method: string(method), Params: fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))}); err != nil {
			return err
		}
	}
	return nil
}

// change edits what is wanted and waits until the server listens to that, or ctx ends: then it goes on all the same,
// for other clients wait for it too.
func (u *Upstream) change(ctx context.Context, edit func(map[string]bool)) error {
	l := &u.listens
	done := make(chan error, 1)
	l.mu.Lock()
	before := maps.Clone(l.want)
	edit(l.want)
	if len(l.want) > MaxWatched {
		l.want = before
		l.mu.Unlock()
		return jsonrpc.Errorf(CodeBusy, "server %q is watched for %d resources already", u.Server().Name, len(before))
	}
	wants := maps.Clone(l.want)
	if maps.Equal(before, wants) {
		l.mu.Unlock()
		return nil
	}
	l.waiting = append(l.waiting, done)
	l.mu.Unlock()
	u.kick()
	var err error
	select {
	case err = <-done:
	case <-u.done:
		return u.gone(true)
	case <-ctx.Done():
		err = interrupted(ctx)
	}
	if err != nil { // whoever wanted it has been told no
		l.mu.Lock()
		maps.DeleteFunc(l.want, func(uri string, _ bool) bool { return !before[uri] && wants[uri] })
		l.mu.Unlock()
	}
	return err
}

func (u *Upstream) kick() {
	select {
	case u.listens.kick <- struct{}{}:
	default:
	}
}

// MaxWatched bounds the resources of one server that clients watch.
const MaxWatched = 4096

// ackTime is how long a server may take to say that it listens, and confirmTime that it no longer does.
const (
	ackTime     = 2 * time.Second
	confirmTime = time.Second
)

// follow begins to listen, and waits a little for the server to do so: what changes from then on is heard.
func (u *Upstream) follow() {
	first := make(chan error, 1)
	u.listens.mu.Lock()
	u.listens.waiting = append(u.listens.waiting, first)
	u.listens.mu.Unlock()
	u.kick()
	go u.listening()
	select {
	case <-first:
	case <-time.After(min(ackTime, u.limits.Handshake/4)):
	case <-u.done:
	}
}

// listening keeps the stream as it is wanted until the conversation ends.
func (u *Upstream) listening() {
	l := &u.listens
	var retry <-chan time.Time
	for failed, heard := 0, false; ; {
		var ended <-chan answer
		if l.stream != nil {
			ended = l.stream.answer
		}
		select {
		case <-u.done:
			return
		case <-l.kick:
		case <-retry:
		case <-ended: // by the server
			u.forget(l.id)
			l.id, l.stream = 0, nil
			retry = time.After(time.Second << min(failed, 6))
			failed++
			continue
		}
		l.mu.Lock()
		want, waiting := maps.Clone(l.want), l.waiting
		l.waiting = nil
		l.mu.Unlock()
		err := u.listen(want)
		for _, w := range waiting {
			w <- err
		}
		retry = nil
		if err != nil && !errors.Is(err, errDeclined) { // of that the stream stands
			u.log.Warn("listening to changes", "error", err.Error())
			retry = time.After(time.Second << min(failed, 6) / 4)
			failed++
			continue
		}
		if failed = 0; heard {
			u.again(0, AllKinds) // what changed in between may have gone untold
		}
		heard = true
	}
}

// listen replaces the stream by one for these resources. There is one at a time: servers that are asked for a second
// tell each thing once, on whichever they like.
func (u *Upstream) listen(uris map[string]bool) error {
	u.hush()
	filter := u.filter(uris)
	if len(filter) == len("{}") {
		return nil
	}
	if err := u.open(filter); err != nil {
		return err
	}
	if len(uris) > 0 && u.listens.stream.declined {
		return errDeclined
	}
	return nil
}

var errDeclined = errors.New("the server does not tell of changes to these resources")

// hush ends the stream and waits for the server to confirm it, if not for long.
func (u *Upstream) hush() {
	l := &u.listens
	id, w := l.id, l.stream
	if id == 0 {
		return
	}
	l.id, l.stream = 0, nil
	u.tell(jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationCancelled), fmt.Appendf(nil, `{"requestId":%d,"reason":"replaced"}`, id)))
	select {
	case <-w.answer:
	case <-time.After(confirmTime):
	case <-u.done:
	}
	u.forget(id)
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
func (u *Upstream) open(filter []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), ackTime)
	defer cancel()
	id := u.memory.Next()
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
			err = jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q ended the stream of notifications at once", u.Server().Name)
		}
		return err
	case <-u.done:
		return u.gone(true)
	case <-ctx.Done():
		u.abandon(id, "timed out")
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "server %q did not acknowledge %s within %v", u.Server().Name, w.call.Method, ackTime)
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
	granted, _ := jsonrpc.Object(ms.Get("notifications"), nil)
	u.mu.Lock()
	w := u.waiting[id]
	if !ok || w == nil || w.begun == nil || w.open {
		w = nil
	} else {
		w.open, w.declined = true, granted.Get("resourceSubscriptions") == nil
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
