package remote

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/inbox"
)

// doubt is whether the server still accepts who asks.
type doubt struct {
	asking   atomic.Bool
	discover atomic.Pointer[message] // the gateway's last server/discover
}

// doubts is called when the server has refused a request for want of a token that it accepts. Some refuse one tool
// alone so, and hence the server is asked once more, for what every caller may have. If it refuses that too, the
// adapter ends, as a program does that cannot go on: the next one is refused at its beginning, and a person is told to
// sign in.
func (c *conversation) doubts(why *fault.Fault) {
	if !c.reach.hasMet() || !c.doubt.asking.CompareAndSwap(false, true) {
		return
	}
	c.running.Go(func() {
		defer c.doubt.asking.Store(false)
		ctx, cancel := context.WithTimeout(c.ctx, c.limits.Own)
		defer cancel()
		if !fault.Is(c.greet(ctx), fault.Unauthorized) {
			return
		}
		select {
		case <-c.inbox.Settled():
			c.fail(fault.New(fault.Unauthorized, "the server does not accept the token any more: %s", why.Detail))
		case <-c.ctx.Done():
		}
	})
}

// greet asks the server for what every caller may have.
func (c *conversation) greet(ctx context.Context) error {
	if m := c.doubt.discover.Load(); m != nil && c.modern.Load() {
		return c.own(ctx, *m, nil)
	}
	s := c.now()
	if s == nil {
		return nil
	}
	m, err := parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":%q}`, mcp.MethodPing))
	if err != nil {
		return err
	}
	return c.own(ctx, m, s)
}

func (c *conversation) own(ctx context.Context, m message, s *session) error {
	_, err := c.ask(ctx, m, func(f *inbox.Flight, m message) error { return c.exchange(f, m, s) })
	return err
}
