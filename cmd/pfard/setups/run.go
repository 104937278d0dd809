package setups

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// running is a flow that is under way. Flows.mu guards its fields, except those that never change.
type running struct {
	id      string
	order   Order
	shown   control.Flow  // as followers know it
	changed bell          // rings when shown changes
	over    chan struct{} // closed when nothing is left to do

	turn   int           // number of the last change: outcomes of earlier turns do not count
	tasks  []task        // to be done, in this order
	more   chan struct{} // holds one message if there are tasks
	cancel func()        // ends the present task; nil: there is none
	paged  bool          // its page is open
}

// task is an action that belongs to a turn of its flow.
type task struct {
	setup.Action
	turn  int
	order Order
	gift  *gift // of setup.Store
}

// gift is a value that a person has brought, until it is in the vault.
type gift struct {
	value  Value
	uid    int
	stored chan error // takes one
}

const anyTurn = -1

func newID() string { return rand.Text() }

func newRunning(o Order) *running {
	return &running{
		id: o.Flow.ID, order: o, shown: o.Flow.View(), changed: make(bell), over: make(chan struct{}),
		more: make(chan struct{}, 1),
	}
}

// bell wakes those who wait for the next change. It belongs to Flows.mu.
type bell chan struct{}

func (b *bell) ring() {
	close(*b)
	*b = make(bell)
}

// event applies an event to a flow. The next state is on the disk before its actions begin. turn is that of the action
// whose outcome the event is; anyTurn: the event came from outside. An error is for the person who caused the event;
// the flow has not changed then.
func (f *Flows) event(id string, e setup.Event, g *gift, turn int) error {
	defer f.wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.of[id]
	switch {
	case f.closed:
		return errEnding
	case r == nil:
		return fmt.Errorf("%w: %q", control.ErrNoFlow, id)
	case turn != anyTurn && turn != r.turn:
		return nil
	}
	e.Now = f.Clock.Now()
	before := r.order.Flow
	next, actions, err := setup.Next(before, e)
	if err != nil {
		return fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	if len(actions) == 0 && reflect.DeepEqual(next, before) {
		return nil
	}
	o := r.order
	o.Flow = next
	if err := f.kept.keep(o); err != nil {
		switch e.Kind {
		case setup.Begun, setup.Value, setup.Skipped, setup.SigningIn, setup.Confirmed:
			return err
		}
		if !next.Over() { // the disk has the state before: the next pfard may repeat its actions
			o.Flow, actions, _ = setup.Next(before, setup.Event{Kind: setup.Broken, Words: err.Error(), Now: e.Now})
		}
	}
	f.turn(r, o, actions, g)
	return nil
}

// turn makes the next state of a flow the present one. Called with f.mu held.
func (f *Flows) turn(r *running, o Order, actions []setup.Action, g *gift) {
	if o.Flow.Attempts > r.order.Flow.Attempts {
		f.record(o.Flow, "refused")
	}
	r.order = o
	r.turn++
	if r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
	for _, a := range actions {
		t := task{Action: a, turn: r.turn, order: o}
		if a.Do == setup.Store {
			t.gift = g
		}
		r.tasks = append(r.tasks, t)
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
	if o.Flow.Over() { // followers learn its end when all is done
		f.changed.ring()
	} else {
		f.show(r)
	}
}

// show gives followers the present state of a flow. Called with f.mu held.
func (f *Flows) show(r *running) {
	page := r.shown.Page
	r.shown = r.order.Flow.View()
	if r.paged && !r.order.Flow.Over() {
		r.shown.Page = page
	}
	r.changed.ring()
	f.changed.ring()
}

// carry does the tasks of a flow, one after another, until the flow has ended.
func (f *Flows) carry(r *running) {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return
		}
		if len(r.tasks) == 0 {
			f.mu.Unlock()
			select {
			case <-r.more:
			case <-f.ctx.Done():
			}
			continue
		}
		t := r.tasks[0]
		r.tasks = r.tasks[1:]
		ctx, cancel := context.WithCancel(f.ctx)
		stale := t.turn != r.turn
		r.cancel = cancel
		f.mu.Unlock()
		ended := f.do(ctx, r, t, stale)
		cancel()
		if ended {
			return
		}
	}
}

// do does one task, and reports whether that ended the flow. It skips a task that a later turn has made needless,
// except tasks that end a flow or that a person waits for.
func (f *Flows) do(ctx context.Context, r *running, t task, stale bool) (ended bool) {
	var e setup.Event
	switch {
	case t.Do == setup.Stop:
		if err := f.Servers.Stop(t.order.Flow.Server); err != nil && f.ctx.Err() == nil {
			f.Log.Warn(
				"stopping a server whose set-up has ended, ignoring",
				"server",
				t.order.Flow.Server,
				"error",
				err,
			)
		}
		return false
	case t.Do == setup.End:
		return f.end(r)
	case t.Do == setup.Store: // a person waits for the outcome
		f.store(t, stale)
		return false
	case stale:
		return false
	case t.Do == setup.Ask:
		return f.ask(r, t)
	case t.Do == setup.Install:
		err := f.Servers.Install(ctx, t.order.Flow.Package)
		e = outcome(f.Records, err, setup.Installed, setup.NotInstalled)
	case t.Do == setup.Write:
		e = outcome(f.Records, f.Servers.Write(t.order), setup.Written, setup.NotWritten)
	case t.Do == setup.Start:
		tools, err := f.Servers.Start(ctx, t.order.Flow.Server, t.Again)
		e = outcome(f.Records, err, setup.Listed, setup.NotStarted)
		if _, ended := errors.AsType[*Ended](err); ended {
			e.Kind = setup.Ended
		}
		if e.Tools = max(tools, 0); err == nil && tools == 0 {
			e.Kind = setup.NoneListed
		}
	case t.Do == setup.Verify:
		e = f.verify(ctx, t)
	}
	if err := f.event(r.id, e, nil, t.turn); err != nil && f.ctx.Err() == nil {
		f.Log.Error("a set-up does not go on", "server", t.order.Flow.Server, "error", err)
	}
	return false
}

func outcome(r Records, err error, good, bad setup.Kind) setup.Event {
	if err != nil {
		return setup.Event{Kind: bad, Words: cleaned(r, err.Error())}
	}
	return setup.Event{Kind: good}
}

// store puts a value into the vault, and tells the person the outcome after the flow has gone on.
func (f *Flows) store(t task, stale bool) {
	err := fmt.Errorf("%w: it has ended", control.ErrNoFlow)
	if !stale {
		err = f.Vault.Store(t.gift.uid, t.Key, t.gift.value)
	}
	terr := f.event(t.order.Flow.ID, outcome(f.Records, err, setup.Stored, setup.NotStored), nil, t.turn)
	if err == nil {
		err = terr
	}
	t.gift.stored <- err
}

func (f *Flows) verify(ctx context.Context, t task) setup.Event {
	p, err := f.Servers.Verify(ctx, t.order.Flow.Server)
	switch {
	case err != nil:
		return setup.Event{Kind: setup.NotStarted, Words: cleaned(f.Records, err.Error())}
	case p.Result == units.Invalid:
		return setup.Event{Kind: setup.Refused, Words: cleaned(f.Records, p.Words)}
	case p.Result == units.Verified:
		return setup.Event{Kind: setup.Verified, Tool: p.Tool}
	}
	return setup.Event{Kind: setup.Unverified, Words: cleaned(f.Records, p.Words)}
}

// ask opens the page of a flow that has one. It waits until the page is open, not for the person. If the secret has
// come into the vault meanwhile, ask asks nobody.
func (f *Flows) ask(r *running, t task) (ended bool) {
	if w := t.order.Flow.View().Wants; w != nil && !t.order.Flow.Again {
		stored, err := f.Vault.Stored([]string{w.Key})
		if err == nil && len(stored) > 0 {
			err = f.event(r.id, setup.Event{Kind: setup.Arrived, Key: w.Key}, nil, t.turn)
		}
		switch {
		case err != nil:
			f.Log.Warn("looking whether a secret has come meanwhile, ignoring", "key", w.Key, "error", err)
		case len(stored) > 0:
			return false
		}
	}
	f.mu.Lock()
	pages, wanted := f.pages, t.order.Flow.Page && !r.paged
	r.paged = r.paged || wanted
	f.mu.Unlock()
	if !wanted {
		return false
	}
	if pages == nil {
		f.Lost(r.id, "pfard opens no pages")
		return false
	}
	url, err := pages.Open(t.order)
	if err != nil {
		f.Lost(r.id, fmt.Sprintf("opening its page: %v", err))
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.paged && !r.order.Flow.Over() { // it may have closed at once
		r.shown.Page = url
		f.show(r)
	}
	return false
}

// end forgets a flow, and tells how it ended.
func (f *Flows) end(r *running) bool {
	f.mu.Lock()
	o, pages, paged := r.order, f.pages, r.paged
	f.mu.Unlock()
	if paged {
		pages.Close(r.id)
	}
	if err := f.kept.forget(r.id); err != nil {
		f.Log.Warn("forgetting a set-up that has ended, ignoring", "server", o.Flow.Server, "error", err)
	}
	method := "complete"
	if o.Flow.State != control.FlowComplete {
		method = "fail"
	}
	f.record(o.Flow, method)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, r.id)
	r.paged = false
	f.show(r)
	f.remember(r.shown)
	close(r.over)
	return true
}

// record writes the audit record of a flow, and logs if that fails.
func (f *Flows) record(o setup.Flow, method string) {
	if err := f.Records.Append(recordOf(o, method)); err != nil {
		f.Log.Error("recording a set-up", "server", o.Server, "method", method, "error", err)
	}
}

// NotShown is the number of tools of a server whose tools are hidden until its secrets are verified.
const NotShown = -1
