// Package call takes a client's request through the gate to a server, and the answer back.
package call

import (
	"context"
	"log/slog"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/request"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/seal"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/session"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/stream"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Calls has the parts that all calls use.
type Calls struct {
	Registry *registry.Registry
	Clients  *clients.Clients
	Gate     *enforce.Point // nil: nothing is called
	Starter  *session.Starter
	Log      Log
	Misses   quota.Quota // of requests for what there is not, by client
	Refusals Refusals    // nil: none are known
	Parking  *Parking
	Sealer   *seal.Sealer    // of states that clients come back with
	Human    time.Duration   // for a client to answer what it is asked
	Clock    Clock           // by which calls that failed are made again
	Life     context.Context // ends when calls in flight are given up
}

// Visit is a client's request at the endpoint that it has asked.
type Visit struct {
	clients.Caller
	*request.Request
	Session  *session.Session // nil: 2026-07-28
	Response *stream.Response // nil: the request is one of a batch, and there is no event stream
	Ctx      context.Context  // ends when the client is gone, or cancels
	Back     *seal.State      // the state that the client came back with
	Step     *Step            // of a flow's run that the request is; nil: it is none
}

// Step is the step of a flow's run that makes a request. Nobody reads its result as it comes: it goes into the run's
// store, with its label and without a fence.
type Step struct {
	enforce.Run
	Pass  *enforce.Passage // through the gate, once it has passed
	Sent  bool             // the server has had the request, or may have had it
	Reuse Reuse
	Made  []byte // what is sent in place of the arguments, as JSON (enforce.Request); nil: they are

	Begun func() error // waits until it is known that the run may send the request (runs.Call); nil: it may not
}

// begins reports whether a request may be sent now: of a run only if the run has written that it has begun.
func (v *Visit) begins() error {
	switch {
	case v.Step == nil:
		return nil
	case v.Step.Begun == nil:
		return jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the run has not begun the call")
	}
	return v.Step.Begun()
}

// shown is the request as the gate sees it.
func (v *Visit) shown() (r enforce.Request, bounded bool) {
	r, bounded = v.Shown()
	if v.Step != nil {
		r.Run, r.Made = &v.Step.Run, v.Step.Made
	}
	return r, bounded
}

// fences reports whether a result that strangers may have written is fenced for whoever gets it.
func (c *Call) fences() bool { return c.Step == nil && c.Pass.Strange() }

// Identity is who makes the request, for the gate.
func (v *Visit) Identity() enforce.Identity { return v.Session.Identity(&v.Caller) }

// capable reports whether the client says that it can be asked for that.
func (v *Visit) capable(capability string) bool {
	if !v.Modern {
		return v.Session != nil && v.Session.Capable(capability)
	}
	return v.Request.Capable(capability)
}

// scope is the digest that a state is bound to: it is of the client, the endpoint and the request.
func (v *Visit) scope() seal.Scope {
	return v.Digest(v.Bound.Client, v.Bound.Handle, v.Bound.Proof(), v.Endpoint)
}

// Call is a request on its way to a server.
type Call struct {
	*Calls
	*Visit
	Pass *enforce.Passage // through the gate; nil: it has not passed, or waits for its client to come back

	still  Find          // finds the target again, if it is the one that has passed the gate
	before *conversation // that came to nothing, or to a question
	rounds int           // of questions in the course of it
	tries  int           // how often it was sent
	trace  trace
}

// trace is the trace that a server is told to be part of.
type trace struct{ parent, state string }

// incoming is the answer to a call on its way to the client.
type incoming struct {
	*Call
	up     *registry.Upstream
	target Target
}

// Log logs, counts and traces calls.
type Log struct {
	*slog.Logger
	Telemetry *telemetry.Telemetry // nil: nothing is counted
	Entries   *quota.Quota         // of the log, by their kind
}

// Refusals tells which connection a server's bridge has refused last, and when.
// file is the name of its declaration's. session is the handle of a process that serves one client session, "" of any
// other.
type Refusals func(ctx context.Context, server, session string) (refused egress.Refusal, file string, at time.Time)
