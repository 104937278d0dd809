package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// reader acts on what the server says. One goroutine uses it.
type reader struct {
	c     *Conversation
	since time.Time // when the current second began
	notes int       // notifications since then
}

// take acts on one line.
func (r *reader) take(line []byte) {
	if len(line) == 0 || len(line) == 1 && line[0] == '\r' {
		return
	}
	faults := r.c.faults
	m, err := jsonrpc.Parse(line)
	switch {
	case err != nil && !errors.Is(err, jsonrpc.ErrUTF8):
		faults.add(Noise, line)
		r.c.flights.unreadable(line, "the line is not a valid JSON-RPC message; the server's log has it", r.c.timeout())
	case m.Method == "" && m.ID != nil:
		r.answered(m, err)
	case err != nil:
		faults.add(Encoding, line)
	case m.Method != "" && m.ID != nil:
		r.asked(m)
	case m.Method != "":
		r.notified(m)
	default:
		faults.add(Noise, line)
	}
}

// answered hands an answer to the call that waits for it; the first one counts.
func (r *reader) answered(m jsonrpc.Message, err error) {
	id, ok := ourID(m.ID)
	if !ok {
		r.c.faults.add(MistypedID, m.ID)
		line := fmt.Appendf(nil, `"id":%s`, bytes.Trim(m.ID, `"`))
		r.c.flights.unreadable(line, "the answer's id is not the number of the request", r.c.timeout())
		return
	}
	if w := r.c.flights.forget(id); w != nil {
		w.answer <- answer{m, err}
	} else if !r.c.flights.wasGivenUp(id) && id > r.c.flights.before {
		r.c.faults.add(Unsolicited, m.ID)
	}
}

// asked acts on a request of the server's. It answers ping itself; the rest goes to exactly the client whose call
// caused it, if the declaration lets the server ask that of clients (client_capabilities).
func (r *reader) asked(m jsonrpc.Message) {
	if !jsonrpc.ValidID(m.ID) || !m.Version {
		r.c.faults.add(Noise, []byte(m.Method))
		return
	}
	if m.Method == string(mcp.MethodPing) {
		r.c.outbox.tell(append(jsonrpc.AppendHead(nil, m.ID, "result"), "{}}\n"...))
		return
	}
	a := &Ask{
		Server: r.c.name(), Method: m.Method, Params: bytes.Clone(m.Params),
		terms: r.c.Terms, flights: r.c.flights, outbox: r.c.outbox, id: bytes.Clone(m.ID),
	}
	if e := r.route(a, m.Depth); e != nil {
		r.c.faults.add(Request, []byte(m.Method))
		a.Fail(e)
	}
}

// route finds the client to ask, and asks.
func (r *reader) route(a *Ask, depth int) *jsonrpc.Error {
	if e := r.c.Refusal(a.Method); e != nil {
		return e
	}
	if r.c.Modern() {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s a server asks by an input_required result",
			mcp.ProtocolVersion20260728)
	}
	if depth > r.c.limits.Depth {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "the request nests too deep")
	}
	if len(a.Params) > r.c.limits.Ask {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "the request has more than %d bytes", r.c.limits.Ask)
	}
	if err := Plain(a.Params); err != nil {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "reading params: %v", err)
	}
	ask, e := r.c.flights.asked(a, r.c.limits.Asks)
	if e == nil && !ask(a) {
		e = jsonrpc.Errorf(CodeBusy, "too many questions wait for the client")
	}
	return e
}

func (r *reader) notified(m jsonrpc.Message) {
	if r.c.listener.Changed(m.Method) { // costs nothing: discovery is coalesced
		return
	}
	if !r.allow() {
		r.c.faults.add(Flood, []byte(m.Method))
		return
	}
	if len(m.Params) > r.c.limits.Note { // it may wait for many clients
		r.c.faults.add(Long, []byte(m.Method))
		return
	}
	var fault Fault
	switch m.Method {
	case string(mcp.MethodNotificationProgress):
		fault = r.c.flights.progressed(m.Params)
	case string(mcp.MethodNotificationMessage):
		r.logged(m)
	case mcp.MethodNotificationResourceUpdated, string(mcp.MethodNotificationElicitationComplete):
		r.c.listener.Note("", m.Method, unmarked(m.Params))
	case string(mcp.MethodNotificationSubscriptionsAcknowledged):
		fault = r.c.flights.acknowledged(m.Params)
	case string(mcp.MethodNotificationCancelled):
		fault = r.c.flights.withdrawn(m.Params)
	}
	if fault != "" {
		r.c.faults.add(fault, m.Params)
	}
}

// allow counts a notification and reports whether it is one of those that are looked at.
func (r *reader) allow() bool {
	if now := time.Now(); now.Sub(r.since) >= time.Second {
		r.since, r.notes = now, 0
	}
	r.notes++
	return r.notes <= r.c.limits.Notes
}

// logged passes a log message on to those who may hear it.
func (r *reader) logged(m jsonrpc.Message) {
	to, hear, sure := r.c.flights.mayHear()
	if !sure {
		return
	}
	if !r.c.Modern() { // since 2026-07-28 each call says for itself what it wants to hear
		r.c.listener.Note(to, m.Method, m.Params)
	}
	for _, f := range hear {
		f(m.Params)
	}
}
