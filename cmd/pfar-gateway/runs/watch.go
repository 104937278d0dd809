package runs

import (
	"context"
	"io"

	"github.com/pfar/pfar/units/flows"
)

// Watcher follows one run.
type Watcher struct {
	runner  *Runner
	id      string
	changed chan struct{}
	stop    func()
	seen    int // steps of the trace that it has told of
	told    bool
	over    bool
	last    flows.Status // that it has told, without its trace and result
}

// Watch follows a run from how it stands now. The error is as of Show. The Watcher is to be closed.
func (r *Runner) Watch(who Who, id string) (*Watcher, error) {
	if _, err := r.disk.find(who, id); err != nil {
		return nil, err
	}
	w := &Watcher{runner: r, id: id}
	w.changed, w.stop = r.hub.watch(id)
	return w, nil
}

// Next returns how the run stands, at once for the first time, and then when that has changed. The trace has the steps
// that no Next before has returned; Dropped is how many of these are not kept. The error is io.EOF after the state of a
// run that is over, ErrClosed when the Runner is closed, and that of ctx.
func (w *Watcher) Next(ctx context.Context) (flows.Status, error) {
	if w.over {
		return flows.Status{}, io.EOF
	}
	for {
		if w.told {
			select {
			case <-w.changed:
			case <-w.runner.ending:
				return flows.Status{}, ErrClosed
			case <-ctx.Done():
				return flows.Status{}, ctx.Err()
			}
		}
		s, steps, err := w.runner.disk.status(w.id, w.seen)
		if err != nil {
			return s, err
		}
		if w.told && steps == w.seen && w.same(&s) {
			continue // it was read while it changed
		}
		w.told, w.seen, w.over, w.last = true, steps, over(s.State), s
		w.last.Trace, w.last.Result = nil, nil
		return s, nil
	}
}

// same reports whether a run stands as it was told last.
func (w *Watcher) same(s *flows.Status) bool {
	l := &w.last
	return s.State == l.State && s.Reason == l.Reason && s.Approval == l.Approval && s.At == l.At && s.Label == l.Label
}

// Close ends the Watcher.
func (w *Watcher) Close() { w.stop() }
