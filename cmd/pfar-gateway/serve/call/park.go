package call

import (
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/units/jsonrpc"
)

// park leaves a call waiting and returns the result that asks the client for input.
func (c *Call) park(talk *conversation, first *protocol.Ask) (reply.Reply, error) {
	p := &parked{talk: talk, asks: map[string]*protocol.Ask{"1": first}, scope: c.scope(), bound: c.Bound, pass: c.Pass}
	for len(talk.asks) > 0 {
		p.asks[string(rune('1'+len(p.asks)))] = <-talk.asks
	}
	return c.leave(p)
}

func (c *Call) leave(p *parked) (reply.Reply, error) {
	state := c.Parking.add(p)
	if state == "" {
		return reply.Reply{}, jsonrpc.Errorf(protocol.CodeBusy, "too many calls wait for input from their clients already")
	}
	c.Pass = nil                                                                     // until the client comes back
	if err := c.Clients.Stays(&c.Caller); err != nil && c.Parking.take(state) == p { // it was not found when all was given up
		c.Pass = p.pass
		return reply.Reply{}, err
	}
	result := append([]byte(`{"resultType":"input_required","inputRequests":{`), p.requests(c.Ctx, c.Endpoint == "")...)
	result = append(append(append(result, `},"requestState":`...), jsonrpc.Quote(state)...), '}')
	return reply.Reply{Result: result, Added: p.talk.up.Mark(atLeast(p.talk.target.Label, p.pass.Label().Confidentiality))}, nil
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
