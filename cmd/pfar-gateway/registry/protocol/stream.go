package protocol

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

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/units/jsonrpc"
)

// stream is the gateway's stream of notifications from a server of 2026-07-28: one subscriptions/listen at a time,
// made anew by a goroutine of its own when the resources that clients watch change, and when it ends.
type stream struct {
	c       *Conversation
	changed chan struct{} // somebody waits

	mu      sync.Mutex
	want    map[string]bool // resources
	waiting []chan error    // of those who changed want since it was last looked at

	id   int64 // of the stream that stands, 0 for none; these two are the goroutine's
	open *waiting
}

// Watch has the server tell of changes to resources, in whichever way it knows.
func (c *Conversation) Watch(ctx context.Context, uris ...string) error {
	if !c.Modern() {
		return subscribe(ctx, c, mcp.MethodResourcesSubscribe, uris)
	}
	if !c.Agreed().Subscribes() {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "server %q does not tell of changes to single resources", c.name())
	}
	return c.stream.change(ctx, func(want map[string]bool) {
		for _, uri := range uris {
			want[uri] = true
		}
	})
}

// Unwatch takes it back, but of resources that somebody still wants.
func (c *Conversation) Unwatch(ctx context.Context, wanted func(uri string) bool, uris ...string) error {
	if !c.Modern() {
		return subscribe(ctx, c, mcp.MethodResourcesUnsubscribe, slices.DeleteFunc(slices.Clone(uris), wanted))
	}
	return c.stream.change(ctx, func(want map[string]bool) {
		for _, uri := range uris {
			if !wanted(uri) {
				delete(want, uri)
			}
		}
	})
}

func subscribe(ctx context.Context, c *Conversation, method mcp.MCPMethod, uris []string) error {
	for _, uri := range uris {
		if _, err := c.Call(ctx, Call{Method: string(method), Params: fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(uri))}); err != nil {
			return err
		}
	}
	return nil
}

// change edits what is wanted and waits until the server listens to that, or ctx ends: then it goes on all the same,
// for other clients wait for it too.
func (s *stream) change(ctx context.Context, edit func(map[string]bool)) error {
	done := make(chan error, 1)
	s.mu.Lock()
	before := maps.Clone(s.want)
	edit(s.want)
	if len(s.want) > MaxWatched {
		s.want = before
		s.mu.Unlock()
		return jsonrpc.Errorf(CodeBusy, "server %q is watched for %d resources already", s.c.name(), len(before))
	}
	wants := maps.Clone(s.want)
	if maps.Equal(before, wants) {
		s.mu.Unlock()
		return nil
	}
	s.await(done)
	s.mu.Unlock()
	var err error
	select {
	case err = <-done:
	case <-s.c.Done():
		return s.c.gone(true)
	case <-ctx.Done():
		err = Interrupted(ctx)
	}
	if err != nil { // whoever wanted it has been told no
		s.mu.Lock()
		maps.DeleteFunc(s.want, func(uri string, _ bool) bool { return !before[uri] && wants[uri] })
		s.mu.Unlock()
	}
	return err
}

// await has done told once the goroutine listens to what is wanted now. s.mu is held.
func (s *stream) await(done chan error) {
	s.waiting = append(s.waiting, done)
	select {
	case s.changed <- struct{}{}:
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

// Follow begins to listen, and waits a little for the server to do so: what changes from then on is heard.
func (c *Conversation) Follow() {
	first := make(chan error, 1)
	c.stream.mu.Lock()
	c.stream.await(first)
	c.stream.mu.Unlock()
	go c.stream.listening()
	select {
	case <-first:
	case <-time.After(min(ackTime, c.limits.Handshake/4)):
	case <-c.Done():
	}
}

// listening keeps the stream as it is wanted until the conversation ends.
func (s *stream) listening() {
	var retry <-chan time.Time
	for failed, heard := 0, false; ; {
		var ended <-chan answer
		if s.open != nil {
			ended = s.open.answer
		}
		select {
		case <-s.c.Done():
			return
		case <-s.changed:
		case <-retry:
		case <-ended: // by the server
			s.c.flights.forget(s.id)
			s.id, s.open = 0, nil
			retry = time.After(time.Second << min(failed, 6))
			failed++
			continue
		}
		s.mu.Lock()
		want, waiting := maps.Clone(s.want), s.waiting
		s.waiting = nil
		s.mu.Unlock()
		err := s.listen(want)
		for _, w := range waiting {
			w <- err
		}
		retry = nil
		if err != nil && !errors.Is(err, errDeclined) { // of that the stream stands
			s.c.log.Warn("listening to changes", "error", err.Error())
			retry = time.After(time.Second << min(failed, 6) / 4)
			failed++
			continue
		}
		if failed = 0; heard {
			s.c.listener.Missed()
		}
		heard = true
	}
}

// listen replaces the stream by one for these resources. There is one at a time: servers that are asked for a second
// tell each thing once, on whichever they like.
func (s *stream) listen(uris map[string]bool) error {
	s.hush()
	filter := s.filter(uris)
	if len(filter) == len("{}") {
		return nil
	}
	if err := s.begin(filter); err != nil {
		return err
	}
	if len(uris) > 0 && s.open.declined {
		return errDeclined
	}
	return nil
}

var errDeclined = errors.New("the server does not tell of changes to these resources")

// hush ends the stream and waits for the server to confirm it, if not for long.
func (s *stream) hush() {
	id, w := s.id, s.open
	if id == 0 {
		return
	}
	s.id, s.open = 0, nil
	s.c.outbox.tell(cancellation(id, "replaced"))
	select {
	case <-w.answer:
	case <-time.After(confirmTime):
	case <-s.c.Done():
	}
	s.c.flights.forget(id)
}

// filter is what the gateway wants to hear: of each list that may change, and of the resources.
func (s *stream) filter(uris map[string]bool) []byte {
	b := []byte{'{'}
	add := func(name string, value []byte) {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), name...), `":`...), value...)
	}
	for _, list := range [...]string{"tools", "prompts", "resources"} {
		if s.c.Agreed().says(list, "listChanged") {
			add(list+"ListChanged", []byte("true"))
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

// begin sends subscriptions/listen and waits until the server says that it listens. The request itself stays in flight.
func (s *stream) begin(filter []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), ackTime)
	defer cancel()
	id := s.c.flights.memory.Next()
	w := &waiting{call: &Call{Method: string(mcp.MethodSubscriptionsListen)}, answer: make(chan answer, 1), begun: make(chan struct{})}
	if why := s.c.flights.begin(id, w); why != "" {
		return gone(s.c.name(), why, false)
	}
	params := withMeta(fmt.Appendf(nil, `{"notifications":%s}`, filter), s.c.Agreed().meta)
	if err := transport.Write(ctx, s.c.conn, jsonrpc.AppendRequest(nil, id, w.call.Method, params)); err != nil {
		return s.c.unsent(ctx, id, err)
	}
	select {
	case <-w.begun:
		s.id, s.open = id, w
		return nil
	case a := <-w.answer:
		_, err := judge(s.c, a, w.call.Method)
		if err == nil {
			err = jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q ended the stream of notifications at once", s.c.name())
		}
		return err
	case <-s.c.Done():
		return s.c.gone(true)
	case <-ctx.Done():
		s.c.abandon(id, "timed out")
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "server %q did not acknowledge %s within %v", s.c.name(), w.call.Method, ackTime)
	}
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
