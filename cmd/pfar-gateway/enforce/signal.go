package enforce

import (
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// Signal decides whether a server may hear of an act of its client's that carries no text: a resource is watched no
// more, or the client's folders have changed. The client chooses when and how often it does so, and can spell with
// that. So a signal passes only where a call would that reads: without a question to anybody. The record has it either
// way; what cannot be recorded does not pass.
func (p *Point) Signal(who Identity, it Item, method string) bool {
	w, why := p.signals(who, it, method)
	record := audit.Record{
		ID: audit.NewID(), Client: who.Client, Session: who.Handle, Server: it.Server, Tool: p.said(it.Name), Method: method,
		Before: p.labelled(who, w.session.Label), Decision: &w.decision, Facts: &w.call.Facts, Policy: w.decision.Policy,
		Outcome: "sent", Reason: why,
	}
	if why != "" {
		record.Outcome = "withheld"
	}
	if err := p.Trail.Open(&record); err != nil {
		p.Log.Warn("recording a signal; it is withheld", "server", it.Server, "method", method, "error", err.Error())
		return false
	}
	return why == ""
}

// signals weighs a signal, and returns why it does not pass, or "".
func (p *Point) signals(who Identity, it Item, method string) (weighed, string) {
	who, here := p.now(who, &it)
	w, err := p.weigh(who, &it, &Request{Method: method, Arguments: []byte("{}"), Params: []byte("{}"), Answer: true})
	switch {
	case !here:
		return w, errGone.Error()
	case err != nil:
		return w, err.Error()
	case w.decision.Verdict != gate.Allow:
		return w, lower(w.decision.Reason)
	}
	pass := &Passage{point: p, who: who, item: it, name: p.said(it.Name), facts: w.call.Facts}
	if err := pass.stain(w.session.Label); err != nil {
		return w, err.Error()
	}
	return w, ""
}

// Withdraw reports whether the server may hear that its client has left before the answer came (Signal). The record of
// the request says whether it has.
func (g *Passage) Withdraw() bool {
	if g == nil {
		return false
	}
	_, why := g.point.signals(g.who, g.item, "notifications/cancelled")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.left = "the server has been told"; why != "" {
		g.left = "the client has left, and the server has not been told: " + why
	}
	return why == ""
}
