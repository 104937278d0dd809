package runs

import (
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/units/flows"
)

// What is to become of a step whose outcome is not known.
const (
	PastDone  = "done"  // it is done: the run goes on behind it, without its outputs
	PastAgain = "again" // it is called again
)

// List returns the runs that somebody may see, the newest first, without results. Of their traces, Dropped has the
// number of steps.
func (r *Runner) List(who Who) ([]flows.Status, error) {
	if err := r.tidy(); err != nil {
		return nil, err
	}
	list, err := r.disk.list(who)
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	return list, nil
}

// Clients returns the clients that have runs that are not over, in the order of their names.
func (r *Runner) Clients() ([]string, error) {
	list, err := r.disk.clients()
	if err != nil {
		return nil, fmt.Errorf("reading whose runs are not over: %w", err)
	}
	return list, nil
}

// Show returns one run with its trace. The error is ErrUnknown for one that there is not, or that is another's.
func (r *Runner) Show(who Who, id string) (flows.Status, error) {
	if err := r.tidy(); err != nil {
		return flows.Status{}, err
	}
	if _, err := r.disk.find(who, id); err != nil {
		return flows.Status{}, err
	}
	s, _, err := r.disk.status(id, 0)
	return s, err
}

// Epoch is that of a run's session when the run began (New.Epoch); 0: it is not known.
func Epoch(r *Runner, id string) (int64, error) { return r.disk.epoch(id) }

// Cancel ends a run. When it has returned without an error, no further call of the run begins. The context of a call
// that is on its way is cancelled, and what becomes of that call is in the trace. The error is ErrUnknown as of Show,
// ErrState for a run that is over.
func (r *Runner) Cancel(who Who, id string) error {
	r.mu.Lock()
	defer r.unlock()
	if r.life == closed {
		return ErrClosed
	}
	h, err := r.disk.find(who, id)
	if err != nil {
		return err
	}
	if over(h.state) {
		return fmt.Errorf("%w: %s is %s already", ErrState, id, h.state)
	}
	return r.cancel(h, "cancelled")
}

// cancel ends a run that is not over. The lock is held.
func (r *Runner) cancel(h head, reason string) error {
	if h.state == flows.Unknown {
		reason += "; " + inDoubt
	}
	return r.end(h.id, standing{state: flows.Cancelled, reason: reason})
}

// end ends a run that is not over, wherever it is. The lock is held.
func (r *Runner) end(id string, s standing) error {
	now := r.now().UnixNano()
	err := r.disk.end(id, s, now)
	if errors.Is(err, ErrHeld) {
		s.reason = "the words of why must not be kept"
		err = r.disk.end(id, s, now)
	}
	if err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("writing that run %s is %s: %w", id, s.state, err)
	}
	if m := r.moving[id]; m != nil {
		m.cancelled = true
		m.cancel()
	}
	r.unwait(id)
	r.ended = append(r.ended, id)
	ended(r, id)
	r.hub.change(id)
	return nil
}

// Resume has a run go on whose last call has an unknown outcome. past is PastDone or PastAgain. The error is ErrUnknown
// as of Show, ErrState for a run that does not stand so.
func (r *Runner) Resume(who Who, id, past string) error {
	if past != PastDone && past != PastAgain {
		return fmt.Errorf("%w: what becomes of its last call is %s or %s, not %q", ErrState, PastDone, PastAgain, past)
	}
	r.mu.Lock()
	defer r.unlock()
	if r.life >= closing {
		return ErrClosed
	}
	if err := r.expire(); err != nil {
		return err
	}
	h, err := r.disk.find(who, id)
	if err != nil {
		return err
	}
	if h.state != flows.Unknown {
		return fmt.Errorf("%w: %s is %s, and only a run whose last call has an unknown outcome is resumed", ErrState, id,
			h.state)
	}
	return r.resume(h, past)
}

// resume has a run go on. The lock is held.
func (r *Runner) resume(h head, past string) error {
	run, err := r.disk.load(h.id)
	if err != nil {
		return fmt.Errorf("reading run %s: %w", h.id, err)
	}
	step := run.step
	if past == PastDone {
		next, ok := run.plan.Steps[step].Next[flow.Default]
		if !ok {
			return r.end(h.id, standing{state: flows.Done, reason: "its last call was done, as its owner says"})
		}
		step = next
	}
	if err := r.disk.goOn(run, step); err != nil {
		return fmt.Errorf("writing that run %s goes on: %w", h.id, err)
	}
	r.hub.change(h.id)
	r.queue.add(h.client, place{id: h.id})
	r.dispatch()
	return nil
}

// Dismiss cancels all runs whose client, or whoever began them, is not let in any more: stays reports whether a client
// is by a proof.
func (r *Runner) Dismiss(stays func(client, proof string) bool) error {
	r.mu.Lock()
	defer r.unlock()
	if r.life == closed {
		return ErrClosed
	}
	list, err := r.disk.heads(isOpen)
	if err != nil {
		return fmt.Errorf("reading the runs: %w", err)
	}
	for _, h := range list {
		if !stays(h.client, h.proof) {
			err = errors.Join(err, r.cancel(h, "its client, or the token or user that began it, is not declared any more"))
		}
	}
	return err
}

// tidy ends the runs that have waited for longer than they may.
func (r *Runner) tidy() error {
	r.mu.Lock()
	defer r.unlock()
	return r.expire()
}

// expire is tidy with the lock held.
func (r *Runner) expire() error {
	if r.life == closed {
		return ErrClosed
	}
	list, err := r.disk.expired(r.now())
	if err != nil {
		return fmt.Errorf("reading the runs that wait: %w", err)
	}
	for _, h := range list {
		reason := "nobody answered its approval within "
		if h.state == flows.Unknown {
			reason = inDoubt + "; its owner said nothing within "
		}
		reason += long(r.rules.limits.Wait)
		err = errors.Join(err, r.end(h.id, standing{state: flows.Failed, reason: reason}))
	}
	return err
}

// long writes a duration of whole hours in days, or in hours if it is short.
func long(d time.Duration) string {
	if hours := d / time.Hour; hours < 48 {
		return fmt.Sprintf("%d h", hours)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
