// Package desk has pfard set up what a conversation wants, and the gateway answer its questions: requests on their
// sockets out, states and words in.
package desk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/control"
)

var _ chat.Setups = (*Setups)(nil)

// Setups are those of the user who runs this process, or of a chat. Its methods may be called at the same time.
type Setups struct {
	Control control.Client
	Chat    string        // the chat of chat.d; "": the conversation is the user's own
	Limit   time.Duration // for an answer of pfard that waits for no person; 0: 30 s

	// Check says in words why a conversation cannot set a service up, such as that it needs more than secrets; nil: pfard
	// decides alone.
	Check func(service string) error

	mu       sync.Mutex
	answered map[string]chan outcome // by the id of the set-up
}

// outcome is where a set-up is when it has ended or waits for a person.
type outcome struct {
	now control.Flow
	err error
}

var errEnough = errors.New("enough")

// Waiting returns the set-up that is under way, or has ended within the last minute; nil: there is none.
func (s *Setups) Waiting(ctx context.Context) (*control.Flow, error) {
	now, err := s.follow(ctx, s.join(), func(control.Flow) bool { return true })
	switch {
	case errors.Is(err, control.ErrNoFlow):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("asking pfard for set-ups: %w", err)
	}
	return &now, nil
}

// join asks for the set-up that is there.
func (s *Setups) join() *control.SetUp { return &control.SetUp{Chat: s.Chat, Lately: true} }

// limit bounds the time in which pfard answers. ended ends it early.
func (s *Setups) limit(ctx context.Context) (limited context.Context, answered func(), end func()) {
	limit := cmp.Or(s.Limit, 30*time.Second)
	limited, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(limit, func() { cancel(fmt.Errorf("pfard has not answered within %s", limit)) })
	return limited, func() { late.Stop() }, func() { late.Stop(); cancel(nil) }
}

// Begin sets a service up under its own name. It returns when the set-up has ended or waits for a person.
func (s *Setups) Begin(ctx context.Context, service string) (control.Flow, error) {
	if s.Check != nil {
		if err := s.Check(service); err != nil {
			return control.Flow{}, err
		}
	}
	begin := &control.SetUp{Server: service, Service: service, Chat: s.Chat}
	return s.follow(ctx, begin, func(f control.Flow) bool { return f.Wants != nil || f.Over() })
}

// Answer gives a set-up a secret, or a word that ends it or leaves the secret out. It begins to follow the set-up
// before, so that After misses nothing. An error leaves the set-up waiting.
func (s *Setups) Answer(ctx context.Context, asked control.Flow, value string) error {
	if asked.Wants == nil {
		return fmt.Errorf("the set-up of %q waits for no secret", asked.Server)
	}
	following, stop := context.WithCancel(ctx)
	joined, end := make(chan struct{}), make(chan outcome, 1)
	go func() {
		defer stop()
		heard := sync.OnceFunc(func() { close(joined) })
		defer heard()
		now, err := s.follow(following, s.join(), func(f control.Flow) bool {
			heard()
			return f.Over() || f.Wants != nil && !sameQuestion(asked, f)
		})
		end <- outcome{now, err}
	}()
	<-joined
	limited, _, done := s.limit(ctx)
	defer done()
	answer := control.FlowAnswer{ID: asked.ID, Key: asked.Wants.Key, Chat: s.Chat}
	if _, err := s.Control.Supply(limited, answer, value); err != nil {
		stop()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answered == nil {
		s.answered = map[string]chan outcome{}
	}
	s.answered[asked.ID] = end
	return nil
}

// After returns when the set-up that Answer has answered has ended or waits for a person again.
func (s *Setups) After(ctx context.Context, asked control.Flow) (control.Flow, error) {
	s.mu.Lock()
	end := s.answered[asked.ID]
	delete(s.answered, asked.ID)
	s.mu.Unlock()
	if end == nil {
		return control.Flow{}, fmt.Errorf("the set-up of %q was not answered", asked.Server)
	}
	select {
	case o := <-end:
		if o.err != nil {
			return o.now, fmt.Errorf("following the set-up of %q: %w", asked.Server, o.err)
		}
		return o.now, nil
	case <-ctx.Done():
		return control.Flow{}, context.Cause(ctx)
	}
}

// follow begins or joins a set-up, and returns its first state that is enough.
func (s *Setups) follow(
	ctx context.Context, begin *control.SetUp, enough func(control.Flow) bool,
) (now control.Flow, err error) {
	ctx, answered, end := s.limit(ctx)
	defer end()
	err = s.Control.SetUp(ctx, begin, func(f control.Flow) error {
		answered()
		if now = f; enough(f) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) || err == nil {
		return now, nil
	}
	return now, err
}

// sameQuestion reports whether nothing has become of the answer to a question yet.
func sameQuestion(asked, now control.Flow) bool {
	return now.ID == asked.ID && now.Wants != nil && now.Wants.Key == asked.Wants.Key && now.State == asked.State &&
		now.Attempts == asked.Attempts && now.Retry == asked.Retry && now.Detail == asked.Detail
}
