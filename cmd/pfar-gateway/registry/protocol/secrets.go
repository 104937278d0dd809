package protocol

import (
	"context"
	"log/slog"
	"time"

	"github.com/pfar/pfar/units/jsonrpc"
)

// secrets keeps secrets out of what one server says.
type secrets struct {
	by     *Redaction // nil: nothing is secret
	serial int64      // of those that have to be known before the server is read
	log    *slog.Logger
	leaks  *tally[string]
}

// known waits until the secrets are known that the server may have been given. An error is a *jsonrpc.Error.
func (s *secrets) known(ctx context.Context, c *Conversation) error {
	if s.by == nil {
		return nil
	}
	ok, turn := s.by.knows(s.serial)
	if ok {
		return nil
	}
	timer := time.NewTimer(redactionWait)
	defer timer.Stop()
	for !ok {
		select {
		case <-turn:
			ok, turn = s.by.knows(s.serial)
		case <-c.Done():
			return c.gone(false)
		case <-ctx.Done():
			return Interrupted(ctx)
		case <-timer.C:
			return jsonrpc.Errorf(CodeUnavailable, "server %q: pfard has not said what secrets no answer may hold, "+
				"so none is taken; see whether it runs: pfar status", c.name())
		}
	}
	return nil
}

// await waits as known does, for as long as the conversation goes on, and reports whether it does.
func (s *secrets) await(done <-chan struct{}) bool {
	for s.by != nil {
		ok, turn := s.by.knows(s.serial)
		if ok {
			break
		}
		select {
		case <-turn:
		case <-done:
			return false
		}
	}
	return true
}

// hide returns a line of the server's without secrets in it. It does not name them: a client that has a server echo
// guesses would learn whose value it has guessed.
func (s *secrets) hide(line []byte) []byte {
	if s.by == nil {
		return line
	}
	line, hits := s.by.set.Load().HideJSON(line)
	for _, h := range hits {
		if n, loud := s.leaks.add(h.Name); loud {
			s.log.Warn("a secret in what the server says is replaced", "secret", h.Name, "place", "message", "count", n)
		}
	}
	return line
}

// redactionWait is how long a request waits for the secrets to be known, of a gateway that has just been started.
const redactionWait = 10 * time.Second
