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
	w.told, w.seen, w.over = true, steps, over(s.State)
	return s, nil
}

// Close ends the Watcher.
func (w *Watcher) Close() { w.stop() }
