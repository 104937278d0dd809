package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
)

// Gate is what every request to a server passes from now on. Without one, none does (GAT-09).
// It is to be set before the first client is let in.
func (s *Server) Gate(p *enforce.Point) {
	p.Now = s.now
	s.gate, s.unbidden.record, s.misses.record, s.signals.record = p, p.Unheard, p.MissedMore, p.SignalledMore
	s.clients.minted = p.Sessions
	s.registry.Offer(func(profile string, rights *access.Rights, up *registry.Upstream, tool registry.Item) bool {
		t := target{Route: registry.Route{Upstream: up, Name: tool.Name, Item: tool}, kind: gate.Tool}
		return p.Offers(enforce.Identity{Profile: profile, Rights: rights}, itemOf(t))
	})
}

// labelApart gives a connection a label of its own, if its client's declaration says so.
func (x *exchange) labelApart(t *session) error {
	if x.srv.gate == nil || x.member.Sessions != access.Connection || x.bound.Handle != access.DefaultSession {
		return nil
	}
	var err error
	if t.handle, err = x.srv.gate.Sessions.Connect(x.bound.Client); err != nil {
		return jsonrpc.Errorf(registry.CodeBusy, "%v", err)
	}
	return nil
}

var errNoGate = jsonrpc.Errorf(approval.Code, "nothing is called: there is no gate")

// enter passes the gate with a request. It may take as long as people take to answer.
func (x *exchange) enter(ctx context.Context, t target) error {
	if x.srv.gate == nil {
		return errNoGate
	}
	it := itemOf(t)
	r, bounded := x.asked()
	if !bounded {
		it.FreeText = nil
	}
	var err error
	x.pass, err = x.srv.gate.Enter(ctx, x.identity(), it, r)
	if table := x.srv.clients.table.Load(); err != nil && x.srv.admits(table, x.bound) == nil { // it may have been asked about since all was denied
		x.srv.gate.Approvals.Dismiss(x.srv.gone(table))
	}
	return err
}

// missed records a request that leads to nothing, or is not as its target wants it.
func (x *exchange) missed(t target, why error) {
	if x.srv.gate == nil || !x.srv.misses.allow(x.bound.Client) {
		return
	}
	server, name := x.endpoint, t.Name
	if t.Upstream != nil {
		server = t.Upstream.Server().Name
	}
	for _, member := range [...]string{"name", "uri"} {
		if name == "" {
			name, _ = jsonrpc.String(x.params.Get(member))
		}
	}
	r, _ := x.asked()
	x.srv.gate.Missed(x.identity(), server, name, r, why)
}

// now is who somebody is by now. Who has shown what does not count any more is no matter here: settle ends what is open
// of theirs.
func (s *Server) now(who enforce.Identity) (enforce.Identity, bool) {
	t := s.clients.table.Load()
	if t == nil || t.members[who.Client] == nil {
		return who, false
	}
	m := t.members[who.Client]
	who.Profile, who.Rights = m.Profile, m.rights
	return who, true
}

// itemOf is what a request is about, for the gate.
func itemOf(t target) enforce.Item {
	owner, word := t.Upstream.Declared()
	it := enforce.Item{
		Owner: owner, Server: t.Upstream.Server().Name, Declared: word, Now: t.Upstream.Declared,
		Kind: t.kind, Name: t.Name, Pin: t.Item.Pin, Fits: t.fits,
	}
	if t.kind == gate.Tool {
		it.FreeText = t.Item.FreeText
		if t.Item.Reviewed {
			it.Hints, it.Typed = func() *gate.Hints { return hints(t.Item) }, func() bool { return t.Item.Extracts() }
		}
	}
	return it
}

// hints are what a server claims of a tool, nil for nothing.
func hints(i registry.Item) *gate.Hints {
	var h struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
		OpenWorld   *bool `json:"openWorldHint"`
	}
	if json.Unmarshal(i.Member("annotations"), &h) != nil {
		return nil
	}
	return &gate.Hints{ReadOnly: h.ReadOnly, Destructive: h.Destructive, OpenWorld: h.OpenWorld}
}

// asked is the request as a person is shown it and as the gate looks through it: all that reaches the server of the
// client's choosing. bounded reports whether there is nothing in it but arguments.
func (x *exchange) asked() (r enforce.Request, bounded bool) {
	r = enforce.Request{Method: x.msg.Method, Params: paramsOr(x.msg.Params), Arguments: x.params.Get("arguments")}
	var edits []jsonrpc.Edit
	if trace := x.headerTrace(); trace != "" && x.meta.Get("traceparent") == nil {
		edits = append(edits, x.params.Prepend(r.Params, append([]byte(`"traceparent":`), jsonrpc.Quote(trace)...)))
	}
	if slices.ContainsFunc(x.meta, func(m jsonrpc.Member) bool { return perRequest(m.Name) }) { // see metaFor
		own := x.meta.Merge(nil, func(name []byte) bool { return !perRequest(name) }, nil)
		edits = append(edits, x.params.Replace(x.params.Index("_meta"), own))
	}
	if len(edits) > 0 {
		r.Params = jsonrpc.Splice(nil, r.Params, edits...)
	}
	bounded = !slices.ContainsFunc(x.meta, func(m jsonrpc.Member) bool {
		return !plainMeta(m.Name) && string(m.Name) != mcp.MetaKeyClientInfo
	})
	for i := range x.params {
		if name := string(x.params[i].Name); !x.unseen(name) && (name != "arguments" || !x.names()) {
			r.Arguments = x.whole()
			return r, false
		}
	}
	if r.Arguments == nil {
		r.Arguments = []byte("{}")
	}
	return r, bounded
}

// names reports whether the request names what it is about.
func (x *exchange) names() bool {
	method := mcp.MCPMethod(x.msg.Method)
	return method == mcp.MethodToolsCall || method == mcp.MethodPromptsGet
}

// unseen reports whether a parameter is none that a person has to see: it does not reach the server as it is, is shown
// as what the request is about, or was sealed by pfar.
func (x *exchange) unseen(name string) bool {
	switch name {
	case "_meta":
		return true
	case "name":
		return x.names()
	case "requestState":
		return x.modern
	}
	return false
}

// whole is the parameters but for what nobody has to see.
func (x *exchange) whole() []byte {
	b := []byte{'{'}
	for i := range x.params {
		name := string(x.params[i].Name)
		if x.unseen(name) {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(b, jsonrpc.Quote(name)...), ':'), x.params[i].Raw()...)
	}
	return append(b, '}')
}

// denied answers a request that did not pass: a tool's error, which models read and act on, or one of the protocol.
func (x *exchange) denied(ctx context.Context, t target, err error) (reply, error) {
	return x.observed(ctx, t.Upstream.Server().Name, t.Item.Name, func(context.Context) (reply, error) { return x.refusal(t, err) })
}

func (x *exchange) refusal(t target, err error) (reply, error) {
	no, ok := errors.AsType[*enforce.Refused](err)
	if !ok {
		return reply{}, err
	}
	call := t.Upstream.Server().Name + "." + t.Name
	if mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall {
		return reply{}, no.Outcome.Error(call)
	}
	return reply{refused: true, why: no, result: no.ToolError(call)}, nil
}

// left ends the passage of a request, if it has one and the request is over: the client gets no result that is not
// recorded.
func (x *exchange) left(ctx context.Context, re reply, err error) (reply, error) {
	if x.pass == nil {
		return re, err
	}
	outcome, _ := judged(ctx, re, err)
	if unrecorded := x.pass.End(outcome.String(), re.size()); unrecorded != nil {
		x.srv.log.Error("closing the record of a call; its result is withheld", "call", x.pass.Call(), "error", unrecorded.Error())
		return reply{}, jsonrpc.Errorf(mcp.INTERNAL_ERROR, "the request was made, and its result is withheld: the record of it could not be closed")
	}
	return re, err
}

// answering has a client's answer to a server's question pass the gate before the server gets it. It cannot be given
// again, so that it waits for its approval as long as the server waits for it, and the approval lives.
func (s *Server) answering(pass *enforce.Passage, a *registry.Ask) question {
	through := func(b []byte, then func(sent []byte)) {
		go func() {
			ctx, cancel := context.WithCancel(s.calls)
			defer cancel()
			a.Withdrawn(cancel)
			sent, err := pass.Enter(ctx, a.Method, b, true)
			if err != nil {
				a.Fail(jsonrpc.Errorf(mcp.REQUEST_INTERRUPTED, "the client's answer may not be sent to this server"))
				return
			}
			then(sent)
		}()
	}
	return question{
		answer: func(result []byte) { through(result, a.Answer) },
		fail: func(e *jsonrpc.Error) {
			if e.Raw == nil { // pfar's own
				a.Fail(e)
				return
			}
			through(e.Raw, func(sent []byte) { a.Fail(&jsonrpc.Error{Raw: sent}) })
		},
	}
}

// unasked passes the gate for a question that a server puts outside of any request of its client's: what it says is
// seen.
func (s *Server) unasked(t *session, a *registry.Ask) (*enforce.Passage, error) {
	who, ok := s.identityOf(t)
	if s.gate == nil || !ok {
		return nil, errNoGate
	}
	it := enforce.Item{Server: a.Server, Declared: a.Declared(), Kind: gate.Resource, Name: a.Method, Fits: true}
	return s.gate.Enter(s.calls, who, it, enforce.Request{Method: a.Method, Arguments: []byte("{}"), Params: []byte("{}"), Answer: true})
}

// heed is a message as the client may have it: what it reads of a server's counts as seen.
func (x *exchange) heed(sub *subscriber, m told) ([]byte, error) {
	if m.says == "" {
		return m.message, nil
	}
	if x.srv.gate == nil {
		return nil, errNoGate
	}
	said, err := x.srv.gate.Hear(x.r.Context(), x.identity(), m.says, m.declared, x.srv.lister(m.says).Declared, m.method, m.params)
	return sub.message(m.method, said), err
}

// received is a result as the client may have it: labelled, and if strangers may have written it, looked through and
// fenced.
func (x *exchange) received(ctx context.Context, up *registry.Upstream, t target, re reply) (reply, error) {
	if values, err := x.extract(t, re); values != nil || err != nil {
		return x.typed(ctx, up, t, values, err)
	}
	if err := x.pass.Seen(); err != nil {
		return reply{}, x.unseeable(up, err)
	}
	if !x.pass.Strange() {
		re.result, re.members = fenced.Pageless(x.msg.Method, re.result, re.members)
		return labelled(up, atLeast(t.Label, x.pass.Label().Confidentiality), re), nil
	}
	edits, ok := x.pass.Result(ctx, x.msg.Method, re.result, re.members, t.misfit(x.msg.Method))
	if !ok {
		return x.withheld(t)
	}
	re.edits = edits
	return re, nil
}

// misfit is how a client will check the structuredContent of what it has asked for.
func (t target) misfit(method string) func(content []byte) (path string, wrong bool) {
	if mcp.MCPMethod(method) != mcp.MethodToolsCall {
		return nil
	}
	return func(content []byte) (string, bool) {
		v := t.Item.CheckStructured(content)
		if v == nil {
			return "", false
		}
		return v.Path, true
	}
}

// extract is what is left of a result of which no more than typed values is to reach the client, and nil if it is raw.
func (x *exchange) extract(t target, re reply) ([]byte, error) {
	if !x.pass.Extracts() {
		return nil, nil
	}
	values, more := t.Item.Extract(re.members)
	if more != nil {
		return nil, x.pass.SeenAs(more.Error())
	}
	if taken, err := x.pass.Taken(); !taken {
		return nil, err
	}
	return values, nil
}

// typed is a result of these values as the client may have it. All else that the server put into it is left out, so
// that nobody has to look for text there.
func (x *exchange) typed(ctx context.Context, up *registry.Upstream, t target, values []byte, err error) (reply, error) {
	if err != nil {
		return reply{}, x.unseeable(up, err)
	}
	if !x.pass.Inbound(ctx, values) {
		return x.withheld(t)
	}
	result := x.pass.Answer().Typed(values)
	ms, err := jsonrpc.Object(result, nil)
	return reply{result: result, members: ms}, err
}

// withheld stands for what inspectors have flagged: what it was, and why, is in the record alone (GAT-33, GAT-34).
func (x *exchange) withheld(t target) (reply, error) {
	text := "pfar has withheld what " + t.Upstream.Server().Name + " answered, because inspectors found it suspicious. Its owner sees why: pfar audit " + x.pass.Call()
	if mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall {
		return reply{}, jsonrpc.Errorf(approval.Code, "%s", text)
	}
	return reply{toolError: true, result: fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true,"_meta":{"pfar/server":%s}}`,
		jsonrpc.Quote(text), jsonrpc.Quote(t.Upstream.Server().Name))}, nil
}

// fencedError is a server's error as the client may have it.
func (x *exchange) fencedError(up *registry.Upstream, e *jsonrpc.Error) error {
	e = &jsonrpc.Error{Raw: explainedError(e.Raw, x.refused(x.ctx, up))}
	if err := x.pass.Seen(); err != nil {
		return x.unseeable(up, err)
	}
	if !x.pass.Strange() {
		return e
	}
	if !x.pass.Inbound(x.ctx, e.Raw) {
		return jsonrpc.Errorf(approval.Code, "pfar has withheld the error of %s, because inspectors found it suspicious. Its owner sees why: pfar audit %s", up.Server().Name, x.pass.Call())
	}
	return &jsonrpc.Error{Raw: x.pass.Answer().Error(e.Raw)}
}

// unseeable is the error of what a client must not see, for its session's label cannot be raised.
func (x *exchange) unseeable(up *registry.Upstream, err error) error {
	x.srv.log.Error("joining the label of what came back; it is withheld", "call", x.pass.Call(), "error", err.Error())
	return jsonrpc.Errorf(approval.Code, "pfar has withheld what %s answered: that this session has seen it cannot be written down", up.Server().Name)
}

// atLeast is a server's label, or the higher one that its answer has; what is no label is kept.
func atLeast(label string, c gate.Confidentiality) string {
	var have gate.Confidentiality
	if have.UnmarshalText([]byte(label)) != nil || have >= c {
		return label
	}
	return c.String()
}

// labelled puts a label on a result.
func labelled(up *registry.Upstream, label string, re reply) reply {
	if re.members.Index("_meta") < 0 {
		re.added = up.Mark(label)
		return re
	}
	re.result = up.Label(label, re.result, re.members)
	return re
}

// lister returns a server that is up, by what the owner says of it: nothing of one that is not.
func (s *Server) lister(server string) enforce.Lister {
	for _, up := range s.registry.Catalogue().Upstreams() {
		if up.Server().Name == server {
			owner, word := up.Declared()
			return enforce.Lister{Server: server, Declared: word, Owner: owner}
		}
	}
	return enforce.Lister{Server: server}
}

// identityOf is who a session is with, and false if that client may not be here any more.
func (s *Server) identityOf(t *session) (enforce.Identity, bool) {
	table := s.clients.table.Load()
	if table == nil {
		return enforce.Identity{}, false
	}
	m := table.member(t.bound)
	if m == nil {
		return enforce.Identity{}, false
	}
	x := exchange{bound: t.bound, member: m, session: t}
	return x.identity(), true
}

// plainMeta reports whether a member of _meta may go to a server with a request that a person has approved without
// seeing it.
func plainMeta(name []byte) bool {
	return slices.Contains([]string{"progressToken", mcp.MetaKeyProtocolVersion, mcp.MetaKeyClientCapabilities, mcp.MetaKeyLogLevel}, string(name))
}
