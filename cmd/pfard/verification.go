package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units/attach"
)

// verifyRunner verifies the audit and returns what "pfar audit verify --json" prints. There may be both an output and
// an error.
type verifyRunner interface {
	verifyAudit(ctx context.Context) ([]byte, error)
}

// verification has the audit verified for consoles. pfar audit verify does it, in a process of its own: the records
// quote strangers, and a long audit takes a while. One runs at a time, whoever asks. A user's goes before one for other
// machines, whose console could else begin one after the other, and users would wait without end.
type verification struct {
	runs verifyRunner
	turn chan struct{} // holds one while the audit is verified

	mu     sync.Mutex
	yields context.CancelCauseFunc // ends the one that is under way; nil: it is a user's, or is ending for one
}

// verifyTime is how long a verification may take; pfar-verify.service has it, too. A console waits a little longer.
const verifyTime = 10 * time.Minute

func newVerification(runs verifyRunner) *verification {
	return &verification{runs: runs, turn: make(chan struct{}, 1)}
}

var (
	errVerifying = errors.New("the audit is being verified already; try again when that has ended")
	errYielded   = errors.New("somebody at this machine has the audit verified now; try again when that has ended")
)

// run verifies the audit for a user, or for nobody of this machine, and returns a list of prose.Verified in JSON. With
// ctx the verification ends.
func (v *verification) run(ctx context.Context, uid int) (string, error) {
	ctx, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	if uid != nobody {
		ended = nil
	}
	if err := v.take(ctx, ended); err != nil {
		return "", err
	}
	defer v.free()
	late := fmt.Errorf("the verification has not ended within %s; run pfar audit verify", verifyTime)
	ctx, cancel := context.WithTimeoutCause(ctx, verifyTime, late)
	defer cancel()
	text, err := v.runs.verifyAudit(ctx)
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case json.Valid(text): // with an error: records were changed
		return string(text), nil
	case err == nil:
		err = errors.New("pfar audit verify printed no result")
	}
	return "", err
}

// take takes the turn. yields ends the verification for a user's; nil: it is a user's, and does not yield.
func (v *verification) take(ctx context.Context, yields context.CancelCauseFunc) error {
	v.mu.Lock()
	select {
	case v.turn <- struct{}{}:
		v.yields = yields
		v.mu.Unlock()
		return nil
	default:
	}
	other := v.yields
	if yields != nil || other == nil {
		v.mu.Unlock()
		return errVerifying
	}
	v.yields = nil // who comes now is not waited for
	v.mu.Unlock()
	other(errYielded)
	select {
	case v.turn <- struct{}{}: // before others: they do not wait for it
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *verification) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.yields = nil
	<-v.turn
}

// verifying is the verification that one console waits for.
type verifying struct {
	limit *rate.Limiter

	mu     sync.Mutex
	number uint64             // of the question
	cancel context.CancelFunc // nil: the console waits for none
}

// newVerifying bounds how often a console has the audit verified: the one for other machines more than a user's.
func newVerifying(uid int) *verifying {
	if uid == nobody {
		return &verifying{limit: rate.NewLimiter(rate.Every(time.Minute), 3)}
	}
	return &verifying{limit: rate.NewLimiter(rate.Every(5*time.Second), 12)}
}

var errVerifyOften = errors.New("the audit was verified often; try again in a minute")

// begin returns the context of a verification that a console waits for, and what ends it.
func (v *verifying) begin(ctx context.Context, number uint64) (context.Context, context.CancelFunc, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.cancel != nil:
		return nil, nil, errVerifying
	case !v.limit.Allow():
		return nil, nil, errVerifyOften
	}
	ctx, cancel := context.WithCancel(ctx)
	v.number, v.cancel = number, cancel
	return ctx, func() {
		cancel()
		v.mu.Lock()
		defer v.mu.Unlock()
		v.cancel = nil
	}, nil
}

// drop ends the verification for a question that nobody waits for any more.
func (v *verifying) drop(number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.cancel != nil && v.number == number {
		v.cancel()
	}
}

// verify has the audit verified for the process. It takes no place of other questions, and returns at once.
func (s *console) verify(ctx context.Context, conn *attach.Conn, v attach.View) {
	ctx, end, err := s.verifies.begin(ctx, v.Number)
	if err != nil {
		refuse(conn, v.Question, err.Error())
		return
	}
	go s.handOver(conn, v.Question, func() ([]*os.File, attach.Records, error) {
		defer end() // before the answer: another question may follow at once
		return s.opened(ctx, v)
	})
}
