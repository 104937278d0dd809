package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
	"github.com/pfar/pfar/units/jsonrpc"
)

// sessions begins a session as the gateway asks for one, and another in its place when the server has forgotten it.
type sessions struct {
	*peer
	ctx  context.Context // of all sessions
	fail context.CancelCauseFunc
	sse  bool          // the declaration says that the server has the HTTP+SSE pair
	turn chan struct{} // has room for whoever begins a session in place of another

	mu      sync.Mutex
	current *session // nil: none has begun
	kept    kept
	asked   int // requests of our own
}

// kept is what the server was told in the course of a session, and has to be told in the next one.
type kept struct {
	initialize   message
	initialized  message
	capabilities jsonrpc.Members // of the server
	level        *message        // of log messages
	watched      map[string]message
}

// maxWatched bounds the resources that are asked for again.
const maxWatched = 4096

func (ss *sessions) now() *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.current
}

// open sends the gateway's own initialize. Its answer has to be seen by begun, for which the flight's hook is there.
func (ss *sessions) open(f *inbox.Flight, m message, s *session) error {
	err := ss.begin(f, m, s, ss.sse)
	if err != nil {
		s.end(err)
	}
	return err
}

// begun takes the answer to the gateway's initialize.
func (ss *sessions) begun(m message, s *session, answer jsonrpc.Message) {
	version, capabilities, err := agreed(answer)
	if err != nil {
		s.end(err)
		return
	}
	s.agree(version)
	ss.mu.Lock()
	old := ss.current
	ss.current = s
	ss.kept = kept{initialize: m, capabilities: capabilities, watched: map[string]message{}}
	ss.mu.Unlock()
	if old != nil {
		old.end(errReplaced)
		go ss.leave(ss.ctx, old)
	}
	ss.reach.meet()
	ss.connected(s, version)
}

var errReplaced = fault.New(fault.NetworkError, "another session took its place")

func (ss *sessions) connected(s *session, version string) {
	how := "Streamable HTTP"
	if s.isPair() {
		how = "HTTP+SSE"
	}
	ss.log.Say("connected to %s by %s, protocol %s", ss.plain(), how, version)
}

// agreed reads what the server says to initialize.
func agreed(answer jsonrpc.Message) (version string, capabilities jsonrpc.Members, err error) {
	if answer.Error != nil {
		return "", nil, fault.New(fault.Schema, "the server refuses to begin a session: %s", fault.Said(answer.Error))
	}
	result, err := jsonrpc.Object(answer.Result, nil)
	if err == nil {
		version, err = jsonrpc.String(result.Get("protocolVersion"))
	}
	if err != nil {
		return "", nil, fault.New(fault.Schema, "cannot read the server's answer to initialize: %v", err)
	}
	if !slices.Contains(mcp.LegacyProtocolVersions(), version) {
		return "", nil, fault.New(fault.Schema, "the server speaks protocol %.40q, which pfar does not know", version)
	}
	capabilities, _ = jsonrpc.Object(result.Get("capabilities"), nil) // the gateway reads them for itself
	return version, capabilities, nil
}

// begin sends initialize in whichever way the server takes it. What the declaration says is only tried first. A server
// that answers it with 400, 404 or 405 may have the older pair, as every revision's section on backwards compatibility
// says.
func (ss *sessions) begin(f *inbox.Flight, m message, s *session, pairFirst bool) error {
	if pairFirst {
		err := ss.pair(f.Context(), s)
		if err == nil {
			return ss.exchange(f, m, s)
		}
		if !errors.Is(err, errNoPair) {
			return err
		}
		return ss.exchange(f, m, s)
	}
	err := ss.exchange(f, m, s)
	if !older(err) {
		return err
	}
	switch none := ss.pair(f.Context(), s); {
	case none == nil:
		return ss.exchange(f, m, s)
	case !errors.Is(none, errNoPair) && (fault.Is(none, fault.Schema) || fault.NeedsLogin(none)):
		return none
	}
	return err
}

// older reports whether a server that refuses initialize so may be one of 2024-11-05.
func older(err error) bool {
	f := new(fault.Fault)
	if !errors.As(err, &f) {
		return false
	}
	return f.Status == http.StatusBadRequest || f.Status == http.StatusNotFound || f.Status == http.StatusMethodNotAllowed
}

// initialized tells the server that the session is open. What belongs to the session waits for that.
func (ss *sessions) initialized(m message) {
	ss.mu.Lock()
	s := ss.current
	first := s != nil && ss.kept.initialized.line == nil
	if first {
		ss.kept.initialized = m
	}
	ss.mu.Unlock()
	if first {
		go ss.announce(ss.ctx, m, s)
	}
}

// announce tells the server that the session is open, and begins to listen.
func (ss *sessions) announce(ctx context.Context, m message, s *session) {
	err := ss.tell(ctx, m, s)
	close(s.told)
	if err != nil {
		f := fault.Of(err)
		ss.log.Seldom("the server does not take notifications/initialized, ignoring", f.Error())
		return
	}
	if !s.isPair() {
		go ss.listen(s, heard{lost: func() { ss.comeBack(s) }, missed: ss.missed})
		return
	}
	context.AfterFunc(s.ctx, func() {
		if ss.now() == s && ss.ctx.Err() == nil {
			ss.log.Seldom("the server's event stream ended and is opened again", context.Cause(s.ctx).Error())
			ss.comeBack(s)
		}
	})
}

// usable returns the session in which a request may be sent now, nil if the gateway has not asked for one.
func (ss *sessions) usable(ctx context.Context) (*session, error) {
	s := ss.now()
	if s == nil {
		return nil, nil
	}
	if s.ctx.Err() != nil {
		return ss.renew(ctx, s)
	}
	ss.mu.Lock()
	telling := ss.kept.initialized.line != nil
	ss.mu.Unlock()
	if telling {
		select {
		case <-s.told:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s, nil
}

// comeBack begins a session in place of one that is gone, however long that takes.
func (ss *sessions) comeBack(old *session) {
	for failed := 0; ss.now() == old; {
		if failed++; sleep(ss.ctx, ss.limits.pause(failed)) != nil {
			return
		}
		if _, err := ss.renew(ss.ctx, old); err != nil {
			ss.log.Seldom("the server does not begin another session yet", fault.Of(err).Error())
		}
	}
}

// renew begins a session in place of one that is gone, unless that has been done.
func (ss *sessions) renew(ctx context.Context, old *session) (*session, error) {
	select {
	case ss.turn <- struct{}{}:
		defer func() { <-ss.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := ss.now(); s != old {
		return s, nil
	}
	s := newSession(ss.ctx)
	if err := ss.replace(ctx, old, s); err != nil {
		s.end(err)
		return nil, err
	}
	old.end(errReplaced)
	ss.missed()
	return s, nil
}

// replace has the server begin a session like another one: it is told again what it was told in that.
func (ss *sessions) replace(ctx context.Context, old, s *session) error {
	ss.mu.Lock()
	again := ss.kept
	again.watched = maps.Clone(ss.kept.watched)
	ss.mu.Unlock()
	answer, err := ss.ask(ctx, again.initialize, func(f *inbox.Flight, m message) error {
		return ss.begin(f, m, s, old.isPair())
	})
	if err != nil {
		return err
	}
	version, capabilities, err := agreed(answer)
	if err != nil {
		return err
	}
	if _, was := old.names(); was != version {
		err := fault.New(fault.Schema, "the server came back with protocol %s instead of %s", version, was)
		ss.fail(err) // nobody can tell the gateway so but by an end
		return err
	}
	s.agree(version)
	if again.initialized.line != nil {
		ss.announce(ctx, again.initialized, s)
	}
	ss.mu.Lock()
	ss.current, ss.kept.capabilities = s, capabilities
	late := ss.kept.initialized // has come meanwhile, and went to the session before
	ss.mu.Unlock()
	if again.initialized.line == nil && late.line != nil {
		ss.announce(ctx, late, s)
	}
	ss.connected(s, version)
	for _, m := range again.told() {
		if _, err := ss.ask(ctx, m, func(f *inbox.Flight, m message) error { return ss.exchange(f, m, s) }); err != nil {
			ss.log.Seldom("the server refuses a message that it took before, ignoring", m.Method)
		}
	}
	return nil
}

// told are the requests that a session has to begin with.
func (k kept) told() []message {
	var list []message
	if k.level != nil {
		list = append(list, *k.level)
	}
	for _, uri := range slices.Sorted(maps.Keys(k.watched)) {
		list = append(list, k.watched[uri])
	}
	return list
}

// keep remembers a request that the server has granted and that outlives it.
func (ss *sessions) keep(m message) {
	params, _ := jsonrpc.Object(m.Params, nil)
	uri, _ := jsonrpc.String(params.Get("uri"))
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch mcp.MCPMethod(m.Method) {
	case mcp.MethodSetLogLevel:
		ss.kept.level = &m
	case mcp.MethodResourcesSubscribe:
		if len(ss.kept.watched) < maxWatched {
			ss.kept.watched[uri] = m
		}
	case mcp.MethodResourcesUnsubscribe:
		delete(ss.kept.watched, uri)
	}
}

// ask sends a request of our own, which is one of the gateway's again, and returns the answer.
func (ss *sessions) ask(
	ctx context.Context, m message, send func(*inbox.Flight, message) error,
) (jsonrpc.Message, error) {
	late := fault.New(fault.Timeout, "the server has not answered %s within %v", m.Method, ss.limits.Own)
	ctx, cancel := context.WithTimeoutCause(ctx, ss.limits.Own, late)
	defer cancel()
	ss.mu.Lock()
	ss.asked++
	m = m.withID(ss.asked)
	ss.mu.Unlock()
	var answer jsonrpc.Message
	f, err := ss.inbox.Begin(ctx, inbox.Spec{
		ID: m.ID, Method: m.Method, Own: true, Hook: func(a jsonrpc.Message) { answer = a },
	})
	if err != nil {
		return answer, err
	}
	defer f.End()
	if err := send(f, m); err != nil {
		ss.inbox.Fail(f, err)
		return answer, err
	}
	return answer, nil
}

// missed has the gateway look again at the lists that the server says may change: it may have said that they have.
func (ss *sessions) missed() {
	ss.mu.Lock()
	capabilities := ss.kept.capabilities
	ss.mu.Unlock()
	for _, list := range [...]string{"tools", "prompts", "resources"} {
		if capabilities.Get(list) != nil {
			ss.inbox.Tell(jsonrpc.AppendNotification(nil, fmt.Sprintf("notifications/%s/list_changed", list), nil))
		}
	}
}
