package registry

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// Ask is a request of a server's to the client whose call it serves.
type Ask struct {
	Server string
	Method string
	Params []byte

	u    *Upstream
	of   *waiting // the call that it is about, nil for none
	id   []byte   // the server's
	once sync.Once
	mu   sync.Mutex
	over bool   // nobody wants an answer any more
	gone func() // to be called then
}

// Declared is what the owner says of the server, nil for nothing.
func (a *Ask) Declared() []byte { return a.u.Server().Declared }

// givenUp is a call that the server may still work on, and ask about, though its client has gone.
type givenUp struct {
	client string
	until  time.Time
	flight int // place among those in flight, where it stays
}

// maxGivenUp bounds those that are remembered; with so many nobody is asked anything.
const maxGivenUp = 256

// giveUp takes a call off the books, and keeps whose it was until the server answers it after all, or for as long as a
// call may take: the server may still ask about it. It returns nil if the call is not on the books any more.
func (u *Upstream) giveUp(id int64) *waiting {
	u.mu.Lock()
	defer u.mu.Unlock()
	w := u.forgetLocked(id)
	if w == nil {
		return nil
	}
	if w.call.Client != "" && len(u.Server().Capabilities) > 0 {
		u.expireGiven()
		if len(u.given) < maxGivenUp {
			u.given[id] = givenUp{w.call.Client, time.Now().Add(u.timeout()), w.flight}
			return w
		}
	}
	u.memory.End(w.flight)
	return w
}

// expireGiven drops what is too old to be asked about. u.mu is held.
func (u *Upstream) expireGiven() {
	now := time.Now()
	for id, g := range u.given {
		if now.After(g.until) {
			delete(u.given, id)
			u.memory.End(g.flight)
		}
	}
}

// wasGivenUp reports whether an answer is to a call that nobody waits for any more, and forgets that.
func (u *Upstream) wasGivenUp(id int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	g, ok := u.given[id]
	if ok {
		delete(u.given, id)
		u.memory.End(g.flight)
	}
	return ok
}

// questionMembers are those of a question that a person sees, or that decide what becomes of it.
var questionMembers = []string{"message", "mode", "url", "elicitationId", "requestedSchema", "messages", "systemPrompt", "_meta"}

// Plain reports what in a question's parameters two parsers could read differently: the one that is looked at here must
// be the one that a client shows.
func Plain(params []byte) error {
	if params == nil {
		return nil
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return err
	}
	return ms.LookAlike(questionMembers...)
}

// asked acts on a request of the server's. It answers ping itself; the rest goes to exactly the client whose call
// caused it, if the declaration lets the server ask that of clients (client_capabilities).
func (u *Upstream) asked(m jsonrpc.Message) {
	if !jsonrpc.ValidID(m.ID) || !m.Version {
		u.faults.add(Noise, []byte(m.Method))
		return
	}
	if m.Method == string(mcp.MethodPing) {
		u.tell(append(jsonrpc.AppendHead(nil, m.ID, "result"), "{}}\n"...))
		return
	}
	a := &Ask{Server: u.Server().Name, Method: m.Method, Params: bytes.Clone(m.Params), u: u, id: bytes.Clone(m.ID)}
	if e := u.route(a, m.Depth); e != nil {
		u.faults.add(Request, []byte(m.Method))
		a.Fail(e)
	}
}

// Capability returns what a client must be capable of, and a server be allowed, for a request of the method; "" is a
// method that servers do not have.
func Capability(method string) string {
	switch mcp.MCPMethod(method) {
	case mcp.MethodSamplingCreateMessage:
		return "sampling"
	case mcp.MethodElicitationCreate:
		return "elicitation"
	case mcp.MethodListRoots:
		return "roots"
	}
	return ""
}

// capabilities are all that a declaration can allow.
var capabilities = []string{"elicitation", "roots", "sampling"}

// Refusal says why a server may not ask for the method, nil if it may.
func (u *Upstream) Refusal(method string) *jsonrpc.Error {
	c := Capability(method)
	if c == "" {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: %.100q", method)
	}
	if !slices.Contains(u.Server().Capabilities, c) {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: the declaration of %q does not let it ask clients for %s (client_capabilities)", u.Server().Name, c)
	}
	return nil
}

// route finds the client to ask, and asks.
func (u *Upstream) route(a *Ask, depth int) *jsonrpc.Error {
	if e := u.Refusal(a.Method); e != nil {
		return e
	}
	if u.Modern() {
		return jsonrpc.Errorf(mcp.METHOD_NOT_FOUND, "method not found: since protocol %s a server asks by an input_required result", mcp.ProtocolVersion20260728)
	}
	if depth > u.limits.Depth {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "it nests too deep")
	}
	if len(a.Params) > u.limits.Ask {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "it has more than %d bytes", u.limits.Ask)
	}
	if err := Plain(a.Params); err != nil {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "reading params: %v", err)
	}
	u.mu.Lock()
	of, e := u.cause()
	if e == nil && len(u.asks) >= u.limits.Asks {
		e = jsonrpc.Errorf(CodeBusy, "%d requests of this server wait for answers already", len(u.asks))
	}
	if e == nil && u.asks[string(a.id)] != nil {
		e = jsonrpc.Errorf(mcp.INVALID_REQUEST, "a request with this id is in flight")
	}
	if e == nil {
		if u.asks[string(a.id)] = a; of != nil && of.call.Ask != nil {
			a.of = of
		}
	}
	u.mu.Unlock()
	if e == nil && !u.asker(of)(a) {
		e = jsonrpc.Errorf(CodeBusy, "too many questions wait for the client")
	}
	return e
}

// cause returns the call that a request of the server's is about, nil for none in a process of one client: the calls in
// flight must be one client's only, or its answer could serve another. Of several calls it is the newest that takes
// questions. u.mu is held.
func (u *Upstream) cause() (*waiting, *jsonrpc.Error) {
	var newest int64
	var found *waiting
	for id, w := range u.waiting {
		if w.call.Client == "" { // the gateway's own
			continue
		}
		if found != nil && w.call.Client != found.call.Client {
			return nil, errWhose
		}
		if found == nil || found.call.Ask == nil || w.call.Ask != nil && id > newest {
			newest, found = id, w
		}
	}
	if e := u.doubt(found); e != nil {
		return nil, e
	}
	if u.own == nil && (found == nil || found.call.Ask == nil) {
		return nil, jsonrpc.Errorf(mcp.INVALID_REQUEST, "no call is in flight of a client that can be asked")
	}
	return found, nil
}

var errWhose = jsonrpc.Errorf(mcp.INVALID_REQUEST,
	`calls of several clients are in flight or wait for their clients' answers, and this request does not say whose it is about: declare sessions = "own"`)

// doubt says that a question may be about a call of another client's that nobody waits for any more. u.mu is held.
func (u *Upstream) doubt(found *waiting) *jsonrpc.Error {
	if u.own != nil || found == nil {
		return nil
	}
	u.expireGiven()
	for _, g := range u.given {
		if g.client != found.call.Client {
			return errWhose
		}
	}
	if len(u.given) >= maxGivenUp {
		return errWhose
	}
	return nil
}

// asker returns who asks the client of a call, or the one client of the process.
func (u *Upstream) asker(of *waiting) func(*Ask) bool {
	if of != nil && of.call.Ask != nil {
		return of.call.Ask
	}
	return u.own.Ask
}

// Answer gives the server the client's result.
func (a *Ask) Answer(result []byte) { a.reply("result", result) }

// Fail gives the server an error instead.
func (a *Ask) Fail(e *jsonrpc.Error) { a.reply("error", e.JSON()) }

func (a *Ask) reply(member string, value []byte) {
	a.once.Do(func() { a.send(member, value) })
}

func (a *Ask) send(member string, value []byte) {
	a.u.mu.Lock()
	if a.u.asks[string(a.id)] == a {
		delete(a.u.asks, string(a.id))
		if a.of != nil {
			a.of.heard = time.Now()
		}
	}
	a.u.mu.Unlock()
	line := append(jsonrpc.AppendHead(make([]byte, 0, 64+len(value)), a.id, member), value...)
	a.u.tell(jsonrpc.OneLine(append(line, "}\n"...)))
}

// Withdrawn has f called when nobody wants the answer any more, at once if that is so already.
func (a *Ask) Withdrawn(f func()) {
	a.mu.Lock()
	over := a.over
	a.gone = f
	a.mu.Unlock()
	if over {
		f()
	}
}

// GiveUp fails a question that the client has not answered, and takes it back from there. An answered one stays
// answered.
func (a *Ask) GiveUp(e *jsonrpc.Error) {
	open := false
	a.once.Do(func() {
		open = true
		a.send("error", e.JSON())
	})
	if open {
		a.takeBack()
	}
}

// Over reports whether nobody wants an answer any more.
func (a *Ask) Over() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// takeBack says that the answer is not wanted any more.
func (a *Ask) takeBack() {
	a.mu.Lock()
	gone := a.gone
	if a.over {
		gone = nil
	}
	a.over = true
	a.mu.Unlock()
	if gone != nil {
		gone()
	}
}

// withdrawn acts on a server's cancellation of a request of its own.
func (u *Upstream) withdrawn(params []byte) {
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		u.faults.add(Noise, params)
		return
	}
	u.mu.Lock()
	a := u.asks[string(ms.Get("requestId"))]
	if a != nil {
		delete(u.asks, string(a.id))
	}
	u.mu.Unlock()
	if a == nil {
		return // answered in this moment, or not its to cancel
	}
	a.once.Do(func() {})
	a.takeBack()
}

// mayHear says who may hear a log message: the one client that has calls in flight, with those of them that asked for
// such, or everybody if there are none. It is not sure if there are calls of several: on stdio a server does not say
// whose call a message is about, and it may be another client's business.
func (u *Upstream) mayHear() (to string, hear []func([]byte), sure bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var one *waiting
	for _, w := range u.waiting {
		if w.call.Client == "" {
			continue
		}
		if one != nil && one.call.Client != w.call.Client {
			return "", nil, false
		}
		one = w
		if w.call.Log != nil {
			hear = append(hear, w.call.Log)
		}
	}
	if one == nil {
		return "", nil, true
	}
	return one.call.Client, hear, u.doubt(one) == nil
}

var errCapabilities = errors.New("clientCapabilities is not an object")

// shapes are what a client's capabilities may say, by name: any other member would be a text of the client's choosing
// that no gate has seen.
var shapes = map[string][]string{"elicitation": {"form", "url"}, "roots": {"listChanged"}, "sampling": {"context", "tools"}}

// Allow returns of a client's capabilities those that the server may make use of, in the shapes that the protocol gives
// them.
func Allow(have []byte, allowed []string) ([]byte, error) {
	if have == nil {
		return []byte("{}"), nil
	}
	ms, err := jsonrpc.Object(have, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCapabilities, err)
	}
	return shaped(ms, allowed, func(i int) []byte {
		of, _ := jsonrpc.Object(ms[i].Raw(), nil)
		return shaped(of, shapes[string(ms[i].Name)], func(i int) []byte {
			if raw := of[i].Raw(); string(raw) == "true" || string(raw) == "false" {
				return raw
			}
			return []byte("{}")
		})
	}), nil
}

// shaped is the object of the members with these names.
func shaped(ms jsonrpc.Members, names []string, value func(i int) []byte) []byte {
	b := []byte{'{'}
	for i := range ms {
		if !slices.Contains(names, string(ms[i].Name)) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(string(ms[i].Name))...), ':'), value(i)...)
	}
	return append(b, '}')
}

// every is the object of capabilities of a client that has all that is allowed.
func every(allowed []string) []byte {
	b := []byte{'{'}
	for _, c := range capabilities {
		if !slices.Contains(allowed, c) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		value := `{}`
		if c == "elicitation" {
			value = `{"form":{},"url":{}}`
		}
		b = fmt.Appendf(b, "%q:%s", c, value)
	}
	return append(b, '}')
}
