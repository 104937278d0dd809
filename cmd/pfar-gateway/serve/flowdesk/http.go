package flowdesk

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/runs"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/flows"
)

// Bounds of an order.
const (
	maxBody   = 4 << 20          // bytes: a flow, its flags and standard input
	writeTime = 30 * time.Second // for a client to take a line
)

// Serve answers an order of a client that is let in, at /flows, /flows/CLIENT or /flows/CLIENT/SESSION. A line of JSON
// is one flows.Answer; of run and resume there is one for each change of the run.
func (d *Desk) Serve(w http.ResponseWriter, r *http.Request, visitor clients.Visitor) {
	path, ok := clients.FlowSegments(r.URL.Path, r.URL.RawPath)
	if !ok {
		reply.Refuse(w, http.StatusNotFound, "unknown path: use /flows, /flows/CLIENT or /flows/CLIENT/SESSION")
		return
	}
	caller, known, wrong := visitor.Route(d.calls.Registry, path, r.Header)
	switch {
	case !known:
		reply.Refuse(w, http.StatusForbidden, "no client has this user")
		return
	case wrong != nil:
		reply.WriteError(w, http.StatusNotFound, nil, wrong)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		reply.Refuse(w, http.StatusMethodNotAllowed, "the method must be POST")
		return
	case !d.rates.allow(caller.Bound.Client, d.calls.Clock.Now()):
		w.Header().Set("Retry-After", "1")
		reply.Refuse(w, http.StatusTooManyRequests, "too many orders of this client: wait one second")
		return
	}
	order, ok := d.order(w, r)
	if !ok {
		return
	}
	x := &exchange{Desk: d, w: w, r: r, caller: caller, order: order}
	x.who = runs.Who{Client: caller.Bound.Client, Session: caller.Bound.Handle, Operator: isOperator(&caller)}
	x.answer()
}

// isOperator reports whether a caller is the operator by name, who sees the runs of all clients, and has none.
func isOperator(c *clients.Caller) bool {
	return c.Bound.Acting && c.Bound.Client == access.Operator
}

// order reads the order.
func (d *Desk) order(w http.ResponseWriter, r *http.Request) (o flows.Order, ok bool) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		reply.Refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return o, false
	}
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if large, is := errors.AsType[*http.MaxBytesError](err); is {
		w.Header().Set("Connection", "close")
		reply.Refuse(w, http.StatusRequestEntityTooLarge, "the order is larger than "+bytesOf(large.Limit))
		return o, false
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		reply.Refuse(w, http.StatusBadRequest, "the body is broken or did not arrive in time")
		return o, false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the connection is watched for the client's hanging up
	if err := json.Unmarshal(b, &o); err != nil {
		reply.Refuse(w, http.StatusBadRequest, "invalid order: "+err.Error())
		return o, false
	}
	if wrong := tooLarge(&o); wrong != "" {
		reply.Refuse(w, http.StatusRequestEntityTooLarge, wrong)
		return o, false
	}
	return o, true
}

// send writes one line, and reports whether the client has taken it.
func (x *exchange) send(a flows.Answer) bool {
	x.worded(&a)
	b, err := json.Marshal(a)
	if err != nil {
		x.log.Error("writing an answer to an order about flows", "error", err.Error())
		return false
	}
	control := http.NewResponseController(x.w)
	if !x.begun {
		x.begun = true
		x.w.Header().Set("Content-Type", "application/x-ndjson")
		x.w.Header()["X-Content-Type-Options"] = reply.NoSniff
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := x.w.Write(append(b, '\n')); err != nil {
		return false
	}
	return control.Flush() == nil
}
