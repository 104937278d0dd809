package registry

import (
	"context"
)

// renew has pfard start a server again, if it wants to, because what it gave the server has changed, and if no request
// is under way. Until it is up, what stands for a server that sleeps has requests wait.
func (r *Registry) renew(u *Upstream) {
	before := r.yield(u)
	if before == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.limits.Handshake)
	defer cancel()
	err := r.waker.Sleep(ctx, u.Server().Name)
	if err == nil {
		u.log.Info("the server is started again", "reason", "its credentials have changed")
	} else {
		u.log.Info("the server goes on, though its credentials have changed", "reason", err.Error())
	}
	r.laid(u, before, err)
	if err != nil { // the end of the next request asks again
		u.Idle().WhenFree(func() { r.renew(u) })
	}
}

// yield is lull for a server that is to be started again. If requests are under way, the last one to end comes back
// here; so does the last session that has a process of its own.
func (r *Registry) yield(u *Upstream) (before *served) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[u.Server().Name]
	if e == nil || e.upstream != u || e.served == nil || !e.renews || e.laying != nil || r.closed || r.waker == nil {
		u.Idle().WhenFree(nil)
		return nil
	}
	if r.sessions.count(func(o *owned) bool { return o.main == u }) > 0 || !u.Idle().Yield(func() { r.renew(u) }) {
		return nil
	}
	return r.standIn(e, u)
}
