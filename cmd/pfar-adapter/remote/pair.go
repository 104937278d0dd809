package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/events"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
	"github.com/pfar/pfar/cmd/pfar-adapter/remote/wire"
)

// errNoPair says that the server does not have the HTTP+SSE pair of 2024-11-05.
var errNoPair = errors.New("the server has no event stream that names an endpoint")

// pair opens the event stream of the revision 2024-11-05, and has the session's messages sent to the endpoint that it
// names. The stream stays open with the session, and ends it. ctx bounds the opening.
func (p *peer) pair(ctx context.Context, s *session) error {
	late := fault.New(fault.Timeout, "the server's event stream has not named an endpoint within %v", p.limits.Endpoint)
	timer := time.AfterFunc(p.limits.Endpoint, func() { s.end(late) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })()
	response, err := p.get(s.ctx, nil, "", forever)
	if err != nil {
		if f := fault.Of(err); f.Status != 0 && !fault.NeedsLogin(f) && !passing(err) {
			return fmt.Errorf("%w: %w", errNoPair, err)
		}
		return err
	}
	r := p.events(response, events.Cursor{})
	endpoint, err := p.endpoint(r)
	if err != nil {
		response.Body.Close()
		return err
	}
	s.endpoint = endpoint
	go p.attend(s, r, response.Body)
	return nil
}

// forever is longer than any process runs: such a stream may be silent.
const forever = 1 << 62

// endpoint reads the first event, which says where to send messages: to the same host only, for the token goes there.
func (p *peer) endpoint(r *events.Reader) (*url.URL, error) {
	e, err := r.Next()
	if f := new(fault.Fault); errors.As(err, &f) {
		return nil, f
	}
	if err != nil || e.Type != "endpoint" {
		return nil, errNoPair
	}
	to, err := p.url.Parse(string(e.Data))
	switch {
	case err != nil || len(e.Data) == 0 || len(e.Data) > maxEndpoint:
		return nil, fault.New(fault.Schema, "the endpoint that it names is not a URL")
	case !wire.SameOrigin(p.url, to):
		return nil, fault.New(fault.Schema, "the endpoint that it names is at %.200s, and the declaration says %s",
			wire.Origin(to), wire.Origin(p.url))
	}
	to.Fragment, to.RawFragment = "", ""
	return to, nil
}

// maxEndpoint bounds the address of an endpoint, in bytes.
const maxEndpoint = 8 << 10

// attend hands on what the stream says, and ends the session with it.
func (p *peer) attend(s *session, r *events.Reader, body io.Closer) {
	total := 0
	err := p.drain(r, nil, &total)
	body.Close()
	s.end(brokeOff(err))
}
