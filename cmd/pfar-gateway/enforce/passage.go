package enforce

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/gate/fold"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Passage is a request that was let through, until it is over.
type Passage struct {
	point   *Point
	who     Identity
	item    Item
	name    string // of the item, as it is written down
	method  string
	id      string // of its record
	begun   time.Time
	verdict gate.Verdict // that was decided
	yes     yes

	closed atomic.Bool // there is no record that what is found could be in
	writes bool        // what the client says in it may stay with the server
	typed  bool        // what comes back was to be typed values alone
	sent   bool        // something may have come back

	mu       sync.Mutex
	found    []audit.Finding  // in what came back
	withheld *audit.Arguments // of that
	facts    gate.Facts
	rose     *audit.Label // the session's label, if it has risen since the request was sent
	taken    bool         // the client has typed values, and has had nothing else
	why      string       // it has, or may have had, something else
	left     string       // whether the server has heard that the client has left; "": the client has not

	ending
	fence sync.Once
	marks fence.ID
}

// ending is how a request ends. The zero value: it has not.
type ending struct {
	over   bool
	failed failure.Failure // the zero value: it has not failed, or it is not known how
}

// yes is who has let a request through that the gate asked about. The zero value: nobody was asked.
type yes struct {
	person bool         // who was shown it
	lease  *grant.Lease // of a grant that covers it
	plan   *consent.Yes // to a plan that covers it
}

// Channels of approvals that were given beforehand. The record's subject names the grant, or the plan's approval.
const (
	grantChannel = "grant"
	planChannel  = "plan"
)

// beforehand is what the record of a request says of a yes that was given before it.
func (y yes) beforehand() (subject, approver, channel string) {
	switch {
	case y.lease != nil:
		return y.lease.ID, y.lease.By.Name, grantChannel
	case y.plan != nil:
		return y.plan.Approval, y.plan.By.Name, planChannel
	}
	return "", "", ""
}

// Call is the id under which the request is recorded.
func (g *Passage) Call() string { return g.id }

// Begun is when the request came.
func (g *Passage) Begun() time.Time { return g.begun }

// Declared is what the owner said of the server when that was decided.
func (g *Passage) Declared() []byte { return g.item.Declared }

// ProfileOf is the profile of the client by which a request that has passed was decided.
func ProfileOf(g *Passage) string { return g.who.Profile }

// OnlyReads reports whether a request that has passed changes nothing, by what it was decided by.
func OnlyReads(g *Passage) bool { return !g.writes }

// Verdict is what was decided about the request; it has passed.
func (g *Passage) Verdict() gate.Verdict { return g.verdict }

// Approved reports whether a person has let it through, who has seen no more than what it or its plan was shown to be,
// or who has granted so many bytes of arguments, and nothing beside them.
func (g *Passage) Approved() bool {
	return g != nil && (g.yes.person || g.yes.lease != nil || g.yes.plan != nil)
}

// Stands is the reason why a request that has passed must not be sent after all: the grant that covered it has been
// revoked or has come to its end. nil: it may be sent.
func (g *Passage) Stands() error {
	if g == nil || g.yes.lease == nil || g.yes.lease.Live() {
		return nil
	}
	return refused(g.id, "the grant that covered it has ended")
}

// Label is that of whatever comes back.
func (g *Passage) Label() gate.Label {
	g.mu.Lock()
	defer g.mu.Unlock()
	return gate.Joined(gate.Session{Label: gate.Start}, g.facts)
}

// Strange reports whether strangers may have written what comes back, and a model is to read it: what a person has
// called goes to a terminal, a file or another program as it came.
func (g *Passage) Strange() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.Output.Integrity != gate.Clean && !g.who.Person
}

// stain has its server's outputs be no better than what is sent there, if that may come out again.
func (g *Passage) stain(sent gate.Label) error {
	switch {
	case g.item.Labelled:
		return nil
	case g.writes:
	case g.facts.Remembers: // it reads by its own word alone, and is told what is secret since nobody else gets it
		sent.Integrity = gate.Clean
	default:
		return nil
	}
	if sent == gate.Start {
		return nil
	}
	by := label.Source{Client: g.who.Client, Handle: g.who.Handle, Tool: g.name, Call: g.id}
	return g.point.Sessions.Stain(g.item.Server, sent, by)
}

// Seen is to be called before anything that came back reaches the client, with that. Its label has been joined when the
// request was sent, and is once more: meanwhile another session may have written to the server what it answers with, or
// the operator may have reset this one. With an error the client must not get it. What was to be typed values alone is
// raw from now on (Taken).
func (g *Passage) Seen(got []byte) error {
	return g.SeenAs("what came back is not typed values alone", got)
}

// SeenAs is Seen, and says why what came back is more than typed values, for the record.
func (g *Passage) SeenAs(why string, got []byte) error {
	return seen(g, why, gate.Start, got)
}

// seen is SeenAs of what has at least a label of its own.
func seen(g *Passage, why string, own gate.Label, got []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.facts.Extract {
		g.facts.Extract, g.taken, g.why = false, false, why
	}
	return g.join(own, got)
}

// join joins to the session's label that of what comes back, which is at least its own, and has taken down what that
// is.
// The lock is held.
func (g *Passage) join(own gate.Label, got []byte) error {
	g.edited()
	stained := g.facts.Stained(g.point.Sessions.Stained(g.item.Server))
	if g.facts.Extract && !stained.Extract {
		g.taken, g.why = false, "a session that is raw has written to the server"
	}
	g.facts = stained
	l := gate.Joined(gate.Session{Label: gate.Start}, g.facts).Join(own)
	before, after, err := g.point.Sessions.Raise(g.who.Client, g.who.Handle, l, label.Source{Server: g.item.Server, Tool: g.name, Call: g.id})
	if err == nil && after != before {
		g.rose = g.point.labelled(g.who, after)
	}
	g.point.Reads.Note(g.who.Client, g.who.Handle, l, got)
	return err
}

// edited has what comes back be no less strict than its owner says by now, if the declaration has been edited since the
// request was sent. The lock is held.
func (g *Passage) edited() {
	now, ok := g.item.edited()
	if !ok {
		return
	}
	f := tightened(g.point.facts.of(g.point.policy.Load(), &now).facts, g.who.Rights, now.Server)
	if g.facts.Extract && !f.Extract {
		g.facts.Extract, g.taken, g.why = false, false, "the declaration of its server has been edited"
	}
	g.facts.Output = g.facts.Output.Join(f.Output)
}

// Extracts reports whether a result of typed values would count as that: there is to be one, and nothing else has come
// back yet.
func (g *Passage) Extracts() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.Extracts()
}

// Taken is Seen of a result of typed values that Extracts has asked for, and that is all that the client gets. It
// reports false if that is raw after all, for a session that is raw has written to the server meanwhile: then the
// client must not get it before Seen.
func (g *Passage) Taken(values []byte) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.facts.Extracts() {
		return false, nil
	}
	g.taken = true
	err := g.join(gate.Start, values)
	return g.taken && err == nil, err
}

// Inbound has inspectors look at what came back, if strangers may have written it. It reports whether the client may
// have it; the details of what was found are in the record alone. What no inspector could look at, it may not have.
func (g *Passage) Inbound(ctx context.Context, result []byte) bool {
	if !g.Strange() {
		return true
	}
	return g.clean(ctx, result)
}

// Result returns what is to change in the result of the request with these members before the client may have it: it is
// labelled and fenced. It reports false if the client may not have it (Inbound). The built-in inspector reads it as it
// is fenced, so that each string is read once. misfit is how the client will check its structuredContent
// (fenced.Answer).
func (g *Passage) Result(ctx context.Context, method string, result []byte, ms jsonrpc.Members, misfit func([]byte) (string, bool)) ([]jsonrpc.Edit, bool) {
	a := g.Answer()
	if a.Label.Integrity == gate.Clean { // it is not read for a fence
		edits, _, _ := a.Result(method, result, ms)
		return edits, g.clean(ctx, result)
	}
	builtin := g.builtin()
	builtin.Fenced = true
	in := builtin.Begin(inspector.Inbound, result)
	a.Reader, a.Misfit = in, misfit
	edits, forged, unmarked := a.Result(method, result, ms)
	report := in.End(ms.Depth())
	if unmarked != nil {
		report = report.Join(inspect.Report{Outcome: inspect.Flagged, Findings: []inspect.Finding{inspect.Unmarked(unmarked)}})
	}
	if forged.Count > 0 {
		report = report.Join(inspect.Report{Outcome: inspect.Flagged, Findings: []inspect.Finding{inspect.Forged(forged.Count, forged.Near)}})
	}
	return edits, g.judged(ctx, result, report)
}

// Answer is what is known of what comes back, for its fence.
func (g *Passage) Answer() fenced.Answer {
	g.fence.Do(func() { _, _ = rand.Read(g.marks[:]) }) // crashes rather than fails
	return fenced.Answer{Meta: fence.Meta{Server: g.item.Server, Tool: g.item.Name, Label: g.Label()}, ID: g.marks}
}

// Said is what a server says in the course of the request, as the client may have it: the parameters of a notification
// or of a request of its own. It reports false if the client may not have it. It may take as long as inspectors take.
func (g *Passage) Said(ctx context.Context, method string, params []byte) ([]byte, bool) {
	if err := g.SeenAs("the server has said something else as well: "+method, params); err != nil {
		return nil, false
	}
	if !g.Strange() || params == nil {
		return params, true
	}
	if !g.clean(ctx, params) {
		return nil, false
	}
	return g.Answer().Message(method, params), true
}

// Enter decides about more that goes to the server in the course of the request: what the client answers when it is
// asked. What counts is the client's profile and rights as they are by now, whatever the request began with. If it
// cannot answer once more, a person has as long to approve it as an approval lives. It returns the answer as it may be
// sent.
func (g *Passage) Enter(ctx context.Context, method string, answer []byte, last bool) ([]byte, error) {
	it := g.item
	who, here := g.point.now(g.who, &it)
	if !here {
		return nil, refused(g.id, "the client may not answer this server any more")
	}
	it.FreeText, it.Typed = nil, nil
	more, err := g.point.Enter(ctx, who, it, Request{
		Method: method, Arguments: answer, Params: answer, Answer: true, Stays: method != "roots/list", Last: last,
	})
	if err != nil {
		return nil, err
	}
	if more.Approved() { // as it was shown, without white space
		if answer, err = jsonrpc.Compact(nil, answer); err != nil {
			more.end("denied")
			return nil, refused(more.id, err.Error())
		}
	}
	return answer, more.End("sent", 0)
}

// now is who makes a request, as that is by now, and whether that client may still have this item.
func (p *Point) now(who Identity, it *Item) (Identity, bool) {
	if p.Now == nil {
		return who, true
	}
	who, here := p.Now(who)
	switch {
	case !here || who.Rights == nil:
		return who, here
	case it.Kind == gate.Tool:
		return who, who.Rights.Tool(it.Server, it.Name)
	}
	return who, who.Rights.Server(it.Server)
}

// End closes the record. With an error the client must not get the result: pfar does nothing that it cannot record.
func (g *Passage) End(outcome string, bytes int) error {
	if g.over {
		return nil
	}
	g.over = true
	g.closed.Store(true)
	unseen, output := g.settle(), g.Label()
	g.mu.Lock()
	record := audit.Record{
		ID: g.id, Client: g.who.Client, Session: g.who.Handle, Server: g.item.Server, Tool: g.name, Method: g.method,
		Outcome: outcome, Bytes: int64(bytes), Latency: time.Since(g.begun), Findings: g.found, Withheld: g.withheld, After: g.rose,
	}
	if g.typed && g.sent {
		record.Output, record.Reason = &audit.Label{Label: output}, g.why
	}
	if g.failed.Class != "" {
		failed := g.failed
		record.Failure = &failed
	}
	if g.left != "" {
		record.Reason = strings.TrimPrefix(record.Reason+"; "+g.left, "; ")
	}
	g.mu.Unlock()
	return errors.Join(unseen, g.point.Trail.Close(&record))
}

// settle joins that what has come back is raw, if it was to be typed values and they are not what the client gets: an
// error, whoever words it, may have words of the server's in it.
func (g *Passage) settle() error {
	g.mu.Lock()
	open := g.sent && !g.taken && g.facts.Extracts()
	g.mu.Unlock()
	if !open {
		return nil
	}
	return g.SeenAs("there was no result of typed values", nil)
}

// Expire closes the record of a request whose client has not come back.
func (g *Passage) Expire() { g.end("expired") }

// Deny closes the record of a request whose client may not come back.
func (g *Passage) Deny() { g.end("denied") }

// end closes the record of a request that is not sent, whose client gets nothing in any case.
func (g *Passage) end(outcome string) {
	if err := g.End(outcome, 0); err != nil {
		g.point.Log.Warn("closing the record of a call that was not made, ignoring", "call", g.id, "error", err.Error())
	}
}

// raise has a session have seen all that the run holds. The record has it, if that is more than before. If the session
// was reset since the run began, it notes even under the same label that no server is known which this is from: else
// what the owner declassifies of one server would be all of it.
func raise(p *Point, r *Run, who Identity) error {
	if r == nil {
		return nil
	}
	if !r.Floor.Known() {
		return errors.New("the label of the run is not known")
	}
	known := r.Epoch != 0 && r.Epoch == label.Epoch(p.Sessions, who.Client, who.Handle) // before the label is read
	before, err := p.Sessions.Label(who.Client, who.Handle)
	if err != nil {
		return err
	}
	by := label.Source{Tool: "flow " + r.ID, Call: audit.NewID()}
	if r.Floor.Below(before) {
		if !known {
			_, _, err = p.Sessions.Raise(who.Client, who.Handle, r.Floor, by)
		}
		return err
	}
	err = p.Trail.Append(&audit.Record{
		Kind: audit.Session, ID: by.Call, Client: who.Client, Session: who.Handle, Method: runMethod, Subject: r.ID,
		Before: p.labelled(who, before), After: &audit.Label{Label: before.Join(r.Floor), Sources: []string{by.String()}},
	})
	if err == nil {
		_, _, err = p.Sessions.Raise(who.Client, who.Handle, r.Floor, by)
	}
	return err
}

// planned reports whether the yes to the plan covers a request that the gate asks about, which is counted by then.
func planned(pass *Passage, w *weighed, q *Request, found []audit.Finding) bool {
	r := q.Run
	if !r.approved() || q.Answer {
		return false
	}
	shown := r.Yes.Steps[r.Step]
	made := fold.Made{
		Decision: w.decision, Label: w.session.Label, Server: pass.item.Server, Name: pass.item.Name,
		Pin: cmp.Or(pass.item.Pin, notPinned), Declared: pass.item.declaredNow(), Client: clientNow(pass.who),
		Clean: w.report.Outcome == inspect.Clean && len(found) == 0,
	}
	var err error
	if made.Arguments, err = canonicalMembers(q.Arguments); err != nil {
		return false
	}
	why := shown.Other(&made)
	if why == "" {
		err = r.Consents.Use(r.ID, r.Step, pass.id)
	}
	if why != "" || err != nil {
		pass.point.Log.Info("the approval of a plan does not cover a call", "run", r.ID, "step", r.Step, "call", pass.id,
			"reason", cmp.Or(why, fmt.Sprint(err)))
		return false
	}
	pass.yes.plan = &r.Yes
	return true
}

// asked has a person decide about a request. Nobody waits with one of a run.
func asked(ctx context.Context, p *Point, q *Request, request approval.Request,
	again func() (approval.Request, error)) (approval.Outcome, error) {
	if q.Run == nil {
		return p.Approvals.Ask(ctx, request, again, q.Held)
	}
	if err := ctx.Err(); err != nil { // what nobody wants any more is not used up
		return approval.Outcome{Reason: "the run was given up"}, err
	}
	return approval.Runs{Store: p.Approvals}.Ask(request, again)
}
