// Package notice tells the owner that calls wait for a person. It takes changes of approvals, and hands each notice to
// a process that reaches only the host of its declaration.
package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/question"
)

// Clock is the time that a Teller goes by.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Teller sends notices of calls that wait. It only follows the approvals: no call and no answer waits for it.
type Teller struct {
	dir   string // of the sockets: each called as its notice is, and those of chats
	log   *slog.Logger
	clock Clock

	mu    sync.Mutex
	all   []*receiver // in the order of their declarations
	calls []call      // that wait, the oldest first

	learnt chan struct{} // all has changed
	ended  chan ended
}

// call is one that waits, by its id among the approvals.
type call struct {
	id string
	inspector.WaitingCall
}

// receiver is one declared notice, with what its host has been told.
type receiver struct {
	inspector.External
	host   string          // or chat, in words
	socket string          // of the process that sends
	told   map[string]bool // calls that wait, by id
	due    time.Time       // of the next notice: not before
	busy   bool            // one is on its way
	state  operator.Notice
}

// ended is a notice that was sent, or could not be.
type ended struct {
	to    *receiver
	calls []string // ids
	err   error
}

// New returns a Teller that knows of nobody to tell, with the directory of the sockets.
func New(dir string, log *slog.Logger, clock Clock) *Teller {
	return &Teller{dir: dir, log: log, clock: clock, learnt: make(chan struct{}, 1), ended: make(chan ended)}
}

// Wall is the time of the machine.
func Wall() Clock { return Clock{Now: time.Now, After: time.After} }

// Learn replaces the receivers.
func (t *Teller) Learn(declared []inspector.External) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.all
	t.all = nil
	for _, e := range declared {
		same := func(r *receiver) bool { return reflect.DeepEqual(r.External, e) }
		if i := slices.IndexFunc(before, same); i >= 0 {
			t.all = append(t.all, before[i])
			continue
		}
		if e.Notice == nil {
			continue
		}
		host, socket := "the chat "+e.Notice.Chat, units.ChatNotices(t.dir, e.Notice.Chat)
		if e.Notice.Chat == "" {
			var err error
			if host, _, _, err = e.Egress(); err != nil {
				continue // it was declared, so this is none
			}
			socket = filepath.Join(t.dir, e.Name+".sock")
		}
		state := operator.Notice{Name: e.Name, Host: host}
		t.all = append(t.all, &receiver{External: e, host: host, socket: socket, told: map[string]bool{}, state: state})
	}
	select {
	case t.learnt <- struct{}{}:
	default:
	}
}

// Notices reports for each receiver when a notice was last sent, and why one failed.
func (t *Teller) Notices() []operator.Notice {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := []operator.Notice{}
	for _, r := range t.all {
		list = append(list, r.state)
	}
	return list
}

// Run tells until ctx ends, and returns when nothing of it is under way.
func (t *Teller) Run(ctx context.Context, approvals *approval.Store) {
	var sending sync.WaitGroup
	defer sending.Wait()
	for ctx.Err() == nil {
		now, changes, stop := approvals.Watch()
		t.mu.Lock()
		t.calls = nil
		t.mu.Unlock()
		for _, s := range now {
			t.change(operator.Event{Kind: s.State.String(), Approval: s})
		}
		t.follow(ctx, changes, &sending)
		stop()
	}
}

// follow tells of changes until their channel is closed, because this was too slow, or ctx ends.
func (t *Teller) follow(ctx context.Context, changes <-chan operator.Event, sending *sync.WaitGroup) {
	for {
		var wake <-chan time.Time
		if pause := t.send(ctx, sending); pause > 0 {
			wake = t.clock.After(pause)
		}
		select {
		case e, ok := <-changes:
			if !ok {
				return
			}
			t.change(e)
		case <-t.learnt:
		case e := <-t.ended:
			t.end(e)
		case <-wake:
		case <-ctx.Done():
			return
		}
	}
}

// change adds a call that waits, or removes one that was answered.
func (t *Teller) change(e operator.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = slices.DeleteFunc(t.calls, func(c call) bool { return c.id == e.Approval.ID })
	if e.Kind != operator.Pending.String() {
		return
	}
	q := e.Approval.Request
	w := inspector.WaitingCall{Client: q.Client, Server: q.Server, Effect: q.Facts.Effect.String(), Link: e.Approval.Link}
	if q.Method == "tools/call" {
		w.Tool = inspector.PlainName(q.Name)
	}
	t.calls = append(t.calls, call{e.Approval.ID, w})
}

// send begins a notice to each receiver whose turn it is. It returns how long until the next one's turn; 0: none has
// calls to hear of.
func (t *Teller) send(ctx context.Context, sending *sync.WaitGroup) (pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.all {
		for id := range r.told {
			if !slices.ContainsFunc(t.calls, func(c call) bool { return c.id == id }) {
				delete(r.told, id)
			}
		}
		untold := slices.DeleteFunc(slices.Clone(t.calls), func(c call) bool { return r.told[c.id] })
		if len(untold) == 0 || r.busy {
			continue
		}
		now := t.clock.Now()
		if wait := r.due.Sub(now); wait > 0 {
			if pause == 0 || wait < pause {
				pause = wait
			}
			continue
		}
		r.busy, r.due = true, now.Add(r.Notice.Every)
		e := ended{to: r}
		w := inspector.Waiting{Version: 1, Count: len(untold)}
		for _, c := range untold {
			r.told[c.id] = true
			e.calls = append(e.calls, c.id)
			if len(w.Calls) < inspector.MaxCalls {
				w.Calls = append(w.Calls, c.WaitingCall)
			}
		}
		sending.Go(func() {
			e.err = tell(ctx, r.socket, r.Timeout, w)
			select {
			case t.ended <- e:
			case <-ctx.Done():
			}
		})
	}
	return pause
}

// end records whether a notice was sent. The next notice names the calls of a failed one again.
func (t *Teller) end(e ended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := e.to
	r.busy = false
	if e.err == nil {
		if !r.state.Failed.IsZero() {
			t.log.Info("notices are sent again", "notice", r.Name, "host", r.host)
		}
		r.state.Sent, r.state.Failed, r.state.Why = t.clock.Now(), time.Time{}, ""
		return
	}
	for _, id := range e.calls {
		delete(r.told, id)
	}
	if r.state.Failed.IsZero() {
		r.state.Failed = t.clock.Now()
		t.log.Warn("a notice of a waiting call is not sent; trying again",
			"notice", r.Name, "host", r.host, "error", e.err.Error())
	}
	r.state.Why = e.err.Error()
}

// maxTold bounds the answer of a process, in bytes.
const maxTold = 4 << 10

// tell has a process send a notice, for so long at most.
func tell(ctx context.Context, socket string, within time.Duration, w inspector.Waiting) error {
	late := fmt.Errorf("the notice was not sent within %s", within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	answer, err := question.Ask(ctx, socket, b, maxTold)
	var told inspector.Told
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("the process that sends it cannot be asked: %w", err)
	case json.Unmarshal(answer, &told) != nil:
		return errors.New("the process that sends it gave no answer")
	case told.Error != "":
		return errors.New(told.Error)
	}
	return nil
}
