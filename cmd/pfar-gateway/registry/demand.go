package registry

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
)

// A server on demand that sleeps stays in the catalogue: an Upstream stands for it that has what it last offered and
// takes no calls. Whoever has something for a server holds it first (Hold); if that fails it sleeps, and is woken
// (Wake).

// Waker starts servers on demand, and stops those that nobody needs: pfard does it.
type Waker interface {
	Wake(ctx context.Context, server string) error  // returns when the server is under way
	Sleep(ctx context.Context, server string) error // returns when its stop is; an error means that it goes on
}

// Wakes sets who wakes servers, before the first comes up. What it says of them is told by OnDemand.
func (r *Registry) Wakes(w Waker) { r.waker = w }

// Keeps has f asked whether something that is no request keeps a server awake. f must not call the registry.
func (r *Registry) Keeps(f func(server string) bool) { r.keeps = f }

// demand is what is known of a server that calls start.
type demand struct {
	sleeps  *handover.Server // its declaration, if pfard says that it sleeps
	tried   bool             // it has been started to learn what it offers
	waking  *waking          // the newest
	laying  chan struct{}    // closed when pfard has answered whether it puts it to sleep; nil: it is not asked
	returns bool             // pfard is starting it again: requests wait for it
	stays   bool             // pfard has said that it is down until somebody starts it
	renews  bool             // pfard wants to start it again when no request is under way
}

// waking is the way from the first call that wants a server to its being up, or not. It belongs to the registry's lock,
// but for done, and err after that is closed.
type waking struct {
	learns bool // nobody waits for it: it is to learn what the server offers
	over   bool
	err    error
	done   chan struct{}
}

func (w *waking) pending() bool { return w != nil && !w.over }

func (w *waking) finish(err error) {
	if w.pending() {
		w.over, w.err = true, err
		close(w.done)
	}
}

// learnedRest is for how long a server runs on that was started only to learn what it offers.
const learnedRest = 2 * time.Second

func (u *Upstream) isAsleep() bool { return errors.Is(u.Why(), protocol.ErrAsleep) }

// rests reports whether what is served is of a server that sleeps, or did so until it was woken.
func (e *entry) rests() bool { return e.served != nil && e.served.upstream.isAsleep() }

// Hold keeps a server awake, and from being started again, until Release. It reports false if the server sleeps.
func (u *Upstream) Hold() bool {
	if !u.Idle().Hold() {
		return false
	}
	if u.untried.Load() {
		u.untried.Store(false)
	}
	return true
}

// idleLimit is how long nothing has to keep the server awake until it is put to sleep; 0: it is not.
func (u *Upstream) idleLimit() time.Duration {
	if u.untried.Load() {
		return learnedRest
	}
	return u.Server().IdleTimeout
}

// OnDemand takes pfard's word on all servers on demand. It is called by one goroutine.
func (r *Registry) OnDemand(list []control.OnDemand) {
	named := make(map[string]bool, len(list))
	var lay []handover.Server
	r.mu.Lock()
	for _, o := range list {
		named[o.Server.Name] = true
		if r.demanded(o) {
			lay = append(lay, o.Server)
		}
	}
	for name, e := range r.entries {
		e.renews = e.renews && named[name]
		if (e.returns || e.stays) && !named[name] {
			e.returns, e.stays = false, false
			r.publish(0)
		}
		if named[name] || e.sleeps == nil && !e.rests() {
			continue
		}
		e.sleeps, e.tried = nil, false
		if e.rests() || !e.upstream.Alive() { // or it runs by now, under another declaration
			r.takeDown(e, State{Reason: "its declaration has changed or is gone"})
		}
	}
	r.mu.Unlock()
	for _, server := range lay {
		r.lay(server)
	}
}

// demanded takes pfard's word on one server, and reports whether it is to be shown as one that sleeps. r.mu is held.
func (r *Registry) demanded(o control.OnDemand) bool {
	e := r.entries[o.Server.Name]
	if stays := o.Down != "" && o.Stays; e != nil && (e.returns != o.Returns || e.stays != stays) {
		e.returns, e.stays = o.Returns, stays
		defer r.publish(0)
	}
	if e == nil && o.Returns { // it is shown once it is up
		return false
	}
	if e == nil {
		e = &entry{upstream: r.upstreams.asleep(o.Server, Agreement{}), state: State{Since: time.Now(), Reason: protocol.ErrAsleep.Error(), Starting: true}}
		r.entries[o.Server.Name] = e
		r.publish(0)
	}
	if e.renews = o.Renews; e.renews {
		go r.renew(e.upstream)
	}
	switch {
	case o.Sleeps:
		if e.sleeps != nil && reflect.DeepEqual(*e.sleeps, o.Server) {
			return false
		}
		e.sleeps = &o.Server
		return !e.rests() || !reflect.DeepEqual(e.served.declared, o.Server)
	case o.Down != "" && (e.upstream.isAsleep() || e.rests() || e.waking.pending()): // what ran says for itself how it ended
		e.sleeps, e.tried = nil, false
		r.takeDown(e, State{Reason: o.Down, Stopped: o.Stays})
	default:
		e.sleeps, e.tried = nil, false
	}
	return false
}

// lay shows what a server that sleeps has last offered, or has it started once to learn that.
func (r *Registry) lay(server handover.Server) {
	var u *Upstream
	var v reviewed
	if o, ok := r.reviewer.kept(server); ok {
		a, _ := o.agreement() // keep has written it
		u = r.upstreams.asleep(server, a)
		v = r.reviewer.review(u, u.listing(o))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[server.Name]
	switch {
	case e == nil || e.sleeps == nil || !reflect.DeepEqual(*e.sleeps, server) || e.upstream.Alive():
		return // it is otherwise by now
	case u == nil:
		r.learn(e)
		return
	}
	e.upstream, e.down, e.state = u, false, State{Up: true, Since: time.Now()}
	changed := r.serve(e, u, v)
	r.publish(changed)
	r.tell(Event{Server: server.Name, Changed: changed})
}

// learn has a server started of which nothing is known, if that has not been tried. r.mu is held.
func (r *Registry) learn(e *entry) {
	if e.rests() { // what it offered under another declaration
		r.takeDown(e, State{Reason: protocol.ErrAsleep.Error(), Starting: true})
	}
	if e.tried || e.waking.pending() || r.waker == nil {
		return
	}
	e.tried = true
	e.state = State{Since: time.Now(), Reason: "it is started to learn what it offers", Starting: true}
	r.publish(0)
	r.rouse(e).learns = true
}

// reviewAsleep shows what has been accepted of a server that sleeps since it was last looked at.
func (r *Registry) reviewAsleep(server string) {
	r.mu.Lock()
	e := r.entries[server]
	if e == nil || !e.rests() {
		r.mu.Unlock()
		return
	}
	s := e.served
	r.mu.Unlock()
	v := r.reviewer.review(s.upstream, s.found)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[server]; e != nil && e.rests() && e.served.upstream == s.upstream {
		changed := r.serve(e, s.upstream, v)
		r.publish(changed)
		r.tell(Event{Server: server, Changed: changed})
	}
}

// Wake has a server started that could not be held, and waits until it can be, or is found to be otherwise: the next
// look at the catalogue shows it. Whoever comes while it is started waits for the same start.
func (r *Registry) Wake(ctx context.Context, u *Upstream) error {
	name := u.Server().Name
	r.mu.Lock()
	e := r.entries[name]
	if e == nil || !e.rests() {
		r.mu.Unlock()
		return nil
	}
	if r.closed || r.waker == nil {
		r.mu.Unlock()
		return jsonrpc.Errorf(CodeUnavailable, "server %q sleeps, and nothing is started any more", name)
	}
	w := e.waking
	if !w.pending() {
		w = r.rouse(e)
	}
	r.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		return protocol.Interrupted(ctx)
	}
	if w.err != nil {
		return jsonrpc.Errorf(CodeUnavailable, "server %q slept, and starting it for this request failed: %v", name, w.err)
	}
	return nil
}

// rouse begins to wake a server. r.mu is held.
func (r *Registry) rouse(e *entry) *waking {
	w := &waking{done: make(chan struct{})}
	e.waking = w
	go r.wake(e.upstream.Server().Name, w, e.laying)
	return w
}

// wake has a server started and waits until that has come to something. If pfard is being asked to stop it, that comes
// first: it does what it is asked last.
func (r *Registry) wake(name string, w *waking, laying <-chan struct{}) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.limits.Wake, fmt.Errorf("it was not ready within %v", r.limits.Wake))
	defer cancel()
	if laying != nil {
		<-laying
	}
	select {
	case <-w.done: // it goes on
		return
	default:
	}
	err := r.waker.Wake(ctx, name)
	if err == nil {
		select {
		case <-w.done:
			return
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[name]; w.pending() && e != nil && e.served == nil && !e.upstream.Alive() {
		e.state = State{Since: time.Now(), Reason: err.Error(), Stopped: true}
		r.publish(0)
	}
	w.finish(err)
}

// awake is called when a server is up. r.mu is held.
func (r *Registry) awake(e *entry, u *Upstream) {
	u.untried.Store(e.waking.pending() && e.waking.learns)
	u.Idle().Touch()
	e.waking.finish(nil)
	if r.waker != nil && u.Server().OnDemand {
		r.idleLater(u, u.idleLimit())
	}
	if e.renews {
		go r.renew(u)
	}
}

func (r *Registry) idleLater(u *Upstream, after time.Duration) {
	if after > 0 {
		time.AfterFunc(after, func() { r.checkIdle(u) })
	}
}

// checkIdle puts a server to sleep that nothing keeps awake, or comes back when that may be so.
func (r *Registry) checkIdle(u *Upstream) {
	limit := u.idleLimit()
	if limit <= 0 || !u.Alive() {
		return
	}
	before, rest := r.lull(u, limit)
	if before == nil {
		r.idleLater(u, rest)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.limits.Handshake)
	defer cancel()
	err := r.waker.Sleep(ctx, u.Server().Name)
	if err == nil {
		u.log.Info("putting the server to sleep", "reason", "nobody needed it for "+limit.String())
	} else {
		u.log.Info("the server goes on, though nobody needs it", "reason", err.Error())
	}
	r.laid(u, before, err)
}

// lull has what stands for a server that sleeps take its place, if nothing has kept it awake for long enough, and
// returns what was served before. Otherwise it returns how long that may still take; 0 if it is not served any more.
func (r *Registry) lull(u *Upstream, limit time.Duration) (before *served, rest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[u.Server().Name]
	if e == nil || e.upstream != u || e.served == nil || r.closed {
		return nil, 0
	}
	kept := r.sessions.count(func(o *owned) bool { return o.server == u.Server().Name }) > 0 || r.keeps != nil && r.keeps(u.Server().Name)
	if rest = u.Idle().Rest(limit, kept); rest > 0 {
		return nil, rest
	}
	return r.standIn(e, u), 0
}

// standIn has what stands for a server that sleeps take the place of what is served, which it returns. r.mu is held.
func (r *Registry) standIn(e *entry, u *Upstream) (before *served) {
	before = e.served
	s := *before
	s.upstream = r.upstreams.asleep(u.Server(), u.Agreed())
	s.upstream.lists.found.Hints = u.lists.now().Hints
	e.upstream, e.served, e.laying = s.upstream, &s, make(chan struct{})
	r.publish(0)
	return before
}

// laid takes pfard's answer on a server that is to sleep: after a refusal it goes on as it was.
func (r *Registry) laid(u *Upstream, before *served, refused error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[u.Server().Name]
	if e == nil || e.laying == nil {
		return
	}
	defer close(e.laying) // whoever then goes on to wake it finds out first that it need not
	e.laying = nil
	if refused == nil || !e.upstream.isAsleep() {
		return
	}
	e.upstream, e.served = u, before
	if !u.Alive() {
		r.takeDown(e, State{Reason: u.because(errStopped).Error(), Stopped: u.Stopping()})
		return
	}
	u.Idle().Wake()
	e.waking.finish(nil)
	r.publish(AllKinds)
	u.lists.again(0, AllKinds) // what is accepted may have changed in the meantime
	r.idleLater(u, u.idleLimit())
}
