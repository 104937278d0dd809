package enforce

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/gate"
)

// A denial because of a secret tells the client that a guess was right. So there are few: each counts as one of the
// operator's, which freeze a session, and a client that has had so many in all its sessions is denied everything for a
// while.
const (
	guessesAtOnce = 16
	guessEvery    = time.Minute
)

// guesses limits the requests of each client that held a secret.
type guesses struct {
	any atomic.Bool // nearly always there is none

	mu sync.Mutex
	of map[string]*rate.Limiter // there are no more than clients are declared
}

// spent reports whether a client has had all of its denials.
func (g *guesses) spent(client string) bool {
	if !g.any.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.of[client]
	return l != nil && l.Tokens() < 1
}

func (g *guesses) add(client string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = make(map[string]*rate.Limiter)
	}
	l := g.of[client]
	if l == nil {
		l = rate.NewLimiter(rate.Every(guessEvery), guessesAtOnce)
		g.of[client] = l
	}
	l.Allow()
	g.any.Store(true)
}

// tells is what a client hears of a denial. The record has the reason; that of a secret names it, and whoever guesses
// at secrets is told neither that it was one nor which. If the owner's words deny it, the client hears that the owner
// can allow it, so that a model can say so in place of trying on.
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
		p.Log.Warn("counting a call that held a secret, ignoring", "call", call, "client", who.Client, "error", err.Error())
	}
	if frozen {
		p.Approvals.Froze(who.Client, who.Handle)
		p.Log.Warn("a session is frozen, for its calls held secrets", "client", who.Client, "session", who.Handle, "call", call)
	}
}
