// Package setups carries set-ups out: orders and answers of people in, servers that run with the right secrets out.
package setups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/setup"
)

// Vault is the part of the vault that set-ups use.
type Vault interface {
	Stored(keys []string) ([]string, error) // those of the keys that are in it
	Store(uid int, key string, v Value) error
}

// Servers installs packages, writes declarations, and starts and stops servers for set-ups. A method without a context
// returns soon.
type Servers interface {
	Install(ctx context.Context, pkg string) error
	Write(o Order) error
	Start(ctx context.Context, server string, again bool) (tools int, err error) // returns when it runs
	Verify(ctx context.Context, server string) (Proof, error)
	Stop(server string) error
}

// Pages open one-time pages, each by a process of its own. A page follows its flow by Flows.Follow, brings a person's
// answers to Flows.Supply, and says by Flows.Lost that it has closed.
type Pages interface {
	Open(o Order) (url string, err error) // returns when it can be used
	Close(flow string)
}

// Clock is the wall clock: it goes on while the machine sleeps, and it jumps when somebody sets it.
type Clock interface {
	Now() time.Time
	Wake(at time.Time) error // calls Flows.Due then, or when somebody sets the clock; zero: never
}

// Records writes audit records, and removes secrets and control characters from texts.
type Records interface {
	Append(r audit.Record) error
	Clean(text string) string
}

// Value is a secret on its way from a person to the vault.
type Value struct {
	Text  string
	OAuth bool // a token set in JSON
}

// Proof is what a test call has shown about the secrets of a server. The zero value means that nothing is known.
type Proof struct {
	Result string // as units.Verification has it
	Tool   string
	Words  string
}

// Ended is the error of a start at which the server crashed.
type Ended struct{ Err error }

func (e *Ended) Error() string { return e.Err.Error() }
func (e *Ended) Unwrap() error { return e.Err }

// Order is what a flow has to do. pfard keeps it on the disk until the flow has ended. It holds no secret.
type Order struct {
	Flow setup.Flow `json:"flow"`

	Text []byte `json:"text,omitempty"` // of the declaration; none: the one that is there stays, or the service's is made
	Old  string `json:"old,omitempty"`  // control.DigestOf the text that it replaces
	Made bool   `json:"made,omitempty"` // the text is made of the service's entry when its secrets are known

	Answers map[string]string `json:"answers,omitempty"` // to the questions of that entry
	UID     int               `json:"uid"`               // who asked
	Client  bool              `json:"client,omitempty"`  // by a client of the gateway
	Chat    string            `json:"chat,omitempty"`    // in that chat of chat.d

	Gentle bool `json:"-"` // it ends no set-up of another server
}

// World is everything around the flows.
type World struct {
	Log     *slog.Logger
	Dir     string // of what is kept
	Vault   Vault
	Servers Servers
	Records Records
	Clock   Clock
}

// Flows are the set-ups that are under way.
type Flows struct {
	World
	kept folder

	mu     sync.Mutex
	pages  Pages // nil: there are none
	closed bool
	ctx    context.Context
	stop   func()
	of     map[string]*running // by ID
	ended  map[string]past     // by principal, the last one

	changed bell // rings when a flow comes, changes or ends
}

// New returns the flows of a pfard. Resume takes over those of an earlier one.
func New(w World) *Flows {
	f := &Flows{
		World: w, kept: folder{w.Dir, durable.WriteFile}, of: map[string]*running{}, ended: map[string]past{},
		changed: make(bell),
	}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f
}

// UsePages has pages opened from now on.
func (f *Flows) UsePages(p Pages) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages = p
}

// HasPages reports whether pages can be opened.
func (f *Flows) HasPages() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pages != nil
}

// Close leaves all flows as they are, for the next pfard.
func (f *Flows) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.stop()
	for _, r := range f.of {
		r.turn++ // outcomes of what is under way no longer count
		r.changed.ring()
	}
}

var errEnding = errors.New("pfard is ending; the set-up goes on when it is started again")

const (
	maxFlows = 64 // of all principals
	maxEnded = 64
)

// Begin begins the flow of an order, after it has ended the principal's other flow. It ignores the ID in the order.
func (f *Flows) Begin(o Order) (id string, err error) {
	o.Flow.ID, o.Flow.State = newID(), control.FlowStart
	for {
		before, err := f.enter(o)
		if err != nil {
			return "", err
		}
		if before == nil {
			return o.Flow.ID, f.begin(o)
		}
		_ = f.event(before.id, setup.Event{Kind: setup.Superseded}, nil, anyTurn) // it may have ended meanwhile
		select {
		case <-before.over:
		case <-f.ctx.Done():
			return "", errEnding
		}
	}
}

// enter adds the flow of an order, or returns another one that has to end first. A flow of a client or a chat gives way
// to a user's flow for the same server. A gentle order is refused if it would end a flow of another server.
func (f *Flows) enter(o Order) (before *running, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errEnding
	}
	for _, r := range f.of {
		has := r.order.Flow
		own := has.Principal == o.Flow.Principal
		if has.Server == o.Flow.Server && !own && (o.yields() || !r.order.yields()) {
			return nil, fmt.Errorf("%w: %s sets up %q", control.ErrBusy, has.Principal, has.Server)
		}
		if own && o.Gentle && has.Server != o.Flow.Server {
			const words = "%w: another set-up of yours (%s) is under way; finish it with pfar add %[2]s, or cancel it " +
				"with pfar add --cancel"
			return nil, fmt.Errorf(words, control.ErrBusy, has.Server)
		}
		if own || has.Server == o.Flow.Server {
			before = r
		}
	}
	if before != nil {
		return before, nil
	}
	if len(f.of) >= maxFlows {
		return nil, fmt.Errorf("%w: %d set-ups are under way", control.ErrBusy, len(f.of))
	}
	f.of[o.Flow.ID] = newRunning(o)
	return nil, nil
}

// begin records that a flow begins, keeps it, and takes its first step.
func (f *Flows) begin(o Order) error {
	f.mu.Lock()
	r := f.of[o.Flow.ID]
	f.mu.Unlock()
	stored, err := storedOf(f.Vault, o.Flow)
	if err == nil {
		if err = f.Records.Append(recordOf(o.Flow, "begin")); err != nil {
			err = fmt.Errorf("%w; without a record no set-up is begun", err)
		}
	}
	if err == nil {
		err = f.event(o.Flow.ID, setup.Event{Kind: setup.Begun, Stored: stored}, nil, anyTurn)
	}
	if err != nil {
		_ = f.kept.forget(o.Flow.ID) // what is left says that it has failed
		f.leave(r)
		return err
	}
	go f.carry(r)
	return nil
}

// leave removes a flow that has not done anything.
func (f *Flows) leave(r *running) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, r.id)
	f.changed.ring()
	close(r.over)
}

// Of returns the flow of a principal.
func (f *Flows) Of(principal string) (id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, r := range f.of {
		if r.order.Flow.Principal == principal {
			return id, nil
		}
	}
	if last, ok := f.ended[principal]; ok {
		return "", fmt.Errorf("%w; the last one of %s, of %q, is %s", control.ErrNoFlow, principal, last.Server,
			strings.TrimSuffix(string(last.State)+": "+last.Detail, ": "))
	}
	return "", fmt.Errorf("%w of %s", control.ErrNoFlow, principal)
}

// Follow sends the state of a flow now and after each change, until the flow or ctx has ended. It never ends the flow.
// If withPage is set, the state has the page's URL.
func (f *Flows) Follow(ctx context.Context, id string, withPage bool, send func(control.Flow) error) error {
	f.mu.Lock()
	r := f.of[id]
	f.mu.Unlock()
	if r == nil { // it may have ended already
		now, err := f.look(id)
		if err != nil {
			return err
		}
		return send(now)
	}
	for {
		f.mu.Lock()
		now, changed, closed := r.shown, r.changed, f.closed
		f.mu.Unlock()
		if closed {
			return errEnding
		}
		if !withPage {
			now.Page = ""
		}
		if err := send(now); err != nil || now.Over() {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Answer is what a person does about a flow.
type Answer struct {
	control.FlowAnswer
	Value *Value // nil: none came
	UID   int    // who brings it
}

// Supply takes an answer, waits until it has had its effect, and returns the flow. An error about a value is for the
// person who gave it; the flow waits as before.
func (f *Flows) Supply(a Answer) (control.Flow, error) {
	if err := ofChat(f, a.FlowAnswer); err != nil {
		return control.Flow{}, err
	}
	e := setup.Event{Kind: setup.Confirmed, Key: a.Key}
	switch {
	case a.Cancel || a.Value != nil && setup.Cancels(a.Value.Text) && !(setup.Skips(a.Value.Text) && f.optional(a.ID)):
		e.Kind, a.Value = setup.Cancelled, nil
	case a.Skip || a.Value != nil && setup.Skips(a.Value.Text):
		e.Kind, a.Value = setup.Skipped, nil
	case a.Value != nil:
		e.Kind = setup.Value
	}
	if a.Value == nil {
		if err := f.event(a.ID, e, nil, anyTurn); err != nil {
			return control.Flow{}, err
		}
		return f.look(a.ID)
	}
	given := &gift{value: *a.Value, uid: a.UID, stored: make(chan error, 1)}
	if err := f.event(a.ID, e, given, anyTurn); err != nil {
		return control.Flow{}, err
	}
	select {
	case err := <-given.stored:
		if err != nil {
			return control.Flow{}, err
		}
	case <-f.ctx.Done():
		return control.Flow{}, errEnding
	}
	return f.look(a.ID)
}

// Arrived tells the flows that wait for the secret of a key that it is in the vault now.
func (f *Flows) Arrived(key string) {
	f.mu.Lock()
	var waiting []string
	for id, r := range f.of {
		if w := r.order.Flow.View().Wants; w != nil && w.Key == key {
			waiting = append(waiting, id)
		}
	}
	f.mu.Unlock()
	for _, id := range waiting {
		if err := f.event(id, setup.Event{Kind: setup.Arrived, Key: key}, nil, anyTurn); err != nil {
			f.Log.Warn("a set-up does not take a secret that was stored", "key", key, "error", err)
		}
	}
}

// UnderWay returns the set-ups that are under way, sorted by server and without their pages' URLs, and a channel that
// is closed when one of them changes.
func UnderWay(f *Flows) (list []control.Flow, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.of {
		if r.order.Flow.Over() { // followers learn its end when all is done
			continue
		}
		now := r.shown
		now.Page, now.Paged = "", now.Page != ""
		list = append(list, now)
	}
	slices.SortFunc(list, func(a, b control.Flow) int {
		return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.ID, b.ID))
	})
	return list, f.changed
}

// SetsUp reports whether a set-up of a server is under way.
func (f *Flows) SetsUp(server string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.of {
		if r.order.Flow.Server == server {
			return true
		}
	}
	return false
}

// optional reports whether a flow waits for a secret that may be left out.
func (f *Flows) optional(id string) bool {
	now, err := f.look(id)
	return err == nil && now.Wants != nil && now.Wants.Optional
}

// look returns the state of a flow for people, without its page.
func (f *Flows) look(id string) (control.Flow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.of[id]; r != nil {
		return r.order.Flow.View(), nil
	}
	for _, last := range f.ended {
		if last.ID == id {
			return last.Flow, nil
		}
	}
	return control.Flow{}, fmt.Errorf("%w: %q", control.ErrNoFlow, id)
}

// Lost records that the page of a flow has closed before its flow ended. A flow that waits for a person fails then. Any
// other flow goes on, and opens another page when it asks again.
func (f *Flows) Lost(id, words string) {
	f.mu.Lock()
	if r := f.of[id]; r != nil {
		r.paged, r.shown.Page = false, ""
		f.changed.ring()
	}
	f.mu.Unlock()
	e := setup.Event{Kind: setup.PageLost, Words: cleaned(f.Records, words)}
	_ = f.event(id, e, nil, anyTurn) // no person waits for it
}

// Due ends the flows whose deadline has passed, and sets the clock for the next deadline.
func (f *Flows) Due() {
	now := f.Clock.Now()
	f.mu.Lock()
	var late []string
	for id, r := range f.of {
		if at := r.order.Flow.Deadline; !at.IsZero() && !now.Before(at) {
			late = append(late, id)
		}
	}
	f.mu.Unlock()
	for _, id := range late {
		_ = f.event(id, setup.Event{Kind: setup.Late}, nil, anyTurn)
	}
	f.wake()
}

// wake sets the clock for the next deadline.
func (f *Flows) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var next time.Time
	for _, r := range f.of {
		if at := r.order.Flow.Deadline; !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if err := f.Clock.Wake(next); err != nil {
		f.Log.Error("setting the clock for the deadline of a set-up", "error", err)
	}
}

// cleaned returns untrusted words as pfard may keep and show them.
func cleaned(r Records, text string) string {
	text = r.Clean(text)
	if all := []rune(text); len(all) > maxWords {
		return string(all[:maxWords]) + "…"
	}
	return text
}

const maxWords = 500

// recordOf returns the audit record of a flow.
func recordOf(f setup.Flow, method string) audit.Record {
	return audit.Record{
		Kind: audit.SetUp, Method: method, Server: f.Server, Subject: f.Service, User: f.Principal,
		New: string(f.State), Outcome: string(f.Reason), Reason: f.Detail,
	}
}

// remember keeps how the last flow of a principal has ended. If there are too many, it drops any one of them. Called
// with f.mu held.
func (f *Flows) remember(now control.Flow) {
	now.Page = ""
	if _, has := f.ended[now.Principal]; !has && len(f.ended) >= maxEnded {
		for principal := range f.ended {
			delete(f.ended, principal)
			break
		}
	}
	f.ended[now.Principal] = past{now, f.Clock.Now()}
}
