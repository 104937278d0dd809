package enforce

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/operator"
)

// notPinned stands for the digest of what is not pinned.
const notPinned = "none"

// weighed is a request with all that is decided by.
type weighed struct {
	policy   *gate.Policy
	session  gate.Session
	call     gate.Call
	decision gate.Decision
	plain    gate.Facts     // the call's without stains, of what may be granted; else zero
	report   inspect.Report // on what is sent
	writes   bool           // what is sent may stay with the server
	keeps    bool           // what it overwrites there is to be kept before
}

// Enter decides about a request. It returns when the request may be sent, which is then to be done at once; a human may
// have been asked, which takes its time. An error is a *Refused, and the request must not be sent.
//
// The first record of the request is in its file by then: write(2) has returned, and no kill of this process loses it.
// The disk has it (fdatasync(2)) if a person has approved the request, or what it does cannot be undone. Of others, a
// power cut may take the records of the last second, though they have run.
func (p *Point) Enter(ctx context.Context, who Identity, it Item, r Request) (*Passage, error) {
	begun := time.Now()
	p.await(ctx)
	who, here := p.now(who, &it)
	label.Silences{Sessions: p.Sessions}.Called(who.Client, who.Handle)
	if who.Person { // gets what comes back as it came
		it.Typed = nil
	}
	defer func() { r.words.Release() }()
	known := p.Vault == nil || p.Vault.Known() // before anything is looked for
	floored := raise(p, r.Run, who)
	w, id, err := weighKept(ctx, p, who, &it, &r)
	err = errors.Join(floored, err)
	if !known {
		err = errors.Join(err, errors.New("it is not known yet which secrets there are"))
	}
	if !here {
		err = errors.Join(err, errGone)
	}
	if !known || !here || floored != nil {
		w.decision = gate.Decision{Facts: w.call.Facts, Profile: who.Profile}
	}
	pass := &Passage{
		point: p, who: who, item: it, name: it.Name, method: r.Method, begun: begun, id: id,
		facts: w.call.Facts, writes: w.writes,
	}
	pass.typed = pass.facts.Extracts()
	if p.guesses.spent(who.Client) {
		w.decision = gate.Decision{Facts: w.call.Facts, Profile: who.Profile, Reason: errGuesses.Error()}
	}
	if err != nil {
		w.decision.Reason = cmp.Or(w.decision.Reason, err.Error())
	}
	beforehand := p.Grants.Any() || r.Run.approved()
	if v := w.decision.Verdict; v == gate.Inspect || v == gate.Ask && (w.decision.Inspect || beforehand) {
		about := fence.Meta{Server: it.Server, Tool: it.Name, Label: w.decision.Data}
		w.report = p.others(ctx, w.policy.Asks(who.Profile), inspector.Outbound, about, r.outbound(), w.report)
		still(p, who, &it, &w) // they take their time
	}
	pass.verdict = w.decision.Verdict
	found := append(findings(w.report), it.unfit()...)
	verdict := w.decision.Verdict
	if verdict == gate.Inspect {
		if verdict = gate.Ask; w.report.Outcome == inspect.Clean {
			verdict = gate.Allow
		}
	}
	if verdict == gate.Ask && !r.Run.givenUp(ctx) && (planned(pass, &w, &r, found) || granted(p, pass, &w, &r, found)) {
		verdict = gate.Allow
	}
	after := gate.Joined(w.session, w.call.Facts)
	if err := p.open(pass, &w, &r, after, found); err != nil {
		const text = "the record of the call could not be opened, and pfar does nothing that it cannot record"
		return nil, refused(pass.id, text)
	}
	switch verdict {
	case gate.Allow:
		if err := p.outlasts(pass); err != nil {
			return nil, err
		}
	case gate.Ask:
		if it.Vain != nil {
			pass.end("denied")
			return nil, it.Vain
		}
		if err := p.ask(ctx, pass, &w, &r, found); err != nil {
			return nil, err
		}
		if err := keepAgain(ctx, p, pass, &w); err != nil {
			return nil, err
		}
	default:
		p.guessed(who, &w, pass.id)
		pass.end("denied")
		return nil, refused(pass.id, p.tells(who, &w, pass.id))
	}
	if err := p.dispatch(pass, w.session.Label); err != nil {
		p.Log.Error("writing down what a session has seen; the call is denied", "call", pass.id, "error", err.Error())
		pass.end("denied")
		return nil, refused(pass.id, "what its session will have seen could not be written down")
	}
	if err := pass.Stands(); err != nil {
		pass.end("denied")
		return nil, err
	}
	pass.sent = true
	return pass, nil
}

// weighKept is weigh of a request with a new id. If the request may be sent, or a person may let it be, what it may
// overwrite is kept first: facts that rest on that are true by then, or the request is weighed without them.
func weighKept(ctx context.Context, p *Point, who Identity, it *Item, r *Request) (weighed, string, error) {
	id := audit.NewID()
	w, err := p.weigh(who, it, r)
	if err != nil || !w.keeps || w.decision.Verdict == gate.Deny {
		return w, id, err
	}
	if err := keep(ctx, p, it.Server, handover.Call{ID: id, Client: who.Client, Tool: it.Name}); err != nil {
		it.unkept = err.Error()
		p.Log.Warn("what a call writes cannot be taken back", "call", id, "server", it.Server, "error", err.Error())
	}
	if w, err = p.weigh(who, it, r); err == nil { // that took its time
		still(p, who, it, &w)
	}
	return w, id, err
}

// keepAgain keeps what a request may overwrite that a person has approved: others may have changed it since the
// question. The person was told that it can be taken back.
func keepAgain(ctx context.Context, p *Point, pass *Passage, w *weighed) error {
	if !w.keeps || pass.item.unkept != "" {
		return nil
	}
	call := handover.Call{ID: pass.id, Client: pass.who.Client, Tool: pass.item.Name}
	if err := keep(ctx, p, pass.item.Server, call); err != nil {
		pass.end("denied")
		return refused(pass.id, "what it writes can no longer be taken back ("+lower(err.Error())+"): ask again")
	}
	return nil
}

// still has a decision deny if the policy, or what the client may do, has changed since.
func still(p *Point, who Identity, it *Item, w *weighed) {
	now, here := p.now(who, it)
	same := here && now.Profile == who.Profile && reflect.DeepEqual(now.Rights, who.Rights)
	if !same || p.policy.Load().Digest != w.policy.Digest {
		const changed = "the policy, or what the client may do, has changed meanwhile: ask again"
		w.decision = gate.Decision{Facts: w.call.Facts, Profile: who.Profile, Reason: changed}
	}
}

var errGuesses = errors.New("too many of the client's calls held secrets; wait a minute")

var errGone = errors.New("the client may not ask for this any more")

// Missed records a request that is no request of anything there is, or not as it has to be: there is nothing to be
// decided, and nothing is done.
func (p *Point) Missed(who Identity, server, name string, r Request, why error) {
	reason := p.said(why.Error())
	if known := p.said(name); known != name {
		name, reason = known, known
	}
	err := p.Trail.Open(&audit.Record{
		ID: audit.NewID(), Client: who.Client, Session: who.Handle, Server: server, Tool: name, Method: r.Method, Arguments: p.kept(who.Profile, r.Arguments),
		Outcome: "denied", Reason: reason,
	})
	if err != nil {
		p.Log.Warn("recording a request of nothing, ignoring", "client", who.Client, "error", err.Error())
	}
}

// MissedMore records how many requests of that kind a client has made beyond those that were recorded one by one.
func (p *Point) MissedMore(client string, n int64) {
	recordMore(p, n, audit.Record{
		Client: client, Outcome: "denied", Reason: "the client asks too often for what there is not, or not as it has to be",
	})
}

// SignalledMore records how many signals of a client's were withheld beyond those that were recorded one by one.
func (p *Point) SignalledMore(client string, n int64) {
	recordMore(p, n, audit.Record{
		Client: client, Outcome: "withheld", Reason: "the client signals too often outside of any request",
	})
}

// Unheard records how many questions a server has put to clients outside of any call beyond what it may, and was
// refused.
func (p *Point) Unheard(server string, n int64) {
	recordMore(p, n, audit.Record{
		Server: server, Outcome: "denied", Reason: "the server asks clients too much that no call is about",
	})
}

// recordMore writes one record for n messages.
func recordMore(p *Point, n int64, r audit.Record) {
	r.ID, r.Left = audit.NewID(), n-1
	if err := p.Trail.Open(&r); err != nil {
		p.Log.Warn("recording that "+r.Reason+", ignoring", "client", r.Client, "server", r.Server, "messages", n, "error", err.Error())
	}
}

// weigh finds out all that a decision is made by, and decides. With an error the decision denies.
func (p *Point) weigh(who Identity, it *Item, r *Request) (w weighed, err error) {
	w.policy = p.policy.Load()
	w.session.Profile = who.Profile
	w.session.Label, err = p.Sessions.Label(who.Client, who.Handle)
	if err == nil {
		p.Reads.Meet(who.Client, who.Handle, w.session.Label)
	}
	sources := r.Run.sources(p.Sessions.Servers(who.Client, who.Handle))
	if err == nil && w.policy != nil && len(w.policy.Flows) > 0 {
		w.session.Sources = sources
	}
	w.session.Label = r.Run.floored(w.session.Label)
	item := p.facts.now(w.policy, it)
	if it.Declared != nil { // else nothing is said, or the server is not up
		p.Sessions.Holds(it.Server, item.holds)
	}
	said := item.told(it.Server, r.Arguments, w.session.Label, sources, func() bool {
		return p.Reads.Carries(who.Client, who.Handle, r.said(), item.opens.Audience) != "" ||
			p.Reads.Chosen(who.Client, who.Handle, r.said()) != ""
	})
	f := tightened(said, who.Rights, it.Server)
	if it.Kind == gate.Tool && !r.Answer {
		w.plain = f
	}
	w.writes = f.Effect != gate.None
	w.keeps = item.keeps && w.writes && !r.Answer
	if r.Answer {
		w.writes = r.Stays
		if !r.Stays { // else it is a part of what the request does that it belongs to, and of which nobody has seen it
			f.Effect, f.From.Effect = gate.None, "protocol"
		}
	}
	f = f.Stained(p.Sessions.Stained(it.Server))
	w.call = gate.Call{
		Client: who.Client, Server: it.Server, Name: it.Name, Method: r.Method, Facts: f,
		Pinned: it.Pin != "" || it.Kind == gate.Resource, Schema: it.Fits, Audit: p.Trail.Failed() == nil,
	}
	a := &w.call.Arguments
	if it.Kind == gate.Tool && !r.Answer {
		a.Address = item.astray(r.Arguments)
	}
	a.FreeText = w.session.Label.Integrity != gate.Extracted || it.FreeText == nil || it.FreeText(r.Arguments)
	builtin := inspect.Builtin{Vault: p.Vault, Parsed: true}
	w.report = builtin.Inspect(inspector.Outbound, r.outbound())
	a.Vault, a.Pattern = w.report.Vault(), w.report.Pattern()
	w.decision = w.policy.Decide(w.session, w.call)
	if errors.Is(err, label.ErrFrozen) {
		w.decision.Reason = err.Error() + "; the person who runs pfar can let it go on: pfar sessions thaw " + sessionName(who)
	}
	return w, err
}

// sessionName is a session as the operator's commands take it: the client alone for its default one.
func sessionName(who Identity) string {
	if who.Handle == label.Default {
		return who.Client
	}
	return who.Client + "/" + who.Handle
}

// open writes the first record of a call.
func (p *Point) open(pass *Passage, w *weighed, r *Request, after gate.Label, found []audit.Finding) error {
	d := w.decision
	if secret := slices.ContainsFunc(w.report.Findings, inspect.Finding.Secret); secret || pass.item.Kind == gate.Resource {
		pass.name, d.Reason = p.said(pass.name), p.said(d.Reason)
	}
	record := audit.Record{
		Time: pass.begun, ID: pass.id, Client: pass.who.Client, Session: pass.who.Handle, Server: pass.item.Server, Tool: pass.name,
		Method: r.Method, Arguments: p.kept(pass.who.Profile, r.Arguments), Before: p.labelled(pass.who, w.session.Label), Decision: &d, Findings: found,
		Facts: &pass.facts, Pin: pass.item.Pin, Policy: d.Policy,
	}
	record.Subject, record.Approver, record.Channel = pass.yes.beforehand()
	if d.Verdict != gate.Deny {
		if record.After = record.Before; after != w.session.Label {
			record.After = p.labelled(pass.who, after)
			record.After.Sources = append(record.After.Sources, label.Source{Server: pass.item.Server, Tool: pass.name, Call: pass.id}.String())
		}
	}
	return p.Trail.Open(&record)
}

// granted reports whether a grant covers a call that the gate asks about. A grant answers for the person alone:
// inspectors have looked at the call, and all were content. The call is counted by then.
func granted(p *Point, pass *Passage, w *weighed, r *Request, found []audit.Finding) bool {
	if r.Answer || w.report.Outcome != inspect.Clean || !p.Grants.Any() || !r.Run.grants(w.call.Facts.Audience) {
		return false
	}
	q := p.request(pass, w, r, found)
	pass.yes.lease = p.Grants.Use(&q, r.said())
	return pass.yes.lease != nil
}

// outlasts has the disk take the record of what cannot be undone, so that it outlasts a power cut as well.
func (p *Point) outlasts(pass *Passage) error {
	if pass.facts.Effect != gate.Irreversible {
		return nil
	}
	if err := p.Trail.Sync(); err != nil {
		pass.end("denied")
		return refused(pass.id, "the disk does not take the record of it, and pfar does nothing that it cannot record")
	}
	return nil
}

// ask has a person decide. The answer is for this request and what it was decided by, and for nothing else.
func (p *Point) ask(ctx context.Context, pass *Passage, w *weighed, r *Request, found []audit.Finding) error {
	request := p.request(pass, w, r, found)
	outcome, err := asked(ctx, p, r, request, func() (approval.Request, error) {
		who, here := p.now(pass.who, &pass.item)
		if !here {
			return approval.Request{}, errGone
		}
		now, err := p.weigh(who, &pass.item, r)
		if err == nil && now.decision.Verdict == gate.Deny {
			err = errors.New(p.tells(who, &now, pass.id))
		}
		return p.request(pass, &now, r, found), err
	})
	answer := audit.Record{
		Kind: audit.Approval, ID: pass.id, Method: "ask",
		Subject: outcome.ID, Outcome: outcome.State.String(), Reason: outcome.Reason,
	}
	if outcome.By != nil {
		answer.Approver, answer.Channel = outcome.By.Name, outcome.By.Channel
	}
	unrecorded := p.Trail.Append(&answer)
	if outcome.State != approval.Approved {
		if err = errors.Join(err, unrecorded); err != nil {
			p.Log.Warn("asking for an approval; the call is denied", "call", pass.id, "error", err.Error())
		}
		pass.end(outcome.State.String())
		return &Refused{Call: pass.id, Outcome: outcome}
	}
	if err = unrecorded; err == nil {
		err = p.Trail.Sync()
	}
	pass.yes.person = true
	if err != nil {
		pass.end("denied")
		return refused(pass.id, "the record of its approval could not be written, and pfar does nothing that it cannot record")
	}
	return nil
}

func (p *Point) request(pass *Passage, w *weighed, r *Request, found []audit.Finding) approval.Request {
	q := approval.Request{
		Client: pass.who.Client, Proof: pass.who.Proof, Session: pass.who.Handle,
		Server: pass.item.Server, Name: pass.item.Name, Method: r.Method, Arguments: r.Arguments,
		Facts: w.call.Facts, Decision: w.decision, Pin: cmp.Or(pass.item.Pin, notPinned), Policy: w.decision.Policy,
		Unshown: operator.Unshown{Last: r.Last, Plain: w.plain, Life: r.Run.life()},
	}
	if r.Run != nil {
		q.Run, q.Step = r.Run.ID, r.Run.Step
	}
	q.Findings = words(found)
	silent := label.Silences{Sessions: p.Sessions}.Of(pass.who.Client, pass.who.Handle)
	q.Beside = operator.Beside{
		Sources: p.Sessions.Sources(pass.who.Client, pass.who.Handle), Silent: int(silent / time.Second), Call: pass.id,
	}
	return q
}

// dispatch joins labels, for the request is about to be sent: whatever comes back of it, and however, counts as seen,
// and what it writes as written.
func (p *Point) dispatch(pass *Passage, session gate.Label) error {
	by := label.Source{Server: pass.item.Server, Tool: pass.name, Call: pass.id}
	if _, _, err := p.Sessions.Raise(pass.who.Client, pass.who.Handle, pass.Label(), by); err != nil {
		return err
	}
	if pass.Approved() { // a person has let that data go there, to all who may see what the tool is given
		session.Confidentiality = min(session.Confidentiality, pass.facts.Audience)
	}
	return pass.stain(session)
}

// lower begins a sentence as the rest of one.
func lower(s string) string {
	if len(s) > 1 && s[0] >= 'A' && s[0] <= 'Z' && (s[1] < 'A' || s[1] > 'Z') {
		s = string(s[0]+'a'-'A') + s[1:]
	}
	for len(s) > 0 && s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}

// Refused is the error of a request that is not sent.
type Refused struct {
	Call string // id of its record
	approval.Outcome
}

func (r *Refused) Error() string { return r.Text("it") + " (call " + r.Call + ")" }

func refused(call, reason string) *Refused {
	return &Refused{Call: call, Outcome: approval.Outcome{Reason: reason}}
}

// Dismiss denies what is open, and ends what is granted, of clients who may not be here any more, or may not call that
// any more. Whoever is let in again is asked about anew.
func (p *Point) Dismiss(gone func(*approval.Request) bool) {
	p.Approvals.Dismiss(gone)
	p.Grants.Dismiss(gone)
}

// tells returns the words of a denial for the client. The record has the whole reason. If the request held a secret,
// the client hears neither that nor which one: it may be guessing. If the owner's words deny the request, the client
// hears that the owner can allow it, so that a model says so and does not try other ways.
func (p *Point) tells(who Identity, w *weighed, call string) string {
	if w.decision.Rule != gate.VaultRule || who.Person {
		said := lower(w.decision.Reason)
		if w.decision.Owners() {
			said += "; the person who runs pfar can allow it: pfar explain " + call
		}
		return said
	}
	return "it was denied; the person who runs pfar sees why: pfar explain " + call
}

// guessed counts a request that was denied for the secret in it.
func (p *Point) guessed(who Identity, w *weighed, call string) {
	if w.decision.Rule != gate.VaultRule || who.Person {
		return
	}
	p.guesses.add(who.Client)
	frozen, err := p.Sessions.Answered(who.Client, who.Handle, false)
	if err != nil {
		p.Log.Warn("counting a call that held a secret, ignoring",
			"call", call, "client", who.Client, "error", err.Error())
	}
	if frozen {
		p.Approvals.Froze(who.Client, who.Handle)
		p.Log.Warn("a session is frozen, for its calls held secrets",
			"client", who.Client, "session", who.Handle, "call", call)
	}
}
