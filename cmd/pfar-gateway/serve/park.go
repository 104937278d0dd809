package serve

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
)

var (
	errHungUp     = errors.New("the client hung up")
	errUnanswered = errors.New("the client did not answer in time")
)

// parked is a call to a server with sessions that waits until its client, of 2026-07-28, comes back with answers.
type parked struct {
	conversation *conversation
	asks         map[string]*registry.Ask
	scope        [sha256.Size]byte
	bound        binding
	pass         *enforce.Passage
	expiry       *time.Timer
	state        string        // that its client comes back with; under the parking's lock
	left         chan struct{} // closed when it waits no more
	freed        time.Time     // when its place was, as the call had ended; under the parking's lock
}

// parking are all of them, by the state that their clients come back with.
type parking struct {
	mu      sync.Mutex
	byState map[string]*parked
}

const (
	parkedPrefix = "pfar-call-"
	sealedPrefix = "pfar-state-"
)

// park leaves a call waiting and returns the result that asks the client for input.
func (x *exchange) park(c *conversation, first *registry.Ask) (reply, error) {
	p := &parked{conversation: c, asks: map[string]*registry.Ask{"1": first}, scope: x.scope(), bound: x.bound, pass: x.pass}
	for len(c.asks) > 0 {
		p.asks[string(rune('1'+len(p.asks)))] = <-c.asks
	}
	return x.leave(p)
}

func (x *exchange) leave(p *parked) (reply, error) {
	if !x.srv.enter(p) {
		return reply{}, jsonrpc.Errorf(registry.CodeBusy, "too many calls wait for input from their clients already")
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // crashes rather than fails
	state := parkedPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	at := &x.srv.parking
	at.mu.Lock()
	at.byState[state] = p
	p.state, p.left = state, make(chan struct{})
	go x.srv.watch(p, p.left)
	x.pass = nil // until the client comes back
	p.expiry = time.AfterFunc(x.srv.limits.Human, func() {
		if x.srv.unpark(state) == p {
			p.pass.Expire()
			p.conversation.cancel(errUnanswered)
		}
	})
	at.mu.Unlock()
	if err := x.stays(); err != nil && x.srv.unpark(state) == p { // it was not found when all was given up
		x.pass = p.pass
		return reply{}, err
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":{`), p.requests(x.ctx, x.endpoint == "")...)
	result = append(append(append(result, `},"requestState":`...), jsonrpc.Quote(state)...), '}')
	return reply{result: result, added: p.conversation.up.Mark(atLeast(p.conversation.target.Label, p.pass.Label().Confidentiality))}, nil
}

// enter takes a place for a waiting call: there are so many in all, and of one server no more than it may ask at once.
func (s *Server) enter(p *parked) bool {
	s.parking.mu.Lock()
	defer s.parking.mu.Unlock()
	n := 0
	for _, other := range s.parking.byState {
		if other.conversation.up == p.conversation.up && other.freed.IsZero() {
			n++
		}
	}
	if n >= maxAsks {
		return false
	}
	select {
	case s.room <- struct{}{}:
		p.freed = time.Time{}
		return true
	default:
		return false
	}
}

// watch gives a waiting call's place back as soon as the call ends: what is left to keep is its outcome, as long as
// there are not too many of those.
func (s *Server) watch(p *parked, left <-chan struct{}) {
	select {
	case <-left:
		return
	case <-p.conversation.over:
	}
	s.parking.mu.Lock()
	s.free(p)
	oldest, state, n := p, p.state, 0
	for _, other := range s.parking.byState {
		if other.freed.IsZero() {
			continue
		}
		if n++; other.freed.Before(oldest.freed) {
			oldest, state = other, other.state
		}
	}
	s.parking.mu.Unlock()
	if n > maxOutcomes && s.unpark(state) == oldest {
		oldest.pass.Expire()
	}
}

// maxOutcomes bounds the results that are kept for clients that may not come back: each may be as long as a server's
// line.
const maxOutcomes = 16

// free gives the place back. The parking's lock is held.
func (s *Server) free(p *parked) {
	if p.freed.IsZero() {
		p.freed = time.Now()
		<-s.room
	}
}

// requests are the questions, as members of inputRequests.
func (p *parked) requests(ctx context.Context, aggregate bool) []byte {
	var b []byte
	for key, a := range p.asks {
		said, ok := p.pass.Said(ctx, a.Method, a.Params)
		if !ok {
			a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client is not asked this"))
			delete(p.asks, key)
			continue
		}
		b = append(append(comma(b), jsonrpc.Quote(key)...), `:{"method":`...)
		b = append(append(b, jsonrpc.Quote(a.Method)...), `,"params":`...)
		b = append(append(b, attributed(a.Server, a.Method, said, aggregate)...), '}')
	}
	return b
}

// unpark takes a call out, nil if there is none of that state: each state can be used once (GC-54).
func (s *Server) unpark(state string) *parked {
	s.parking.mu.Lock()
	defer s.parking.mu.Unlock()
	p := s.parking.byState[state]
	if p == nil {
		return nil
	}
	delete(s.parking.byState, state)
	p.expiry.Stop()
	close(p.left)
	s.free(p)
	return p
}

// abandon ends what waits when the gateway stops: no client finds it again, and its record is to be closed.
func (s *Server) abandon() {
	s.parking.mu.Lock()
	states := slices.Collect(maps.Keys(s.parking.byState))
	s.parking.mu.Unlock()
	for _, state := range states {
		if p := s.unpark(state); p != nil {
			p.pass.Expire()
			p.conversation.cancel(errStopping)
		}
	}
}

func newSealer(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // cannot be: the key has a valid length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

// scope is what a state is bound to: the client, the endpoint and all of the request but the answers, the state and
// what differs from request to request anyway.
func (x *exchange) scope() [sha256.Size]byte {
	h := sha256.New()
	add := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	add([]byte(x.bound.Client))
	add([]byte(x.bound.Handle))
	add([]byte(x.bound.proof()))
	add([]byte(x.endpoint))
	add([]byte(x.msg.Method))
	for i := range x.params {
		switch string(x.params[i].Name) {
		case "_meta", "inputResponses", "requestState":
		default:
			add(x.params[i].Name)
			add(bytes.TrimSpace(x.params[i].Raw()))
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// returned is a server's state that a client came back with.
type returned struct {
	server string
	state  []byte // nil: the server gave none
}

// sealed returns the edit that makes the state of a question one that only this client can come back with, in the same
// request and to the same server. Where several servers answer, it gets one also if the server gave none, so that the
// answer finds back.
func (x *exchange) sealed(up *registry.Upstream, ms jsonrpc.Members) ([]jsonrpc.Edit, error) {
	i := ms.Index("requestState")
	if i < 0 && x.endpoint != "" {
		return nil, nil
	}
	plain := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(x.srv.limits.Human).UnixNano()))
	plain = append(append(plain, byte(len(up.Server().Name))), up.Server().Name...)
	if i >= 0 {
		state, err := jsonrpc.String(ms[i].Raw())
		if err != nil {
			return nil, against(up, "requestState is %v", err)
		}
		if len(state) > maxState {
			return nil, against(up, "requestState has %d bytes, at most %d are passed on", len(state), maxState)
		}
		plain = append(append(plain, 1), state...)
	} else {
		plain = append(plain, 0)
	}
	scope := x.scope()
	var nonce [12]byte
	_, _ = rand.Read(nonce[:]) // crashes rather than fails
	text := jsonrpc.Quote(sealedPrefix + base64.RawURLEncoding.EncodeToString(x.srv.sealer.Seal(nonce[:], nonce[:], plain, scope[:])))
	if i >= 0 {
		return []jsonrpc.Edit{ms.Replace(i, text)}, nil
	}
	return []jsonrpc.Edit{ms.Prepend([]byte("{"), append([]byte(`"requestState":`), text...))}, nil
}

// open is the way back. Each state can be used once (GC-54).
func (x *exchange) open(sealed string) (*returned, error) {
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	n := x.srv.sealer.NonceSize()
	if err != nil || len(b) < n {
		return nil, errForeign
	}
	scope := x.scope()
	plain, err := x.srv.sealer.Open(nil, b[:n], b[n:], scope[:])
	if err != nil || len(plain) < 10 {
		return nil, errForeign
	}
	until := time.Unix(0, int64(binary.BigEndian.Uint64(plain)))
	size := int(plain[8])
	if rest := plain[9:]; time.Now().After(until) || len(rest) < size+1 || !x.srv.spent.add(base64.RawURLEncoding.EncodeToString(b[:n]), until) {
		return nil, errForeign
	} else if r := (&returned{server: string(rest[:size])}); rest[size] == 0 {
		return r, nil
	} else {
		r.state = append([]byte{}, rest[size+1:]...)
		return r, nil
	}
}

// maxState bounds a server's state, in bytes: the client has to come back with it.
const maxState = 64 << 10

// spent are the states that have been used, as long as they would still be good.
type spent struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// maxSpent bounds them; beyond, none is taken.
const maxSpent = 64 << 10

// add reports whether the state is used for the first time.
func (s *spent) add(nonce string, until time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.until[nonce]; ok {
		return false
	}
	if len(s.until) >= maxSpent {
		now := time.Now()
		for n, t := range s.until {
			if now.After(t) {
				delete(s.until, n)
			}
		}
	}
	if len(s.until) >= maxSpent {
		return false
	}
	s.until[nonce] = until
	return true
}

// stateFor returns the edit that gives a server its state back, as it gave it.
func (x *exchange) stateFor(up *registry.Upstream) ([]jsonrpc.Edit, error) {
	if x.back == nil {
		if !x.modern && up.Modern() && (x.params.Index("requestState") >= 0 || x.params.Index("inputResponses") >= 0) {
			return nil, invalidParams("requestState and inputResponses are of protocol %s: in a session pfar asks and answers in your name", mcp.ProtocolVersion20260728)
		}
		return nil, nil
	}
	if x.back.server != up.Server().Name {
		return nil, errForeign
	}
	i := x.params.Index("requestState")
	if x.back.state == nil {
		return []jsonrpc.Edit{x.params.Remove(i)}, nil
	}
	return []jsonrpc.Edit{x.params.Replace(i, jsonrpc.Quote(string(x.back.state)))}, nil
}

var errForeign = invalidParams("the requestState is not of this request, or has been used, or is too old: begin again without it")

// comeBack acts on the state that a client of 2026-07-28 repeats a request with. A call that waits for the answers goes
// on; otherwise the state of the server's is put where the client's stood.
func (x *exchange) comeBack() (reply, bool, error) {
	raw := x.params.Get("requestState")
	if raw == nil || !x.modern {
		return reply{}, false, nil
	}
	state, err := jsonrpc.String(raw)
	if err != nil {
		return reply{}, false, invalidParams("the requestState is %v", err)
	}
	if sealed, ok := strings.CutPrefix(state, sealedPrefix); ok {
		x.back, err = x.open(sealed)
		return reply{}, false, err
	}
	x.srv.parking.mu.Lock()
	p := x.srv.parking.byState[state]
	mine := p != nil && p.scope == x.scope()
	x.srv.parking.mu.Unlock()
	if !mine || x.srv.unpark(state) != p {
		return reply{}, false, errForeign
	}
	c := p.conversation
	re, err := x.observed(x.ctx, c.up.Server().Name, c.target.Item.Name, func(context.Context) (reply, error) { return x.resume(p) })
	return re, true, err
}

// resume gives a waiting server its answers; what has none yet is asked for again.
func (x *exchange) resume(p *parked) (reply, error) {
	x.pass = p.pass
	re, err := x.answerAll(p)
	return x.left(x.ctx, re, err)
}

// answerAll passes the gate with a client's answers, and goes on with its call.
func (x *exchange) answerAll(p *parked) (reply, error) {
	answers, err := jsonrpc.Object(x.params.Get("inputResponses"), nil)
	if err != nil && x.params.Get("inputResponses") != nil {
		err = invalidParams("reading inputResponses: %v", err)
		p.conversation.cancel(err)
		return reply{}, err
	}
	if len(answers) > 0 {
		sent, err := x.pass.Enter(x.ctx, x.msg.Method, x.params.Get("inputResponses"), false)
		if err == nil {
			answers, err = jsonrpc.Object(sent, nil)
		}
		if err != nil {
			p.conversation.cancel(err)
			return x.refusal(p.conversation.target, err)
		}
	}
	for key, a := range p.asks {
		raw := answers.Get(key)
		if raw == nil {
			continue
		}
		if raw[0] == '{' {
			a.Answer(bytes.Clone(raw))
		} else {
			a.Fail(jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the client answered against the protocol"))
		}
		delete(p.asks, key)
	}
	if len(p.asks) > 0 {
		re, err := x.leave(p)
		if err != nil {
			p.conversation.cancel(err)
		}
		return re, err
	}
	return x.attend(p.conversation)
}
