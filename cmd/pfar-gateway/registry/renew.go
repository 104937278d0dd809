package registry

// renew has pfard start a server again, if it wants to, because what it gave the server has changed, and if no request
// is under way. Until it is up, what stands for a server that sleeps has requests wait.
func (d *demand) renew(u *Upstream) {
	before := d.yield(u)
	if before == nil {
		return
	}
	const why = "the server's credentials have changed"
	if !d.layDown(u, before, "the server is started again", why) { // the end of the next request asks again
		u.Idle().WhenFree(func() { d.renew(u) })
	}
}

// yield is lull for a server that is to be started again. If requests are under way, the last one to end comes back
// here; so does the last session that has a process of its own.
func (d *demand) yield(u *Upstream) (before *served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[u.Server().Name]
	if e == nil || e.upstream != u || e.served == nil || !e.renews || e.laying != nil || d.closed || d.waker == nil {
		u.Idle().WhenFree(nil)
		return nil
	}
	if d.sessions.count(func(o *owned) bool { return o.main == u }) > 0 || !u.Idle().Yield(func() { d.renew(u) }) {
		return nil
	}
	return d.standIn(e, u)
}
