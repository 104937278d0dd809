package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// Parts are what a Runner is made of.
type Parts struct {
	DB     *state.DB
	Caller Caller
	Limits Limits
	Now    func() time.Time   // nil: time.Now
	Clean  func([]byte) error // says why a text must not be written to the disk; nil: each may
	Log    *slog.Logger       // nil: slog.Default
	Over   Hearer             // nil: nobody
}

// Hearer hears of each run that is over, once, without a lock of the Runner.
type Hearer interface{ Over(id string) }

// Runner runs flows. It is safe for concurrent use.
type Runner struct {
	caller Caller
	rules  rules
	now    func() time.Time
	log    *slog.Logger
	disk   *disk
	hub    *hub
	ending chan struct{} // closed with the Runner
	movers sync.WaitGroup

	mu     sync.Mutex // held while a run changes, on the disk too
	life   life
	queue  queue
	moving map[string]*move // runs that are in the hands of a goroutine
	waits  map[string]*wait // runs that wait for an approval
	freed  []*wait          // runs that have waited, and do not any more, and those that are over: unlock tells of them
	ended  []string         // runs that are over: unlock tells the caller
}

// life says what a Runner does. Each state follows the one before.
type life int

const (
	opened life = iota
	started
	closing // no call begins
	closed  // and nothing is written
)

// move is a run in the hands of a goroutine.
type move struct {
	place
	client    string
	ctx       context.Context
	cancel    context.CancelFunc
	cancelled bool
}

// wait is a run that waits for an approval.
type wait struct {
	client string
	stop   func() // nil: not yet known
}

// New is a run that is to begin.
type New struct {
	Client, Session string
	Proof           string // how whoever begins it has shown that it is the client: without that, the run ends
	Plan            *flow.Plan
	Store           map[string]json.RawMessage // what the run begins with, beside what the flow says
	Label           gate.Label                 // of the store: the session's, from which it is
	Epoch           int64                      // of the session, read before Label; 0: not known
}

// Open reads what is on the disk. No run goes on before Start. A run whose call may have been sent, and writes, waits
// for its owner.
func Open(p Parts) (*Runner, error) {
	limits := p.Limits.complete()
	r := &Runner{
		caller: p.Caller, rules: rules{limits}, now: p.Now, log: p.Log,
		disk: &disk{db: p.DB, clean: p.Clean, limits: limits}, hub: newHub(p.Over), queue: newQueue(limits.Steps),
		moving: make(map[string]*move), waits: make(map[string]*wait), ending: make(chan struct{}),
	}
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	if err := r.recover(); err != nil {
		return nil, fmt.Errorf("reading the runs of flows: %w", err)
	}
	return r, nil
}

// recover finds out how each run stands that a gateway before has left.
func (r *Runner) recover() error {
	cut, err := r.disk.heads("state = 'cancelled' AND sent = 1")
	if err != nil {
		return err
	}
	for _, h := range cut {
		if err := r.disk.explain(h.id, "cancelled; "+inDoubt); err != nil {
			return err
		}
	}
	open, err := r.disk.heads(isOpen + "ORDER BY begun, id")
	if err != nil {
		return err
	}
	for _, h := range open {
		switch {
		case h.state == flows.Running && h.sent:
			err = r.disk.doubt(h.id, inDoubt+": say whether it is done, or is to be called again", r.now().UnixNano())
		case h.state == flows.Running:
			err = r.restarted(h)
		case h.state == flows.Waiting:
			r.queue.add(h.client, place{id: h.id})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inDoubt is why a run waits for its owner.
const inDoubt = "the gateway ended while its last call was on its way, and whether that was carried out is not known"

// restarted has a run go on that was at a call that only reads, or between two calls. A call that ends the gateway
// again and again is not made any more.
func (r *Runner) restarted(h head) error {
	n, err := r.disk.restart(h.id)
	if err != nil {
		return err
	}
	if n > r.rules.limits.Restarts {
		reason := fmt.Sprintf("the gateway ended %d times while the run was at this step", n)
		return r.disk.end(h.id, standing{state: flows.Failed, reason: reason}, r.now().UnixNano())
	}
	r.queue.add(h.client, place{id: h.id})
	return nil
}

// Start lets runs go on: clients, servers and approvals are there.
func (r *Runner) Start() {
	r.mu.Lock()
	defer r.unlock()
	if r.life == opened {
		r.life = started
		r.dispatch()
	}
}

// Begin writes a run down and lets it run. It returns the run's id, or an error, and then there is no run: of a plan or
// store that is too large or must not be written to the disk, of a label that is not known, and ErrFull.
func (r *Runner) Begin(n New) (id string, err error) {
	begun, plan, err := r.rules.fresh(n)
	if err != nil {
		return "", fmt.Errorf("beginning a run of flow %q: %w", n.name(), err)
	}
	r.mu.Lock()
	defer r.unlock()
	if r.life >= closing {
		return "", ErrClosed
	}
	if err := r.expire(); err != nil {
		return "", err
	}
	if err := r.disk.create(begun, plan, r.now().UnixNano()); err != nil {
		return "", fmt.Errorf("beginning a run of flow %q: %w", n.name(), err)
	}
	r.queue.add(n.Client, place{id: begun.id})
	r.dispatch()
	return begun.id, nil
}

func (n New) name() string {
	if n.Plan == nil {
		return ""
	}
	return n.Plan.Flow.Name
}

// fresh is a run before its first call. Its plan is the one that the disk will have.
func (l rules) fresh(n New) (*run, []byte, error) {
	switch {
	case n.Client == "" || n.Session == "":
		return nil, nil, errors.New("the run has no client or no session")
	case n.Plan == nil || len(n.Plan.Steps) == 0:
		return nil, nil, errors.New("the plan has no step")
	case !n.Label.Known():
		return nil, nil, fmt.Errorf("%q is an unknown label", n.Label)
	}
	raw, err := encode(n.Plan)
	if err != nil {
		return nil, nil, fmt.Errorf("writing its plan: %w", err)
	}
	if len(raw) > l.limits.Plan {
		return nil, nil, fmt.Errorf("the plan has %d bytes; the limit is %d: use fewer steps", len(raw), l.limits.Plan)
	}
	plan, err := decode(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("reading its plan: %w", err)
	}
	store := make(map[string]json.RawMessage)
	maps.Copy(store, plan.Flow.Store)
	maps.Copy(store, n.Store)
	for name, value := range store {
		if !json.Valid(value) {
			return nil, nil, fmt.Errorf("%q in the store is not JSON", name)
		}
	}
	if err := l.fits(store); err != nil {
		return nil, nil, err
	}
	return &run{
		id: audit.NewID(), client: n.Client, session: n.Session, proof: n.Proof, plan: plan, store: store, label: n.Label,
		epoch:    n.Epoch,
		standing: standing{state: flows.Running},
	}, raw, nil
}

// dispatch gives runs that are ready to goroutines. The lock is held.
func (r *Runner) dispatch() {
	for r.life == started {
		client, p, ok := r.queue.take()
		if !ok {
			return
		}
		m := &move{place: p, client: client}
		m.ctx, m.cancel = context.WithCancel(context.Background())
		r.moving[p.id] = m
		r.movers.Go(func() { r.drive(m) })
	}
}

// Close ends the Runner. Calls that are on their way have until ctx is done, and are then given up: after the next Open
// those that read are made again, and those that write have an unknown outcome.
func (r *Runner) Close(ctx context.Context) {
	r.mu.Lock()
	for id := range r.waits {
		r.unwait(id)
	}
	if r.life < closing {
		r.life = closing
		close(r.ending)
	}
	r.unlock()
	done := make(chan struct{})
	go func() {
		r.movers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.unlock()
	r.life = closed
	for _, m := range r.moving {
		m.cancel()
	}
}

// unwait says that a run does not wait for an approval any more. The lock is held.
func (r *Runner) unwait(id string) {
	if w := r.waits[id]; w != nil {
		delete(r.waits, id)
		r.freed = append(r.freed, w)
	}
}

// ended says that a run is over. The lock is held.
func ended(r *Runner, id string) {
	if r.hub.over != nil {
		r.freed = append(r.freed, &wait{stop: func() { r.hub.over.Over(id) }})
	}
}

// unlock frees the lock, and tells the caller of the approvals that nobody waits for any more, and of runs that are
// over: without the lock, for
// the caller has one of its own.
func (r *Runner) unlock() {
	freed, over := r.freed, r.ended
	r.freed, r.ended = nil, nil
	r.mu.Unlock()
	for _, w := range freed {
		if w.stop != nil {
			w.stop()
		}
	}
	hears, ok := r.caller.(Ended)
	for _, id := range over {
		if ok {
			hears.Ended(id)
		}
	}
}
