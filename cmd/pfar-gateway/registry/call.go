package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/policies/redact"
)

// Codes of errors that are the gateway's own, in the range that JSON-RPC leaves to implementations.
const (
	CodeUnavailable = -32010 // the server is known but does not run now
	CodeBusy        = -32011 // too many calls wait for it
)

// Call is one request to a server.
type Call struct {
	Method string
	Params []byte

	Token       int64               // of progress, from Upstream.Token, as it stands in Params; 0: none wanted
	ClientToken []byte              // what progress calls it instead
	Progress    func(params []byte) // must not block: the server's answers wait

	Client string              // whose call it is: what a server asks is asked of exactly that client
	Ask    func(*Ask) bool     // takes what the server asks in the course of the call, unless it reports false; must not block
	Log    func(params []byte) // takes log messages of a server of 2026-07-28; must not block
	Free   bool                // takes none of the places for calls: the gateway's own, which are few
	Meta   bool                // Params has what a server of 2026-07-28 wants in _meta

	// Withdraw reports whether the server may hear that the caller has left before the answer came, and for this cause;
	// nil: it may. If it may not, the call runs on unheard.
	Withdraw func(cause error) bool
}

// waiting is a call whose answer has not come.
type waiting struct {
	call   *Call
	answer chan answer // room for one
	timer  *time.Timer
	since  time.Time     // it was about to be sent
	begun  chan struct{} // of a stream of notifications: closed when it is open
	open   bool
	unread string // why a line that looks like the answer could not be read; "": there was none; under the upstream's lock

	flight int // place among those in flight

	heard    time.Time // when a client has last answered a question about it; under the upstream's lock
	declined bool      // the server will not tell of resources; set before begun is closed
}

// pool has those that are over, with their channels and timers.
var pool = sync.Pool{New: func() any {
	return &waiting{answer: make(chan answer, 1), timer: time.NewTimer(time.Hour)}
}}

type answer struct {
	jsonrpc.Message
	err error
}

// Gone is the error of a call whose server ended before it answered.
type Gone struct {
	refusal *jsonrpc.Error
	Sent    bool // the server has been told of the call, so it may have acted on it
}

func (g *Gone) Error() string { return g.refusal.Error() }

// Unwrap returns what to tell the client.
func (g *Gone) Unwrap() error { return g.refusal }

// few calls in flight are written each for itself: to wait for others would cost them more than it saves.
const few = 4

// Token returns a progress token that no other call to this server has.
func (u *Upstream) Token() int64 { return u.memory.Next() }

// Call sends a request and returns the result as the server wrote it. Every error is a *jsonrpc.Error. When ctx ends
// or time is up, the server is told that the answer is not wanted any more, unless the call's Withdraw forbids it.
func (u *Upstream) Call(ctx context.Context, c Call) ([]byte, error) {
	if err := u.known(ctx); err != nil {
		return nil, err
	}
	w := pool.Get().(*waiting)
	w.call = &c
	w.timer.Reset(u.timeout())
	if !c.Free {
		if err := u.enter(ctx, w.timer.C); err != nil {
			w.timer.Stop()
			return nil, err
		}
	}
	w.since = time.Now()
	id := u.memory.Next()
	if err := u.expect(id, w); err != nil {
		u.over(w, false)
		return nil, err
	}
	if !c.Meta && u.Modern() {
		c.Params = withMeta(c.Params, u.Agreed().meta)
	}
	line := jsonrpc.AppendRequest(make([]byte, 0, 64+len(c.Method)+len(c.Params)), id, c.Method, c.Params)
	written, err := u.conn.send(ctx, line, len(u.slots) > few)
	if err != nil {
		err = u.unsent(ctx, id, err)
		u.over(w, false)
		return nil, err
	}
	result, end, err := u.await(ctx, id, w, written)
	if end == runsOn {
		held := u.Hold() // before the caller's own hold ends
		go u.runOut(id, w, written, held)
		return nil, err
	}
	u.over(w, end == answered)
	return result, err
}

// How waiting for a call's answer ends.
type ending int

const (
	failed ending = iota
	answered
	runsOn // the server still works on it, and may not hear that nobody waits
)

// await waits for the answer to a call that has been sent.
func (u *Upstream) await(ctx context.Context, id int64, w *waiting, written *batch) ([]byte, ending, error) {
	method := w.call.Method
	for {
		select {
		case a := <-w.answer:
			result, err := u.judge(a, method)
			return result, answered, err
		case <-u.done:
			select {
			case a := <-w.answer: // it came before the end
				result, err := u.judge(a, method)
				return result, failed, err
			default:
				return nil, failed, u.gone(true)
			}
		case <-written.failure():
			return nil, failed, u.unsent(ctx, id, written.err)
		case <-ctx.Done():
			if w.call.Withdraw != nil && !w.call.Withdraw(context.Cause(ctx)) {
				return nil, runsOn, interrupted(ctx)
			}
			u.abandon(id, "cancelled")
			return nil, failed, interrupted(ctx)
		case <-w.timer.C:
			if err := u.unread(w, id); err != nil {
				return nil, failed, err
			}
			if rest := min(u.stillAsking(w), u.limits.Human-time.Since(w.since)); rest > 0 {
				w.timer.Reset(rest)
				continue
			}
			u.abandon(id, "timed out")
			return nil, failed, u.late(method)
		}
	}
}

// runOut waits in place of a caller who has left. The call keeps its place and its time, so that the server cannot
// tell.
func (u *Upstream) runOut(id int64, w *waiting, written *batch, held bool) {
	if held {
		defer u.Release()
	}
	_, end, _ := u.await(context.Background(), id, w, written)
	u.over(w, end == answered)
}

// over gives back what a call has taken. An answered one is used again.
func (u *Upstream) over(w *waiting, answered bool) {
	c := w.call
	w.timer.Stop()
	if c.Ask != nil {
		u.settle(w)
	}
	if !c.Free {
		u.leave()
	}
	if answered && c.Ask == nil { // and so nobody else has w any more
		w.call, w.unread = nil, ""
		pool.Put(w)
	}
}

// settle ends the questions of a call that is over: whoever is asked need not answer any more.
func (u *Upstream) settle(w *waiting) {
	u.mu.Lock()
	var open []*Ask
	for _, a := range u.asks {
		if a.of == w {
			open = append(open, a)
		}
	}
	u.mu.Unlock()
	for _, a := range open {
		a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the call that this is about is over"))
		a.takeBack()
	}
}

// stillAsking returns how much longer a call may take because the server waits for a client's answer, or has just had
// it: people take their time.
func (u *Upstream) stillAsking(w *waiting) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.asks {
		if a.of == w {
			return u.timeout()
		}
	}
	if w.heard.IsZero() {
		return 0
	}
	return u.timeout() - time.Since(w.heard)
}

// leave gives the place back.
func (u *Upstream) leave() {
	<-u.slots
	if u.own != nil {
		u.mu.Lock()
		u.used = time.Now()
		u.mu.Unlock()
	}
}

// enter takes one of the places for calls in flight, waiting for it if not too many wait already.
func (u *Upstream) enter(ctx context.Context, expired <-chan time.Time) error {
	select {
	case u.slots <- struct{}{}:
		return nil
	default:
	}
	if u.queued.Add(1) > int64(u.limits.Waiting) {
		u.queued.Add(-1)
		return jsonrpc.Errorf(CodeBusy, "server %q is busy: %d calls run and %d wait; try again later",
			u.Server().Name, u.limits.Concurrent, u.limits.Waiting)
	}
	defer u.queued.Add(-1)
	select {
	case u.slots <- struct{}{}:
		return nil
	case <-u.done:
		return u.gone(false)
	case <-ctx.Done():
		return interrupted(ctx)
	case <-expired:
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "server %q did not get to the call within %v: %d others run",
			u.Server().Name, u.timeout(), u.limits.Concurrent)
	}
}

func (u *Upstream) expect(id int64, w *waiting) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended != nil || u.stopping || u.hold.resting() {
		return u.goneLocked(false)
	}
	u.waiting[id] = w
	w.flight = u.memory.Begin(id)
	if w.call.Token != 0 {
		u.progress[w.call.Token] = w
	}
	return nil
}

// forget takes a call off the books and returns it, nil if it is not on them.
func (u *Upstream) forget(id int64) *waiting {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.forgetLocked(id)
	if w != nil {
		u.memory.End(w.flight)
	}
	return w
}

func (u *Upstream) forgetLocked(id int64) *waiting {
	w := u.waiting[id]
	if w == nil {
		return nil
	}
	delete(u.waiting, id)
	if w.call.Token != 0 {
		delete(u.progress, w.call.Token)
	}
	return w
}

// abandon forgets a call and tells the server so.
func (u *Upstream) abandon(id int64, reason string) {
	if u.giveUp(id) == nil {
		return // answered in this moment
	}
	params := fmt.Appendf(nil, `{"requestId":%d,"reason":%q}`, id, reason)
	u.tell(jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationCancelled), params))
}

// judge turns an answer into a result or an error; a wrong shape is an error.
func (u *Upstream) judge(a answer, method string) ([]byte, error) {
	wrong := ""
	switch {
	case a.err != nil:
		wrong = a.err.Error()
	case !a.Version:
		wrong = `it is not marked "jsonrpc":"2.0"`
	case a.Result != nil && a.Error != nil:
		wrong = "it has both a result and an error"
	case a.Error != nil && jsonrpc.ValidError(a.Error):
		return nil, &jsonrpc.Error{Raw: redact.StripJSON(a.Error)}
	case a.Error != nil:
		wrong = "its error is not an object with code and message"
	case a.Result == nil:
		wrong = "it has neither a result nor an error"
	case a.Result[0] != '{':
		wrong = "its result is not an object"
	case a.Depth > u.limits.Depth && method != string(mcp.MethodToolsList): // tools are judged one by one
		wrong = fmt.Sprintf("it nests %d levels deep, at most %d are passed on", a.Depth, u.limits.Depth)
	default:
		return a.Result, nil
	}
	return nil, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q answered %s against the protocol: %s", u.Server().Name, method, wrong)
}

func (u *Upstream) late(method string) error {
	doubt := ""
	if method == string(mcp.MethodToolsCall) {
		doubt = "; whether it has done what was asked is not known"
	}
	return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "server %q did not answer %s within %v%s", u.Server().Name, method, u.timeout(), doubt)
}

// unsent takes a call off the books that could not be written, or whose caller has not waited for that.
func (u *Upstream) unsent(ctx context.Context, id int64, err error) error {
	u.mu.Lock()
	w := u.waiting[id]
	u.mu.Unlock()
	if ctx.Err() != nil && w != nil && (w.call.Withdraw == nil || w.call.Withdraw(context.Cause(ctx))) {
		u.abandon(id, "cancelled") // it may have been, or will be
	}
	u.forget(id)
	return u.writeError(ctx, err)
}

func (u *Upstream) writeError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return interrupted(ctx)
	case errors.Is(err, errStuck):
		return jsonrpc.Errorf(CodeUnavailable, "server %q: %v", u.Server().Name, err)
	}
	return u.gone(true) // some of it may have got there
}

func interrupted(ctx context.Context) error {
	return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the request was given up: %v", context.Cause(ctx))
}

// gone says that the server ended, and why.
func (u *Upstream) gone(sent bool) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.goneLocked(sent)
}

func (u *Upstream) goneLocked(sent bool) error {
	why := "its stdin is closed"
	switch {
	case u.ended != nil:
		why = u.ended.Error()
	case u.stopping:
		why = "it is being stopped"
	case u.hold.resting():
		why = errAsleep.Error()
	}
	return &Gone{jsonrpc.Errorf(CodeUnavailable, "server %q went away: %s", u.Server().Name, why), sent}
}

// ourID reads an id as we write them: digits and nothing else, so that 7, "7", 7.0 and 07 are not the same.
func ourID(raw []byte) (int64, bool) {
	if len(raw) == 0 || len(raw) > 18 || raw[0] < '1' || raw[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}
