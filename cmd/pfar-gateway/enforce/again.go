package enforce

import (
	"errors"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/failure"
)

// Retries decide about requests of a point that have passed and failed.
type Retries struct{ *Point }

// May reports whether it is certain that a request only reads (OwnCalls.OnlyReads): the word of the server itself
// does not count.
func (p Retries) May(pass *Passage) bool {
	_, err := OwnCalls(p).OnlyReads(pass.item)
	return err == nil
}

// Decide decides whether a request that has passed and failed may be sent once more, and records that. All is weighed
// anew: nothing may be decided otherwise by now. With an error it must not be sent.
func (p Retries) Decide(pass *Passage, r Request, failed failure.Failure) error {
	who, here := p.now(pass.who, &pass.item)
	switch {
	case !here:
		return errGone
	case pass.Approved():
		return errors.New("somebody has said yes to one call")
	case !p.May(pass):
		return errors.New("pfar is not certain that the tool only reads")
	}
	it := pass.item
	w, err := p.weigh(who, &it, &r)
	if err != nil {
		return err
	}
	if w.decision.Verdict != pass.verdict {
		return errors.New("the gate decides otherwise by now: " + w.decision.Verdict.String())
	}
	return p.Record(pass, failed)
}

// Record records that a request has failed and is sent once more. With an error it must not be sent.
func (p Retries) Record(pass *Passage, failed failure.Failure) error {
	return p.Trail.Append(&audit.Record{
		Kind: audit.Retry, ID: pass.id, Client: pass.who.Client, Session: pass.who.Handle, Server: pass.item.Server,
		Tool: pass.name, Method: pass.method, Failure: &failed,
	})
}

// Failed sets the class of the error that the request ends with.
func (g *Passage) Failed(f failure.Failure) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failed = f
}
