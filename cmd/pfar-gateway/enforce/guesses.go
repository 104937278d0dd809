package enforce

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
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
