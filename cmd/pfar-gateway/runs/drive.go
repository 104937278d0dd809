package runs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/units/flows"
)

// drive has a run go on until it waits or is over.
func (r *Runner) drive(m *move) {
	approval, waits := r.steps(m)
	r.mu.Lock()
	delete(r.moving, m.id)
	m.cancel()
	r.queue.free(m.client)
	var w *wait
	if waits && !m.cancelled && r.life < closing {
		w = &wait{client: m.client}
		r.waits[m.id] = w
	}
	r.dispatch()
	r.unlock()
	if approval != "" {
		r.await(m.id, approval, w)
	}
}

// await has a run go on when its approval is answered. w is nil for a run that does not wait: the caller hears at once
// that nobody needs the answer.
func (r *Runner) await(id, approval string, w *wait) {
	stop := r.caller.Answered(approval, func() { r.answered(id, w) })
	r.mu.Lock()
	kept := w != nil && r.waits[id] == w
	if kept {
		w.stop = stop
	}
	r.unlock()
	if !kept {
		stop()
	}
}

// answered has a run go on that has waited.
func (r *Runner) answered(id string, w *wait) {
	r.mu.Lock()
	defer r.unlock()
	if r.life != started || w == nil {
		return
	}
	if err := r.expire(); err != nil {
		r.failed(id, "ending runs that have waited for too long", err)
	}
	if r.waits[id] != w {
		return
	}
	delete(r.waits, id)
	r.queue.add(w.client, place{id: id, asked: true})
	r.dispatch()
}

// steps makes the calls of a run. It returns the id of the approval that the last call needs, "" for none, and whether
// the run waits for it.
func (r *Runner) steps(m *move) (approval string, waits bool) {
	run, err := r.disk.load(m.id)
	if err != nil {
		if !errors.Is(err, errGone) {
			r.fail(m, fmt.Errorf("reading the run: %w", err))
		}
		return "", false
	}
	defer saveNow(r, run)
	for asked := m.asked; ; asked = false {
		e, ok := r.step(m, run, asked)
		switch {
		case !ok:
			return e.Waits, false
		case run.state != flows.Running:
			return e.Waits, run.state == flows.Waiting
		}
	}
}

// step makes one call of a run. It returns false if that does not go on.
func (r *Runner) step(m *move, run *run, asked bool) (ending, bool) {
	call, store, err := r.rules.call(run, asked)
	if err != nil {
		r.fail(m, err)
		return ending{}, false
	}
	e := ending{store: store, asked: asked, writes: r.caller.Writes(run.client, run.plan.Steps[run.step].Node)}
	c := commence(r, m, run, e.writes)
	if c == nil {
		return ending{}, false
	}
	call.begun = c.wait
	e.begun = r.now()
	e.Result, err = m.call(r, call)
	e.took = max(0, r.now().Sub(e.begun))
	switch {
	case c.wait() != nil: // nothing was sent
		return e, false
	case errors.Is(err, ErrLeft):
		leave(r, run, e.Sent)
		return e, false
	case err != nil:
		e.fatal, e.Error, e.Waits, e.Denied = true, err.Error(), "", false
	}
	return e, r.settle(run, r.rules.judge(run, e))
}

// leave has the next gateway go on with a run at the call that it is at. One that was not sent has no unknown outcome.
func leave(r *Runner, run *run, sent bool) {
	if sent || !run.sent {
		return
	}
	o := run.stands()
	o.sent = false
	if err := r.keep(run, o); err != nil && !errors.Is(err, ErrClosed) {
		r.failed(run.id, "writing that its call was not sent", err)
	}
}

// call makes a call. A fault of a node's code ends the run, and not the gateway.
func (m *move) call(r *Runner, c Call) (result Result, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			r.log.Error("a call of a flow has panicked", "run", c.Run, "step", c.Plan.Steps[c.Step].ID,
				"stack", string(debug.Stack()))
			result, err = Result{Sent: true}, errors.New("the gateway has a fault in the code of this node; its log says where")
		}
	}()
	return r.caller.Call(m.ctx, c)
}

// heldWords are why a run fails whose result Parts.Clean keeps from the disk. They do not say what is wrong with the
// result: the client may be guessing.
const heldWords = "its result must not be kept; the person who runs pfar sees why"

// settle writes what a call has made of a run. It returns false if the run does not go on: it was cancelled meanwhile,
// or that cannot be written.
func (r *Runner) settle(run *run, o outcome) bool {
	p := &run.plan.Steps[run.step]
	err := r.keep(run, o)
	switch {
	case errors.Is(err, ErrHeld): // nobody holds the lock: the caller has locks of its own
		r.caller.Held(Call{
			Run: run.id, Client: run.client, Session: run.session, Proof: run.proof, Plan: run.plan, Step: run.step,
		})
		o = o.fail(p, heldWords)
		err = r.keep(run, o)
	case errors.Is(err, ErrFull):
		o = o.fail(p, "keeping its result: "+err.Error())
		err = r.keep(run, o)
	}
	if errors.Is(err, ErrHeld) {
		o.reason, o.trace = "the step's result must not be kept", nil
		err = r.keep(run, o)
	}
	if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, errGone) {
		r.failed(run.id, "writing what a call has made of it", err)
	}
	return err == nil
}

// keep writes it. Nothing is written if the text must not be, or has no place.
func (r *Runner) keep(run *run, o outcome) error {
	r.mu.Lock()
	defer r.unlock()
	if r.life == closed {
		return ErrClosed
	}
	m := r.moving[run.id]
	goesOn := o.state == flows.Running && o.trace != nil && (m == nil || !m.cancelled)
	if r.rules.limits.Late > 0 && goesOn {
		return keepLate(r, run, o)
	}
	err := write(r, run, o)
	if err == nil {
		run.take(o)
		run.clear()
	}
	return err
}

// write writes an outcome, and leaves the run as it is but for what the disk lacks: whoever drives the run reads it
// without the lock, which is held here.
func write(r *Runner, run *run, o outcome) error {
	defer r.hub.change(run.id)
	err := r.disk.settle(run, o, r.now().UnixNano())
	switch {
	case errors.Is(err, errGone):
		late(r, run, o)
		run.clear()
		r.ended = append(r.ended, run.id)
	case err == nil:
		run.clear()
		if over(o.state) {
			r.ended = append(r.ended, run.id)
			ended(r, run.id)
		}
	}
	return err
}

// late says of a run that was cancelled while its call was on its way what has become of that.
func late(r *Runner, run *run, o outcome) {
	if !run.sent {
		return
	}
	reason := "cancelled while a call was on its way"
	switch {
	case o.trace == nil:
		reason = "cancelled before its call was sent"
	case o.inDoubt:
		reason += ", and whether that was carried out is not known"
	case o.trace.Action == flow.Default:
		reason += ", which was carried out"
	}
	if err := r.disk.explain(run.id, reason); err != nil {
		r.failed(run.id, "writing why it is over", err)
	}
}

// fail ends a run that cannot make its next call.
func (r *Runner) fail(m *move, why error) {
	r.mu.Lock()
	defer r.unlock()
	if m.cancelled || r.life == closed {
		return
	}
	if err := r.end(m.id, standing{state: flows.Failed, reason: short(why.Error())}); err != nil {
		r.failed(m.id, "writing why it has failed", err)
	}
}

// failed logs that a run cannot go on in this process. It goes on after a restart from where it stands on the disk.
func (r *Runner) failed(id, doing string, err error) {
	if errors.Is(err, errGone) {
		return
	}
	r.log.Error("a run of a flow cannot go on", "run", id, "doing", doing, "error", err)
}

// keepLate takes what a call has made of a run that goes on. It is written with what comes next, or after a while, and
// of a call that writes, before the next one is sent. The lock is held.
func keepLate(r *Runner, run *run, o outcome) error {
	step, err := r.disk.passed(o)
	if err != nil {
		return err
	}
	u := &run.unsaved
	u.last, u.wrote = run.step, u.wrote || run.sent
	run.take(o)
	if u.values == nil {
		u.values = make(map[string]json.RawMessage)
	}
	maps.Copy(u.values, o.values)
	u.steps = append(u.steps, step)
	u.bytes += len(step) + size(o.values)
	if len(u.steps) >= mostUnsaved || u.bytes >= bytesUnsaved {
		return save(r, run)
	}
	if !u.due {
		u.due = true
		time.AfterFunc(r.rules.limits.Late, func() {
			r.mu.Lock()
			defer r.unlock()
			u.due = false
			if err := save(r, run); err != nil {
				r.failed(run.id, "writing what calls have made of it", err)
			}
		})
	}
	return nil
}

// save writes what the disk lacks of a run. A run for which there is no place fails, and errGone is returned. The lock
// is held.
func save(r *Runner, run *run) error {
	if len(run.unsaved.steps) == 0 || r.life == closed {
		return nil
	}
	o := run.stands()
	err := write(r, run, o)
	if !errors.Is(err, ErrFull) {
		return err
	}
	o = o.fail(&run.plan.Steps[run.unsaved.last], "keeping its result: "+err.Error())
	if err := write(r, run, o); err != nil {
		return err
	}
	if m := r.moving[run.id]; m != nil { // its next call may be on its way
		m.cancelled = true
		m.cancel()
	}
	return errGone
}

// saveNow is save of a run that does not go on for now.
func saveNow(r *Runner, run *run) {
	r.mu.Lock()
	defer r.unlock()
	if err := save(r, run); err != nil {
		r.failed(run.id, "writing what calls have made of it", err)
	}
}

// commencing is a call that begins while the gate decides about it.
type commencing struct {
	done chan struct{} // closed when that is on the disk, or cannot be
	err  error         // why the call must not be made
}

// wait waits until it is known whether the call may be made.
func (c *commencing) wait() error {
	<-c.done
	return c.err
}

// errNotBegun is of a call that must not be made.
var errNotBegun = errors.New("the run was given up, or that the call begins could not be written")

// commence begins a call; nil: it does not. When wait returns nil, what calls that write have made of the run is
// written. Of a call that writes, the disk has by then that it has begun, and all that calls before have made of the
// run. The lock must not be held.
func commence(r *Runner, m *move, run *run, writes bool) *commencing {
	r.mu.Lock()
	defer r.unlock()
	c := &commencing{done: make(chan struct{})}
	switch {
	case m.cancelled || r.life != started:
		return nil
	case !writes && run.state == flows.Running && !run.unsaved.wrote:
		close(c.done)
	default:
		go func() {
			defer close(c.done)
			r.mu.Lock()
			defer r.unlock()
			c.err = commenced(r, m, run, writes)
		}()
	}
	return c
}

// commenced writes that a call has begun. The lock is held.
func commenced(r *Runner, m *move, run *run, writes bool) error {
	if m.cancelled || r.life != started {
		return errNotBegun
	}
	if !writes && run.state == flows.Running {
		if err := save(r, run); err != nil {
			r.failed(run.id, "writing what calls have made of it", err)
			return errNotBegun
		}
		return nil
	}
	now := r.now().UnixNano()
	err := r.disk.commence(run, writes, now)
	if errors.Is(err, ErrFull) { // there is no place for what calls before have given
		if err = save(r, run); err == nil { // by now there is
			err = r.disk.commence(run, writes, now)
		}
	}
	if err != nil {
		r.failed(run.id, "beginning a call", err)
		return errNotBegun
	}
	run.clear()
	run.waited, run.sent, run.standing = run.approval, writes, standing{state: flows.Running}
	r.hub.change(run.id)
	return nil
}
