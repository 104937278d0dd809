package remote

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/headers"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
	"github.com/pfar/pfar/units/jsonrpc"
)

// conversation takes the gateway's messages to the server.
type conversation struct {
	*sessions
	modern  atomic.Bool // the gateway has not asked for a session, or asked server/discover after that
	behind  chan struct{}
	running sync.WaitGroup
	doubt   doubt
	ended   func() bool // Options.Ended
}

// read takes lines until there are no more.
func (c *conversation) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 64<<10), c.limits.Line+maxEnvelope)
	for lines.Scan() {
		if line := bytes.TrimSpace(lines.Bytes()); len(line) > 0 {
			c.take(bytes.Clone(line))
		}
	}
	return lines.Err()
}

// maxEnvelope is how much longer a line may be than what a client has sent to the gateway.
const maxEnvelope = 1 << 20

// take acts on one message of the gateway's. It does not wait for the server.
func (c *conversation) take(line []byte) {
	m, err := parse(line)
	switch {
	case err != nil:
		c.log.Seldom("the gateway sent a line that is not a message, ignoring", err.Error())
	case m.Method != "" && m.ID != nil:
		c.request(m)
	case m.Method == string(mcp.MethodNotificationCancelled):
		c.cancelled(m)
	case m.Method == string(mcp.MethodNotificationInitialized):
		c.initialized(m)
	default: // another notification, or an answer
		c.pass(m)
	}
}

// request sends a request on its way.
func (c *conversation) request(m message) {
	switch mcp.MCPMethod(m.Method) {
	case mcp.MethodServerDiscover:
		c.modern.Store(true)
	case mcp.MethodInitialize:
		c.modern.Store(false)
	}
	if c.modern.Load() {
		m.version = headers.VersionOf(m.Params)
	}
	if m.Method == string(mcp.MethodServerDiscover) {
		c.doubt.discover.Store(&m)
	}
	spec, send := c.spec(m)
	f, err := c.inbox.Begin(c.ctx, spec)
	if errors.Is(err, inbox.ErrTwice) {
		c.log.Seldom("the gateway uses an id twice, ignoring", "")
		return
	}
	if err != nil {
		c.inbox.Refuse(m.ID, err)
		return
	}
	c.running.Go(func() {
		defer f.End()
		err := send(f)
		if err == nil {
			err = fault.New(fault.Schema, "the server has not answered")
		}
		if !f.IsDone() && c.died(err) {
			c.inbox.Cancel(m.ID)
			return
		}
		if why := fault.Of(err); why.Cause != "" && !f.IsDone() { // the client does not hear of it
			c.log.Seldom("a request to "+c.plain()+" has failed", why.Error())
		}
		c.inbox.Fail(f, err)
		if fault.Is(err, fault.Unauthorized) {
			c.doubts(fault.Of(err))
		}
	})
}

// died reports whether a request has failed because the server's program has ended.
func (c *conversation) died(err error) bool {
	f := fault.Of(err)
	return c.ended != nil && f.Class == fault.NetworkError && f.Status == 0 && c.ended()
}

// spec says what a request is, and how it is sent.
func (c *conversation) spec(m message) (inbox.Spec, func(*inbox.Flight) error) {
	spec := inbox.Spec{ID: m.ID, Method: m.Method}
	send := func(f *inbox.Flight) error { return c.within(f, m) }
	if m.version != "" {
		send = func(f *inbox.Flight) error { return c.exchange(f, m, nil) }
	}
	granted := func(then func(result []byte)) {
		spec.Hook = func(answer jsonrpc.Message) {
			if answer.Error == nil {
				then(answer.Result)
			}
		}
	}
	switch mcp.MCPMethod(m.Method) {
	case mcp.MethodInitialize:
		s := newSession(c.ctx)
		spec.Hook = func(answer jsonrpc.Message) { c.begun(m, s, answer) }
		spec.Meta = s.transport
		send = func(f *inbox.Flight) error { return c.open(f, m, s) }
	case mcp.MethodServerDiscover:
		granted(func([]byte) { c.reach.meet() })
		spec.Meta = (*session)(nil).transport
	case mcp.MethodSubscriptionsListen:
		spec.Endless = true
	case mcp.MethodToolsList:
		granted(c.tools.Learn)
	case mcp.MethodToolsCall:
		spec.Hook = c.mismatched
	case mcp.MethodSetLogLevel, mcp.MethodResourcesSubscribe, mcp.MethodResourcesUnsubscribe:
		granted(func([]byte) { c.keep(m) })
	}
	return spec, send
}

// mismatched has the gateway look again at a server's tools if the server refuses a call for its header fields: it
// wants other ones by now.
func (c *conversation) mismatched(answer jsonrpc.Message) {
	if answer.Error == nil || !c.modern.Load() {
		return
	}
	if e := (jsonrpc.Error{Raw: answer.Error}); e.Number() == mcp.HEADER_MISMATCH {
		c.inbox.Tell(jsonrpc.AppendNotification(nil, string(mcp.MethodNotificationToolsListChanged), nil))
	}
}

// within sends a request in the session. If the server answers by 404 that it does not know the session, it has not
// taken the request, which is sent once more in another session, whatever it asks for. A request that the server may
// have acted on is only sent again if that does no harm.
func (c *conversation) within(f *inbox.Flight, m message) error {
	s, err := c.usable(f.Context())
	if err != nil {
		return err
	}
	var g *gone
	if err = c.exchange(f, m, s); !errors.As(err, &g) {
		return err
	}
	if s, err = c.renew(f.Context(), s); err != nil {
		return err
	}
	if !g.untaken && !repeatable(m.Method) {
		return &fault.Fault{
			Class: fault.NetworkError, Status: g.why.Status,
			Detail: "the server's session was gone, and pfar began another one; it did not repeat the call: " + g.why.Detail,
		}
	}
	return c.exchange(f, m, s)
}

// cancelled gives a request up. Since 2026-07-28 the end of the response tells the server so.
func (c *conversation) cancelled(m message) {
	params, err := jsonrpc.Object(m.Params, nil)
	if err != nil {
		return
	}
	f := c.inbox.Cancel(params.Get("requestId"))
	switch {
	case f == nil:
	case !c.modern.Load():
		c.pass(m)
	case f.Endless: // and so it has ended, which a server on stdio would confirm
		c.inbox.Tell(append(jsonrpc.AppendHead(nil, f.ID, "result"), `{"resultType":"complete"}}`...))
	}
}

// pass sends what needs no answer. There is nothing of the kind since 2026-07-28.
func (c *conversation) pass(m message) {
	s := c.now()
	if s == nil || c.modern.Load() {
		return
	}
	select {
	case c.behind <- struct{}{}:
	default:
		c.log.Seldom("the server does not take messages as fast as they come, ignoring", m.Method)
		return
	}
	c.running.Go(func() {
		defer func() { <-c.behind }()
		if err := c.tell(s.ctx, m, s); err != nil && s.ctx.Err() == nil {
			c.log.Seldom("the server does not take a message, ignoring", fault.Of(err).Error())
		}
	})
}

// lose ends the adapter once no request is in flight, if the server is still away then.
func (c *conversation) lose(why *fault.Fault) {
	select {
	case <-c.inbox.Settled():
		if c.reach.isAway() {
			c.fail(why.Lost("the server has gone"))
		}
	case <-c.ctx.Done():
	}
}

// finish lets requests end that are in flight, and leaves the session.
func (c *conversation) finish() {
	timer := time.NewTimer(c.limits.Grace)
	defer timer.Stop()
	select {
	case <-c.inbox.Settled():
	case <-timer.C:
	case <-c.ctx.Done():
	}
	if s := c.now(); s != nil {
		s.end(errEnd)
		c.leave(context.WithoutCancel(c.ctx), s)
	}
	c.fail(errEnd)
	over := make(chan struct{})
	go func() { c.running.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(c.limits.Leave): // it waits for a gateway that reads nothing
	}
	c.client.Close()
}

var (
	errEnd     = fault.New(fault.NetworkError, fault.Ended)
	errGateway = fmt.Errorf("writing to the gateway: %w", io.ErrClosedPipe)
)
