package runs

import (
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/pfar/pfar/units/flows"
)

// Bounds of what the disk may lack of one run.
const (
	mostUnsaved  = 64       // calls
	bytesUnsaved = 64 << 10 // of the steps of the trace, and of values
)

// unsaved is what calls have made of a run, and the disk lacks. If the gateway is killed, those that only read are made
// again: their run stands on the disk where it stood before them. Of one that writes, it is not known then whether it
// was carried out, as if it had not come back: so nothing is sent before that is written.
type unsaved struct {
	steps  [][]byte                   // of the trace, in JSON
	values map[string]json.RawMessage // that the store has otherwise; nil: it has none of the name now
	bytes  int                        // of both
	last   int                        // place in the plan of the step that was called last
	due    bool                       // a time is set at which it is written
	wrote  bool                       // one of the calls writes
}

// stands is the outcome that a run has now.
func (r *run) stands() outcome {
	return outcome{standing: r.standing, position: r.position, label: r.label}
}

// bytes is how many the plan and the store have after an outcome.
func (r *run) bytes(o outcome) int { return r.planned + size(r.store) + growth(r.store, o.values) }

// clear says that the disk lacks nothing of a run.
func (r *run) clear() {
	r.saved, r.unsaved = r.bytes(outcome{}), unsaved{due: r.unsaved.due}
}

// keepLate takes what a call has made of a run that goes on. It is written with what comes next, or after a while, and
// of a call that writes, before the next one is sent. The lock is held.
func (r *Runner) keepLate(run *run, o outcome) error {
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
		return r.save(run)
	}
	if !u.due {
		u.due = true
		time.AfterFunc(r.rules.limits.Late, func() {
			r.mu.Lock()
			defer r.unlock()
			u.due = false
			if err := r.save(run); err != nil {
				r.failed(run.id, "writing what calls have made of it", err)
			}
		})
	}
	return nil
}

// save writes what the disk lacks of a run. A run for which there is no place fails, and errGone is returned. The lock
// is held.
func (r *Runner) save(run *run) error {
	if len(run.unsaved.steps) == 0 || r.life == closed {
		return nil
	}
	o := run.stands()
	err := r.write(run, o)
	if !errors.Is(err, ErrFull) {
		return err
	}
	o = o.fail(&run.plan.Steps[run.unsaved.last], "keeping its result: "+err.Error())
	if err := r.write(run, o); err != nil {
		return err
	}
	if m := r.moving[run.id]; m != nil { // its next call may be on its way
		m.cancelled = true
		m.cancel()
	}
	return errGone
}

// saveNow is save of a run that does not go on for now.
func (r *Runner) saveNow(run *run) {
	r.mu.Lock()
	defer r.unlock()
	if err := r.save(run); err != nil {
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
func (r *Runner) commence(m *move, run *run, writes bool) *commencing {
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
			c.err = r.commenced(m, run, writes)
		}()
	}
	return c
}

// commenced writes that a call has begun. The lock is held.
func (r *Runner) commenced(m *move, run *run, writes bool) error {
	if m.cancelled || r.life != started {
		return errNotBegun
	}
	if !writes && run.state == flows.Running {
		if err := r.save(run); err != nil {
			r.failed(run.id, "writing what calls have made of it", err)
			return errNotBegun
		}
		return nil
	}
	now := r.now().UnixNano()
	err := r.disk.commence(run, writes, now)
	if errors.Is(err, ErrFull) { // there is no place for what calls before have given
		if err = r.save(run); err == nil { // by now there is
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
