package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/units/handover"
)

// Upstream is the conversation with one server process, from Hello to its end.
type Upstream struct {
	declared atomic.Pointer[declared]
	handed   int64 // handover.Message.At of the handover
	conn     *conn
	limits   *Limits
	log      *slog.Logger
	faults   *faults
	leaks    leaks
	note     func(to, method string, params []byte) // a notification for clients, or for the one that has calls in flight; must not block
	hangUp   func()                                 // on the launcher; nil: there is none

	redaction *Redaction // nil: nothing is secret
	secrets   int64      // serial of those that have to be known before it is read

	memory *keep.Memory // gives ids and tokens out, and knows which are in flight
	before int64        // those up to here are a gateway's before this one

	inherited map[int]int64 // of those, the requests in flight, by their places

	slots  chan struct{}
	queued atomic.Int64
	out    chan []byte   // what is written when the server reads: answers to it, cancellations
	done   chan struct{} // closed at the end
	stale  chan struct{} // a list changed

	retells *rate.Limiter // of changes that change nothing
	level   atomic.Int32  // the most verbose of log messages that it has been told; 0: none

	hold    hold        // requests that keep it awake
	untried atomic.Bool // it was started to learn what it offers, and nobody has wanted anything of it yet

	writing sync.Mutex // held from reading what is remembered until it is written

	mu       sync.Mutex
	waiting  map[int64]*waiting
	progress map[int64]*waiting
	asks     map[string]*Ask   // that it waits for, by its id
	given    map[int64]givenUp // calls that nobody waits for any more, and that it may still work on
	changed  Kinds             // since the last discovery, as the server says
	unheard  Kinds             // may have changed while nobody listened
	hints    [Templates + 1]Hint
	dropped  [Templates + 1]dropped
	stopping bool
	used     time.Time // when something last kept it awake, or the last call of its own session's ended
	ended    error

	agreed  atomic.Pointer[Agreement] // nil until the handshake is over
	modern  atomic.Bool               // speaks 2026-07-28
	listens listens                   // of a server of 2026-07-28
	own     *SessionClient            // of a process that serves one client session alone
}

func newUpstream(server handover.Server, stdin, stdout *os.File, memory *keep.Memory, limits *Limits, log *slog.Logger) *Upstream {
	log = log.With("server", server.Name)
	u := &Upstream{
		conn: newConn(stdin, stdout, memory, limits), memory: memory, before: memory.Last(), limits: limits,
		log: log, faults: newFaults(log),
		note:  func(string, string, []byte) {},
		slots: make(chan struct{}, limits.Concurrent), out: make(chan []byte, 2*limits.Concurrent),
		retells: rate.NewLimiter(rate.Every(10*time.Second), 5),
		listens: listens{want: make(map[string]bool), kick: make(chan struct{}, 1)},
		done:    make(chan struct{}), stale: make(chan struct{}, 1), used: time.Now(),
		waiting: make(map[int64]*waiting), progress: make(map[int64]*waiting), asks: make(map[string]*Ask), given: make(map[int64]givenUp),
	}
	u.declare(server)
	return u
}

// Agreed returns what the handshake settled.
func (u *Upstream) Agreed() Agreement {
	if a := u.agreed.Load(); a != nil {
		return *a
	}
	return Agreement{}
}

// agree settles it.
func (u *Upstream) agree(a Agreement) {
	u.modern.Store(a.Modern())
	u.agreed.Store(&a)
}

// Modern reports whether the server is spoken to without a session, as 2026-07-28 has it.
func (u *Upstream) Modern() bool { return u.modern.Load() }

// Alive reports whether the conversation goes on.
func (u *Upstream) Alive() bool { return u.why() == nil && !u.isStopped() }

// Notify tells the server something that has no parameters.
func (u *Upstream) Notify(method string) { u.tell(jsonrpc.AppendRequest(nil, 0, method, nil)) }

// Louder reports whether a level of log messages, 1 for the most verbose, is to be told to the server, and takes it
// that it is: what it has been told is never taken back, for what each client does not want is left out here, and who
// can turn a level up and down can tell the server anything by it, without a call.
func (u *Upstream) Louder(level int) bool {
	for {
		told := u.level.Load()
		if told != 0 && told <= int32(level) {
			return false
		}
		if u.level.CompareAndSwap(told, int32(level)) {
			return true
		}
	}
}

// Leaks returns how often which secret stood in what the server said.
func (u *Upstream) Leaks() map[string]uint64 { return u.leaks.all() }

// Faults returns how often the server did what.
func (u *Upstream) Faults() map[Fault]int { return u.faults.all() }

// run reads and writes until the conversation ends.
func (u *Upstream) run() {
	go u.send()
	if !u.mayRead() {
		return
	}
	var notes window
	for tail := u.before > 0; ; tail = false {
		line, err := u.conn.read()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errClosed
			}
			u.end(err)
			return
		}
		if tail && isTail(line) {
			continue
		}
		u.take(u.clean(line), &notes)
	}
}

// isTail reports whether the first line after another gateway has read is the end of one of which that has read the
// beginning. A line that is a message is whole: what remains of a JSON object without its beginning has more closing
// brackets than opening ones, or an odd number of quotation marks, and so is none itself.
func isTail(line []byte) bool {
	_, err := jsonrpc.Parse(line)
	return err != nil && !errors.Is(err, jsonrpc.ErrUTF8)
}

var errClosed = errors.New("it closed its stdout")

// end ends the conversation once; the first reason stands.
func (u *Upstream) end(why error) {
	u.mu.Lock()
	first := u.ended == nil
	if first {
		u.ended = why
	}
	u.mu.Unlock()
	if first {
		close(u.done)
		if errors.Is(why, errShutdown) && u.hangUp != nil {
			u.hangUp() // before the server sees the end of its stdin: its launcher has to know whose doing its end is
		}
		u.conn.close()
	}
}

// stop lets calls in flight finish and takes no new ones.
func (u *Upstream) stop() {
	u.mu.Lock()
	u.stopping = true
	u.mu.Unlock()
	u.conn.closeInput()
}

// send writes what nobody waits for.
func (u *Upstream) send() {
	for {
		select {
		case line := <-u.out:
			if err := u.conn.write(context.Background(), line); err != nil {
				u.faults.add(Unread, line)
			}
		case <-u.done:
			return
		}
	}
}

// tell queues a line, or drops it if the server reads nothing.
func (u *Upstream) tell(line []byte) {
	select {
	case u.out <- line:
	default:
		u.faults.add(Unread, line)
	}
}

// take acts on one line of the server's.
func (u *Upstream) take(line []byte, notes *window) {
	if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
		return
	}
	m, err := jsonrpc.Parse(line)
	switch {
	case err != nil && !errors.Is(err, jsonrpc.ErrUTF8):
		u.faults.add(Noise, line)
		u.unreadable(line, "it is no JSON-RPC message that can be read in one way; its log has it")
	case m.Method == "" && m.ID != nil:
		u.answered(m, err)
	case err != nil:
		u.faults.add(Encoding, line)
	case m.Method != "" && m.ID != nil:
		u.asked(m)
	case m.Method != "":
		u.notified(m, notes)
	default:
		u.faults.add(Noise, line)
	}
}

// answered hands an answer to the call that waits for it; the first one counts.
func (u *Upstream) answered(m jsonrpc.Message, err error) {
	id, ok := ourID(m.ID)
	if !ok {
		u.faults.add(MistypedID, m.ID)
		u.unreadable(fmt.Appendf(nil, `"id":%s`, bytes.Trim(m.ID, `"`)), "its id is not the number that it was asked with")
		return
	}
	w := u.forget(id)
	if w == nil && u.wasGivenUp(id) {
		return
	}
	if w == nil {
		if id > u.before {
			u.faults.add(Unsolicited, m.ID)
		}
		return
	}
	w.answer <- answer{m, err}
}

func (u *Upstream) notified(m jsonrpc.Message, notes *window) {
	if k := changedBy(m.Method); k != 0 { // costs nothing: discovery is coalesced
		u.again(k, 0)
		return
	}
	if !notes.allow(u.limits.Notes) {
		u.faults.add(Flood, []byte(m.Method))
		return
	}
	if len(m.Params) > u.limits.Note { // it may wait for many clients
		u.faults.add(Long, []byte(m.Method))
		return
	}
	switch m.Method {
	case string(mcp.MethodNotificationProgress):
		u.progressed(m.Params)
	case string(mcp.MethodNotificationMessage):
		to, hear, sure := u.mayHear()
		if !sure {
			return
		}
		if !u.Modern() { // since 2026-07-28 each call says for itself what it wants to hear
			u.note(to, m.Method, m.Params)
		}
		for _, f := range hear {
			f(m.Params)
		}
	case mcp.MethodNotificationResourceUpdated, string(mcp.MethodNotificationElicitationComplete):
		u.note("", m.Method, unmarked(m.Params))
	case string(mcp.MethodNotificationSubscriptionsAcknowledged):
		u.acknowledged(m.Params)
	case string(mcp.MethodNotificationCancelled):
		u.withdrawn(m.Params)
	}
}

func (u *Upstream) setHint(k Kind, h Hint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.hints[k] = h
}

func (u *Upstream) hintOf(k Kind) Hint {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hints[k]
}

func (u *Upstream) hintsNow() [Templates + 1]Hint {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.hints
}

// again has lists discovered again: those that the server says have changed, and those that may have.
func (u *Upstream) again(said, unheard Kinds) {
	u.mu.Lock()
	u.changed |= said
	u.unheard |= unheard
	u.mu.Unlock()
	select {
	case u.stale <- struct{}{}:
	default:
	}
}

// progressed passes progress on under the token of the client whose call it is.
func (u *Upstream) progressed(params []byte) {
	ms, err := jsonrpc.Object(params, make(jsonrpc.Members, 0, 4))
	if err != nil {
		u.faults.add(Noise, params)
		return
	}
	i := ms.Index("progressToken")
	if i < 0 {
		u.faults.add(Noise, params)
		return
	}
	token, ok := ourID(ms[i].Raw())
	u.mu.Lock()
	w := u.progress[token]
	u.mu.Unlock()
	if ok && w == nil && token <= u.before {
		return
	}
	if !ok || w == nil {
		u.faults.add(Unsolicited, params)
		return
	}
	w.call.Progress(jsonrpc.Splice(nil, params, ms.Replace(i, w.call.ClientToken)))
}

// window counts notifications of the current second. Only the reading goroutine uses it.
type window struct {
	start time.Time
	n     int
}

func (w *window) allow(limit int) bool {
	if now := time.Now(); now.Sub(w.start) >= time.Second {
		w.start, w.n = now, 0
	}
	w.n++
	return w.n <= limit
}
