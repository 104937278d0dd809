package main

import (
	"context"
	"net/http"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/pfar/pfar/units/operator"
)

// cameBack are the sessions whose clients came back lately after a long silence, perhaps for another task. The screen
// shows them while no call waits.
type cameBack struct {
	sessions []operator.Session
	asked    time.Time // when the gateway told of them last
}

// silencePause is how long the screen shows them until it asks anew: what a client does without a question is no event.
const silencePause = 10 * time.Second

// sessionsSeen is what the gateway says of sessions.
type sessionsSeen struct {
	sessions []operator.Session
	err      error
}

// lookAround asks for the sessions, once in a while.
func (c *cameBack) lookAround(ctx context.Context, p *pfar) tea.Cmd {
	if now := p.now(); now.Sub(c.asked) >= silencePause || now.Before(c.asked) {
		c.asked = now
		return func() tea.Msg {
			var all []operator.Session
			err := p.askOperator(ctx, http.MethodGet, "/sessions", nil, &all)
			return sessionsSeen{all, err}
		}
	}
	return nil
}

// seen takes in what the gateway says. After an error, which the stream of calls tells of as well, nothing is known.
func (c *cameBack) seen(s sessionsSeen) {
	c.sessions = slices.DeleteFunc(s.sessions, func(s operator.Session) bool { return s.Silent <= 0 })
}
