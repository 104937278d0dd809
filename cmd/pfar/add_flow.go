package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// carry begins a set-up, or with nil joins that of this user, answers what it asks for, and says how it has ended.
func (a *adding) carry(ctx context.Context, begin *control.SetUp) error {
	if err := units.NoCore(); err != nil { // values pass through this process
		return err
	}
	following, leave := context.WithCancel(ctx)
	defer leave()
	t := &talk{adding: a, flows: make(chan control.Flow), ended: make(chan error, 1), values: newSecretValues(a)}
	go func() { t.ended <- a.control().SetUp(following, begin, deliver(following, t.flows)) }()
	last, err := t.converse(ctx)
	waits := last.Wants != nil && !errors.Is(err, control.ErrNotRunning)
	switch {
	case ctx.Err() != nil:
		if last.ID != "" {
			a.hintAt("the set-up goes on; join it with: pfar add " + a.server())
		}
		return context.Cause(ctx)
	case errors.Is(err, io.EOF) && waits: // Ctrl-D
		return fail(exitInterrupted, "no value was given").withHint("the set-up waits: pfar add %s", a.server())
	case err != nil && waits:
		code, _ := classify(err)
		return fail(code, "%w", err).withHint("the set-up waits: pfar add %s", a.server())
	case err != nil:
		return err
	case last.State == control.FlowFailed:
		return fail(exitFailed, "%s is not set up: %s", a.server(), last.Detail).
			withHint("pfar logs %s; pfar add %[1]s begins again, and stored secrets stay", a.server())
	}
	return a.finish(ctx, last)
}

// talk is a conversation about a set-up.
type talk struct {
	*adding
	flows  chan control.Flow
	ended  chan error
	values *secretValues
	said   string // last, of what is being done
}

// question is a value that is asked for.
type question struct {
	flow  control.Flow
	stop  context.CancelFunc
	given chan answer // by the person
	taken chan error  // by pfard
	sent  bool
}

// answer is what a person does about a question.
type answer struct {
	value string
	skip  bool
	err   error
}

// same reports whether a set-up still asks this.
func (q *question) same(f control.Flow) bool {
	return f.Wants != nil && f.Wants.Key == q.flow.Wants.Key && f.Attempts == q.flow.Attempts
}

// close gives the terminal its echo back. It reports whether a read was left behind: nothing more can be asked.
func (q *question) close() bool {
	if q == nil || q.sent {
		return false
	}
	q.stop()
	return errors.Is((<-q.given).err, context.Canceled)
}

// converse answers what the set-up asks for until it has ended.
func (t *talk) converse(ctx context.Context) (now control.Flow, err error) {
	var open *question
	defer func() { open.close() }()
	for {
		var given chan answer
		var taken chan error
		if open != nil && open.sent {
			taken = open.taken
		} else if open != nil {
			given = open.given
		}
		select {
		case <-ctx.Done():
			return now, context.Cause(ctx)
		case err := <-t.ended:
			if now.State == control.FlowComplete || now.State == control.FlowFailed {
				err = nil
			}
			return now, err
		case f := <-t.flows:
			if open != nil && open.same(f) {
				continue
			}
			t.deaf = open.close() || t.deaf // somebody else has answered, or it is too late
			now, open = f, nil
			if t.tell(f); f.Wants != nil {
				if open, err = t.pose(ctx, f); err != nil {
					return now, err
				}
			}
		case a := <-given:
			open.given <- a // for close
			if a.err != nil {
				return now, a.err
			}
			t.supply(ctx, open, a)
		case err := <-taken:
			if err == nil {
				open = nil
				continue
			}
			t.complain(err) // the set-up waits as before
			if open, err = t.pose(ctx, now); err != nil {
				return now, err
			}
		}
	}
}

// tell says what is being done.
func (t *talk) tell(now control.Flow) {
	busy := now.State == control.FlowSpawning || now.State == control.FlowVerifying
	if !busy || now.Detail == "" || now.Detail == t.said || t.json() {
		return
	}
	t.said = now.Detail
	fmt.Fprintln(t.stderr, escape(now.Detail, oneLine))
}

// pose begins to ask for the value that a set-up waits for.
func (t *talk) pose(ctx context.Context, now control.Flow) (*question, error) {
	if t.deaf {
		return nil, fail(exitFailed, "the set-up went on without this command").withHint("pfar add %s", t.server())
	}
	asking, stop := context.WithCancel(ctx)
	q := &question{flow: now, stop: stop, given: make(chan answer, 1), taken: make(chan error, 1)}
	go func() { q.given <- t.values.read(asking, now) }()
	return q, nil
}

// supply hands an answer over.
func (t *talk) supply(ctx context.Context, q *question, a answer) {
	q.sent = true
	q.stop()
	go func() {
		_, err := t.control().Supply(ctx, control.FlowAnswer{ID: q.flow.ID, Skip: a.skip}, a.value)
		q.taken <- err
	}()
}
