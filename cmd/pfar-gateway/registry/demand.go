package registry

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// A server on demand that sleeps stays in the catalogue: an Upstream stands for it that has what it last offered and
// takes no calls. Whoever has something for a server holds it first (Hold); if that fails it sleeps, and is woken
// (Wake).

// Waker starts servers on demand, and stops those that nobody needs: pfard does it.
type Waker interface {
	// Wake returns when the server is under way or, if it is offline, is to be tried now.
	Wake(ctx context.Context, server string) error
	Sleep(ctx context.Context, server string) error // returns when its stop is; an error means that it goes on
}

// demand starts servers that are wanted and puts those to sleep that nobody needs.
type demand struct {
	*table
	limits    *Limits
	upstreams *upstreams
	sessions  *sessions
	waker     Waker                    // nil: no server ever sleeps
	keeps     func(server string) bool // nil: nothing but requests keeps one awake
}

// Wakes sets who wakes servers, before the first comes up. What it says of them is told by OnDemand.
func (d *demand) Wakes(w Waker) { d.waker = w }

// Keeps has f asked whether something that is no request keeps a server awake. f must not call the registry.
func (d *demand) Keeps(f func(server string) bool) { d.keeps = f }

// OnDemand takes pfard's word on all servers on demand. It is called by one goroutine.
func (d *demand) OnDemand(list []control.OnDemand) {
	named := make(map[string]bool, len(list))
	var lay []handover.Server
	d.mu.Lock()
	for _, o := range list {
		named[o.Server.Name] = true
		if d.demanded(o) {
			lay = append(lay, o.Server)
		}
	}
	for name, e := range d.entries {
		e.renews = e.renews && named[name]
		if (e.returns || e.stays || e.offline || e.login) && !named[name] {
			e.returns, e.stays, e.offline = false, false, false
			e.waitsForLogin(false)
			d.publish(0)
		}
		if named[name] || e.sleeps == nil && !e.rests() {
			continue
		}
		e.sleeps, e.tried = nil, false
		if e.rests() || !e.upstream.Alive() { // or it runs by now, under another declaration
			d.takeDown(e, State{Reason: "the server's declaration has changed or is gone"})
		}
	}
	d.mu.Unlock()
	for _, server := range lay {
		d.lay(server)
	}
}

// demanded takes pfard's word on one server, and reports whether it is to be shown as one that sleeps. d.mu is held.
func (d *demand) demanded(o control.OnDemand) bool {
	e := d.entries[o.Server.Name]
	if stays := o.Down != "" && o.Stays; e != nil && (e.returns != o.Returns || e.stays != stays) {
		e.returns, e.stays = o.Returns, stays
		defer d.publish(0)
	}
	if e == nil && o.Returns { // it is shown once it is up
		return false
	}
	if e == nil {
		e = &entry{
			upstream: d.upstreams.asleep(o.Server, protocol.Agreement{}),
			state:    State{Since: time.Now(), Reason: fact(protocol.ErrAsleep), Starting: true},
		}
		d.entries[o.Server.Name] = e
		d.publish(0)
	}
	if e.offline != o.Offline || !e.next.Equal(o.Next) || e.login != o.Login || string(e.failed) != o.Failed {
		e.offline, e.next, e.failed = o.Offline, o.Next, failure.Class(o.Failed)
		if e.waitsForLogin(o.Login); o.Login {
			e.waking.finish(loginFirst(o.Server))
		}
		defer d.publish(0)
	}
	e.asksLater = o.AsksLater
	if e.renews = o.Renews; e.renews {
		go d.renew(e.upstream)
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
		state := State{Reason: standing(o.Down), Stopped: o.Stays}
		if o.Down == control.Offline {
			state.failed = cmp.Or(failure.Class(o.Failed), failure.NetworkError)
		}
		d.takeDown(e, state)
	default:
		e.sleeps, e.tried = nil, false
	}
	return false
}

// lay shows what a server that sleeps has last offered, or has it started once to learn that.
func (d *demand) lay(server handover.Server) {
	var u *Upstream
	var v reviewed
	if o, ok := d.reviewer.kept(server); ok {
		a, _ := o.agreement() // keep has written it
		u = d.upstreams.asleep(server, a)
		v = d.reviewer.review(u, u.listing(o))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[server.Name]
	switch {
	case e == nil || e.sleeps == nil || !reflect.DeepEqual(*e.sleeps, server) || e.upstream.Alive():
		return // it is otherwise by now
	case u == nil:
		d.learn(e)
		return
	}
	e.upstream, e.down, e.state = u, false, State{Up: true, Since: time.Now()}
	changed := d.serve(e, u, v)
	d.publish(changed)
	d.tell(Event{Server: server.Name, Changed: changed})
}

// learn has a server started of which nothing is known, if that has not been tried. d.mu is held.
func (d *demand) learn(e *entry) {
	if e.rests() { // what it offered under another declaration
		d.takeDown(e, State{Reason: fact(protocol.ErrAsleep), Starting: true})
	}
	if e.tried || e.waking.pending() || d.waker == nil {
		return
	}
	e.tried = true
	e.state = State{Since: time.Now(), Reason: "pfar starts the server to list its tools", Starting: true}
	d.publish(0)
	d.rouse(e).learns = true
}

// reviewAgain has a server looked at again of which the owner has accepted something, or does not any more.
func (d *demand) reviewAgain(server string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[server]; e != nil {
		e.upstream.lists.again(0, AllKinds)
		if e.rests() {
			go d.reviewAsleep(server)
		}
	}
}

// reviewAsleep shows what has been accepted of a server that sleeps since it was last looked at.
func (d *demand) reviewAsleep(server string) {
	d.mu.Lock()
	e := d.entries[server]
	if e == nil || !e.rests() {
		d.mu.Unlock()
		return
	}
	s := e.served
	d.mu.Unlock()
	v := d.reviewer.review(s.upstream, s.found)
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[server]; e != nil && e.rests() && e.served.upstream == s.upstream {
		changed := d.serve(e, s.upstream, v)
		d.publish(changed)
		d.tell(Event{Server: server, Changed: changed})
	}
}

// Wake has a server started that could not be held, and waits until it can be, or is found to be otherwise: the next
// look at the catalogue shows it. Whoever comes while it is started waits for the same start.
func (d *demand) Wake(ctx context.Context, u *Upstream) error {
	name := u.Server().Name
	d.mu.Lock()
	e := d.entries[name]
	if e == nil || !e.rests() {
		d.mu.Unlock()
		return nil
	}
	if d.closed || d.waker == nil {
		d.mu.Unlock()
		return unwoken(name, failure.Died, "server %q sleeps, and nothing is started any more", name)
	}
	w := e.waking
	if !w.pending() {
		w = d.rouse(e)
	}
	d.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
		return protocol.Interrupted(ctx)
	}
	switch {
	case failure.Of(w.err).Class == failure.Unauthorized:
		return w.err
	case w.err != nil:
		const text = "server %q slept, and starting it for this request failed: %v"
		return unwoken(name, failure.Of(w.err).Class, text, name, w.err)
	}
	return nil
}

// unwoken is the error of a request whose server goes on to sleep. It has the class of the start that failed.
func unwoken(server string, class failure.Class, format string, args ...any) error {
	return failure.As(cmp.Or(class, failure.Died), server, jsonrpc.Errorf(protocol.CodeUnavailable, format, args...))
}

// rouse begins to wake a server. d.mu is held.
func (d *demand) rouse(e *entry) *waking {
	w := &waking{done: make(chan struct{})}
	e.waking = w
	go d.wake(e.upstream.Server().Name, w, e.laying)
	return w
}

// wake has a server started and waits until that has come to something. If pfard is being asked to stop it, that comes
// first: it does what it is asked last.
func (d *demand) wake(name string, w *waking, laying <-chan struct{}) {
	late := notReady(d.limits.Wake)
	ctx, cancel := context.WithTimeoutCause(context.Background(), d.limits.Wake, late)
	defer cancel()
	if laying != nil {
		<-laying
	}
	select {
	case <-w.done: // it goes on
		return
	default:
	}
	err := d.waker.Wake(ctx, name)
	if err == nil {
		select {
		case <-w.done:
			return
		case <-ctx.Done():
		}
	}
	why := refused(err)
	if ctx.Err() != nil {
		why = late
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[name]; w.pending() && e != nil && e.served == nil && !e.upstream.Alive() {
		e.state = State{Since: time.Now(), Reason: why, Stopped: true}
		d.publish(0)
	}
	server := handover.Server{Name: name}
	if e := d.entries[name]; e != nil {
		server = e.upstream.Server()
	}
	if login := unsigned(server, err); login != nil {
		w.finish(login)
	}
	w.finish(why)
}

// awake is called when a server is up. d.mu is held.
func (d *demand) awake(e *entry, u *Upstream) {
	u.untried.Store(e.waking.pending() && e.waking.learns)
	u.Idle().Touch()
	e.waking.finish(nil)
	if d.waker != nil && u.Server().OnDemand {
		d.idleLater(u, u.idleLimit())
	}
	if e.renews {
		go d.renew(u)
	}
}

func (d *demand) idleLater(u *Upstream, after time.Duration) {
	if after > 0 {
		time.AfterFunc(after, func() { d.checkIdle(u) })
	}
}

// checkIdle puts a server to sleep that nothing keeps awake, or comes back when that may be so.
func (d *demand) checkIdle(u *Upstream) {
	limit := u.idleLimit()
	if limit <= 0 || !u.Alive() {
		return
	}
	before, rest := d.lull(u, limit)
	if before == nil {
		d.idleLater(u, rest)
		return
	}
	d.layDown(u, before, "putting the server to sleep", "nobody needed it for "+limit.String())
}

// layDown has pfard stop a server that a stand-in has replaced, and reports whether it does. before is what was served.
func (d *demand) layDown(u *Upstream, before *served, what, why string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d.limits.Handshake)
	defer cancel()
	err := d.waker.Sleep(ctx, u.Server().Name)
	if err == nil {
		u.log.Info(what, "reason", why)
	} else {
		u.log.Info("the server goes on, though "+why, "reason", err.Error())
	}
	d.laid(u, before, err)
	return err == nil
}

// lull has what stands for a server that sleeps take its place, if nothing has kept it awake for long enough, and
// returns what was served before. Otherwise it returns how long that may still take; 0 if it is not served any more.
func (d *demand) lull(u *Upstream, limit time.Duration) (before *served, rest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[u.Server().Name]
	if e == nil || e.upstream != u || e.served == nil || d.closed {
		return nil, 0
	}
	kept := d.sessions.count(func(o *owned) bool { return o.server == u.Server().Name }) > 0 || d.keeps != nil && d.keeps(u.Server().Name)
	if rest = u.Idle().Rest(limit, kept); rest > 0 {
		return nil, rest
	}
	return d.standIn(e, u), 0
}

// standIn has what stands for a server that sleeps take the place of what is served, which it returns. d.mu is held.
func (d *demand) standIn(e *entry, u *Upstream) (before *served) {
	before = e.served
	s := *before
	s.upstream = d.upstreams.asleep(u.Server(), u.Agreed())
	s.upstream.lists.found.Hints = u.lists.now().Hints
	e.upstream, e.served, e.laying = s.upstream, &s, make(chan struct{})
	d.publish(0)
	return before
}

// laid takes pfard's answer on a server that is to sleep: after a refusal it goes on as it was.
func (d *demand) laid(u *Upstream, before *served, refused error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[u.Server().Name]
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
		d.takeDown(e, State{Reason: fact(u.because(errStopped)), Stopped: u.Stopping()})
		return
	}
	u.Idle().Wake()
	e.waking.finish(nil)
	d.publish(AllKinds)
	u.lists.again(0, AllKinds) // what is accepted may have changed in the meantime
	d.idleLater(u, u.idleLimit())
}

// down takes a server out of every list.
func (d *demand) down(u *Upstream, why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := u.Server().Name
	if e := d.entries[name]; e != nil && e.upstream == u {
		login := unsigned(u.Server(), why)
		if login != nil {
			e.waking.finish(login)
		}
		d.takeDown(e, State{Reason: fact(why), Stopped: u.Stopping(), Login: login != nil, failed: failure.Of(why).Class})
	}
}

// takeDown takes a server out of every list, and shows what it last offered if pfard says that it sleeps. d.mu is held.
func (d *demand) takeDown(e *entry, state State) {
	d.table.takeDown(e, state)
	if e.sleeps != nil {
		go d.lay(*e.sleeps)
	}
}
