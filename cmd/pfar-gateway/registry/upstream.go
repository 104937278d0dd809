package registry

import (
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

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/units/handover"
)

// Upstream is the conversation with one server process, from Hello to its end.
type Upstream struct {
	server  handover.Server
	conn    *conn
	limits  *Limits
	timeout time.Duration
	log     *slog.Logger
	faults  *faults
	note    func(method string, params []byte) // a notification for clients; must not block

	last   atomic.Int64 // id or token given out
	slots  chan struct{}
	queued atomic.Int64
	out    chan []byte   // what is written when the server reads: answers to it, cancellations
	done   chan struct{} // closed at the end
	stale  chan struct{} // a list changed

	mu       sync.Mutex
	waiting  map[int64]*waiting
	progress map[int64]*waiting
	changed  Kinds // since the last discovery
	stopping bool
	ended    error

	agreed Agreement // set by start
}

func newUpstream(server handover.Server, stdin, stdout *os.File, limits *Limits, log *slog.Logger) *Upstream {
	log = log.With("server", server.Name)
	u := &Upstream{
		server: server, conn: newConn(stdin, stdout, limits), limits: limits, timeout: server.Timeout, log: log, faults: newFaults(log),
		note:  func(string, []byte) {},
		slots: make(chan struct{}, limits.Concurrent), out: make(chan []byte, 2*limits.Concurrent),
		done: make(chan struct{}), stale: make(chan struct{}, 1),
		waiting: make(map[int64]*waiting), progress: make(map[int64]*waiting),
	}
	if u.timeout <= 0 {
		u.timeout = limits.Call
	}
	return u
}

// Server returns what the declaration says of the server.
func (u *Upstream) Server() handover.Server { return u.server }

// Agreed returns what the handshake settled.
func (u *Upstream) Agreed() Agreement { return u.agreed }

// Faults returns how often the server did what.
func (u *Upstream) Faults() map[Fault]int { return u.faults.all() }

// run reads and writes until the conversation ends.
func (u *Upstream) run() {
	go u.send()
	var notes window
	for {
		line, err := u.conn.read()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errClosed
			}
			u.end(err)
			return
		}
		u.take(line, &notes)
	}
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
	case m.Method == "" && m.ID != nil:
		u.answered(m, err)
	case err != nil:
		u.faults.add(Encoding, line)
	case m.Method != "" && m.ID != nil:
		u.refuse(m)
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
		return
	}
	w := u.forget(id)
	if w == nil {
		u.faults.add(Unsolicited, m.ID)
		return
	}
	w.answer <- answer{m, err}
}

// refuse answers the server's own requests: ping, and no to the rest, since what a server may ask of a client or its
// user (sampling, elicitation, roots) no declaration allows yet.
func (u *Upstream) refuse(m jsonrpc.Message) {
	if !jsonrpc.ValidID(m.ID) || !m.Version {
		u.faults.add(Noise, []byte(m.Method))
		return
	}
	var line []byte
	if m.Method == string(mcp.MethodPing) {
		line = append(jsonrpc.AppendHead(nil, m.ID, "result"), "{}"...)
	} else {
		u.faults.add(Request, []byte(m.Method))
		e := jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: pfar offers servers nothing but ping")
		line = append(jsonrpc.AppendHead(nil, m.ID, "error"), e.JSON()...)
	}
	u.tell(append(line, "}\n"...))
}

func (u *Upstream) notified(m jsonrpc.Message, notes *window) {
	if k := changedBy(m.Method); k != 0 { // costs nothing: discovery is coalesced
		u.mu.Lock()
		u.changed |= k
		u.mu.Unlock()
		select {
		case u.stale <- struct{}{}:
		default:
		}
		return
	}
	if !notes.allow(u.limits.Notes) {
		u.faults.add(Flood, []byte(m.Method))
		return
	}
	switch m.Method {
	case string(mcp.MethodNotificationProgress):
		u.progressed(m.Params)
	case string(mcp.MethodNotificationMessage), mcp.MethodNotificationResourceUpdated:
		u.note(m.Method, m.Params)
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

// Agreement is what the handshake settled.
type Agreement struct {
	Protocol     string
	Capabilities jsonrpc.Members
	Info         []byte // serverInfo as it came
	Instructions string
}

// Has reports whether the server offers the capability.
func (a Agreement) Has(capability string) bool {
	raw := a.Capabilities.Get(capability)
	return len(raw) > 0 && raw[0] == '{'
}

// Subscribes reports whether the server tells of changes to single resources.
func (a Agreement) Subscribes() bool {
	raw := a.Capabilities.Get("resources")
	if len(raw) == 0 || raw[0] != '{' {
		return false
	}
	ms, err := jsonrpc.Object(raw, nil)
	return err == nil && string(ms.Get("subscribe")) == "true"
}

// handshake speaks the newest revision that has a handshake, or what the server answers if we know that too. A server
// is spoken to in one revision for all its life.
func (u *Upstream) handshake(ctx context.Context, version string) (Agreement, error) {
	params := fmt.Appendf(nil, `{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"pfar","version":%s}}`,
		mcp.LATEST_LEGACY_PROTOCOL_VERSION, jsonrpc.Quote(version))
	raw, err := u.Call(ctx, Call{Method: string(mcp.MethodInitialize), Params: params})
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", err)
	}
	a := Agreement{Info: plainInfo(ms.Get("serverInfo"), u.server.Name)}
	if a.Protocol, err = jsonrpc.String(ms.Get("protocolVersion")); err != nil {
		return Agreement{}, fmt.Errorf("initializing: protocolVersion %s is %w", quote(ms.Get("protocolVersion")), err)
	}
	if !mcp.IsValidProtocolVersion(a.Protocol) || mcp.IsModernProtocol(a.Protocol) {
		return Agreement{}, fmt.Errorf("initializing: the server speaks protocol %s, pfar speaks %q",
			quote(a.Protocol), mcp.LegacyProtocolVersions())
	}
	if a.Capabilities, err = jsonrpc.Object(ms.Get("capabilities"), nil); err != nil {
		return Agreement{}, fmt.Errorf("initializing: reading capabilities: %w", err)
	}
	if text := ms.Get("instructions"); len(text) > 0 && text[0] == '"' {
		a.Instructions, _ = jsonrpc.String(text)
	}
	line := jsonrpc.AppendRequest(nil, 0, string(mcp.MethodNotificationInitialized), nil)
	if err := u.conn.write(ctx, line); err != nil {
		return Agreement{}, fmt.Errorf("initializing: %w", u.writeError(ctx, err))
	}
	return a, nil
}
