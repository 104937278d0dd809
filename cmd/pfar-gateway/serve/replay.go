package serve

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// replay is the event stream that answers one call. The gateway keeps its events, so that a client whose connection
// broke reads on with GET and Last-Event-ID: since 2025-11-25 a broken connection does not cancel a call. replays.mu
// guards it.
type replay struct {
	all     *replays
	id      string // nobody guesses it; the ids of its events begin with it
	session *session
	called  called
	cancel  context.CancelCauseFunc // of the call

	events  [][]byte // that are kept
	first   int      // number of the oldest of them
	size    int
	over    bool          // the answer has come
	dropped bool          // nobody can come back for it
	reader  chan struct{} // of the connection that gets the events, closed when another takes over; nil: there is none
	more    chan struct{} // closed when there is more to read
	timer   *time.Timer   // set while it waits for its client
}

// called is what the right to an answer depends on: the server, the tool ("" for a prompt or a resource), and the
// client's profile.
type called struct{ server, tool, profile string }

// What an event and a stream cost beside their bytes.
const (
	eventCost  = 64
	replayCost = 4096
)

var errUnread = errors.New("the client did not come back for the answer")

// replays are those of all clients, within bounds for each call, for each client and for all.
type replays struct {
	call, total int
	wait        time.Duration

	mu       sync.Mutex
	byID     map[string]*replay
	size     int
	ofClient map[string]int
	answered []*replay // that make room for others, the oldest first
}

func newReplays(limits Limits) *replays {
	return &replays{
		call: limits.Replay, total: limits.Replays, wait: limits.Resume,
		byID: make(map[string]*replay), ofClient: make(map[string]int),
	}
}

// open begins the stream of a call for the connection that has asked. It returns nil if there is no room.
func (t *replays) open(r *replay) *replay {
	t.mu.Lock()
	defer t.mu.Unlock()
	r.all, r.id, r.more = t, newSessionID(), make(chan struct{})
	if !t.room(r, replayCost) {
		return nil
	}
	select {
	case <-r.session.ended: // forget has been here
		return nil
	default:
	}
	t.byID[r.id], r.reader = r, make(chan struct{})
	t.count(r, replayCost)
	return r
}

// count adds to what is kept. t.mu is held.
func (t *replays) count(r *replay, n int) {
	client := r.session.bound.Client
	r.size, t.size, t.ofClient[client] = r.size+n, t.size+n, t.ofClient[client]+n
	if t.ofClient[client] == 0 {
		delete(t.ofClient, client)
	}
}

// room makes room for n more bytes of a stream: its own oldest events give way, or streams whose answers have come. It
// reports whether there is room. t.mu is held.
func (t *replays) room(r *replay, n int) bool {
	client := r.session.bound.Client
	for {
		own, crowded := r.size+n > t.call, t.ofClient[client]+n > t.total/4
		if !own && !crowded && t.size+n <= t.total {
			return true
		}
		victim := -1
		if !own {
			victim = slices.IndexFunc(t.answered, func(o *replay) bool {
				return o != r && (!crowded || o.session.bound.Client == client)
			})
		}
		switch {
		case victim >= 0:
			t.drop(t.answered[victim])
		case len(r.events) > 0:
			t.count(r, -len(r.events[0])-eventCost)
			r.events[0] = nil
			r.events, r.first = r.events[1:], r.first+1
		default:
			return false
		}
	}
}

// drop forgets a stream. t.mu is held.
func (t *replays) drop(r *replay) {
	if r.dropped {
		return
	}
	r.dropped = true
	delete(t.byID, r.id)
	t.count(r, -r.size)
	r.events = nil
	if r.timer != nil {
		r.timer.Stop()
	}
	if i := slices.Index(t.answered, r); i >= 0 {
		t.answered = slices.Delete(t.answered, i, i+1)
	}
	r.poke()
}

// forget drops the streams of a session that is over.
func (t *replays) forget(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		if r.session == s {
			t.drop(r)
		}
	}
}

// giveUp cancels every call whose client may still come back.
func (t *replays) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.byID {
		r.cancel(errStopping)
	}
}

// find returns a session's stream and the number of the event after which its client reads on; nil for an id that the
// gateway has not given to this session.
func (t *replays) find(s *session, event string) (r *replay, after int) {
	id, number, _ := strings.Cut(event, ".")
	after, err := strconv.Atoi(number)
	t.mu.Lock()
	defer t.mu.Unlock()
	r = t.byID[id]
	if r == nil || err != nil || r.session != s || after < 0 || after >= r.first+len(r.events) {
		return nil, 0
	}
	return r, after
}

// poke wakes the reader. t.mu is held.
func (r *replay) poke() {
	close(r.more)
	r.more = make(chan struct{})
}

// add keeps one event, and returns it as it is written. attached says that the connection which asked still gets the
// events, kept that a client can come back for this one.
func (r *replay) add(own chan struct{}, encode func(id string) []byte) (event []byte, attached, kept bool) {
	t := r.all
	t.mu.Lock()
	defer t.mu.Unlock()
	attached = r.reader == own
	if !r.dropped {
		event = encode(r.id + "." + strconv.Itoa(r.first+len(r.events)))
		if n := len(event) + eventCost; t.room(r, n) {
			r.events = append(r.events, event)
			t.count(r, n)
			r.poke()
			return event, attached, true
		}
		t.drop(r)
	}
	return encode(""), attached, false
}

// end says that the answer has come. It is kept for a while, for a client that did not get all of it.
func (r *replay) end() {
	t := r.all
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.over = true; r.dropped {
		return
	}
	t.answered = append(t.answered, r)
	r.expire()
	r.poke()
}

// expire gives the client some time to come back. t.mu is held.
func (r *replay) expire() {
	if r.timer != nil {
		r.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(r.all.wait, func() {
		r.all.mu.Lock()
		defer r.all.mu.Unlock()
		if r.timer == timer {
			r.all.drop(r)
			r.cancel(errUnread)
		}
	})
	r.timer = timer
}

// attach has a connection get the events from now on, in the place of the one before.
func (r *replay) attach() chan struct{} {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.reader != nil {
		close(r.reader)
	}
	if r.timer != nil && !r.over {
		r.timer.Stop()
		r.timer = nil
	}
	r.reader = make(chan struct{})
	return r.reader
}

// leave says that a connection is gone. It reports whether the call goes on for a client that may come back.
func (r *replay) leave(own chan struct{}) bool {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	if r.reader == own {
		if r.reader = nil; !r.over && !r.dropped {
			r.expire()
		}
	}
	return !r.dropped
}

// next returns the event after a number, or nil and what tells that there is more.
func (r *replay) next(after int) (event []byte, number int, more chan struct{}, over bool) {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	number = max(after+1, r.first)
	if i := number - r.first; i < len(r.events) {
		return r.events[i], number, nil, false
	}
	return nil, after, r.more, r.over || r.dropped
}

// resumable reports whether the client may come back for the answer to this request. Older revisions have no empty
// events, and the newer one has no sessions. An answer that can only be plain JSON has no events, and costs nothing
// here.
func (x *exchange) resumable() bool {
	s := x.session
	if s == nil || x.plain || s.version < mcp.ProtocolVersion20251125 {
		return false
	}
	return x.sse || x.meta.Get("progressToken") != nil || len(s.abilities) > len("{}") || s.level() != ""
}

// lasting is a request's context. If the client may come back, it does not end with the connection once the client has
// the id of an event.
func (x *exchange) lasting(ctx context.Context) (context.Context, context.CancelCauseFunc, func() bool) {
	if x.lasts = x.resumable(); !x.lasts {
		lasting, cancel := context.WithCancelCause(ctx)
		return lasting, cancel, func() bool { return false }
	}
	lasting, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	return lasting, cancel, context.AfterFunc(ctx, func() {
		if s := x.srv.calls; s.Err() != nil {
			cancel(context.Cause(s))
			return
		}
		if e := x.primed.Load(); e == nil || !e.replay.leave(e.reader) {
			cancel(context.Cause(ctx))
		}
	})
}

// prime gives the client of a call the id with which it can come back.
func (x *exchange) prime() {
	if x.called.server == "" || !x.lasts {
		return
	}
	r := x.srv.replays.open(&replay{session: x.session, called: x.called, cancel: x.cancel})
	if r == nil {
		return
	}
	e := x.events
	e.replay, e.reader, e.retry = r, r.reader, false
	x.primed.Store(e)
	_ = e.put(func(id string) []byte {
		if id == "" {
			return []byte(": open\n\n")
		}
		return []byte("id: " + id + "\nretry: 1000\ndata: \n\n") // milliseconds
	})
}

// unprime says that there is nothing more to come in the answer.
func (x *exchange) unprime() {
	if e := x.primed.Load(); e != nil {
		e.replay.end()
	}
}

// readOn answers GET with Last-Event-ID: the client gets what came after that event, and what is still to come.
func (x *exchange) readOn(event string) {
	r, after := x.srv.replays.find(x.session, event)
	if r == nil || !x.mayRead(r) {
		refuse(x.w, http.StatusBadRequest, "there is no such event in this session, or its stream is no longer kept: "+
			"the call may have run, so look before you repeat it")
		return
	}
	own := r.attach()
	defer r.leave(own)
	e := x.stream()
	if e.raw([]byte(": open\n\n")) != nil {
		return
	}
	alive := time.NewTicker(x.srv.limits.Alive)
	defer alive.Stop()
	for {
		if !x.mayRead(r) {
			return
		}
		var b []byte
		var more chan struct{}
		var over bool
		if b, after, more, over = r.next(after); b == nil && over {
			return
		}
		if b != nil {
			if e.raw(b) != nil {
				return
			}
			continue
		}
		select {
		case <-more:
		case <-alive.C:
			if e.raw([]byte(": alive\n\n")) != nil {
				return
			}
		case <-own:
			return
		case <-x.r.Context().Done():
			return
		case <-x.session.ended:
			return
		}
	}
}

// mayRead reports whether the client may have an answer now: its rights or its session may have changed since it asked.
func (x *exchange) mayRead(r *replay) bool {
	select {
	case <-x.session.ended:
		return false
	default:
	}
	m := x.srv.admits(x.srv.clients.table.Load(), x.bound)
	switch {
	case m == nil, x.srv.gate == nil, m.Profile != r.called.profile, !m.rights.Server(r.called.server):
		return false
	case r.called.tool != "" && !m.rights.Tool(r.called.server, r.called.tool):
		return false
	}
	who := x.identity()
	_, err := x.srv.gate.Sessions.Label(who.Client, who.Handle)
	return err == nil
}
