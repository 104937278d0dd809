package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/units/handover"
)

// Stores has servers stored for the next gateway, from before there is any.
func (r *Registry) Stores(s Store) { r.stored.to = s }

// Resume goes on with a process of a server's where another gateway stopped. A server is served at once as it was last
// known. A process of one session waits to be claimed. What cannot be gone on with is given up: its launcher hears
// that, and starts the server again.
func (r *Registry) Resume(ctx context.Context, name string, p keep.Process) error {
	begun := time.Now()
	u, listing, err := r.resumed(p)
	if err == nil && u.keptAs() != name {
		err = fmt.Errorf("the process is of %q", u.keptAs())
	}
	if err != nil {
		p.Close()
		return fmt.Errorf("going on with %q: %w", name, err)
	}
	r.stored.resume(name, u)
	c := handover.Accepted(p.Launcher)
	u.launcher = newLine(c, u.Done())
	if u.Server().Session != "" {
		r.sessions.orphan(u, c)
		return nil
	}
	u.Inherit()
	u.note = r.noteOf(u)
	if !r.table.adopt(u) {
		u.end(errShutdown)
		return nil
	}
	r.announce(c, u, listing, begun)
	begin := func(context.Context) (*Listing, error) {
		u.Resume()
		if proof, is := u.trial.now(); is.For != proof { // the gateway before this one was killed in between
			u.trial.request()
		}
		u.lists.again(0, AllKinds) // what changed in between may have gone untold
		return listing, nil
	}
	go during(ctx, c, func(ctx context.Context) { r.converse(ctx, c, u, begin) })
	return nil
}

// resumed makes an upstream of what is kept.
func (r *Registry) resumed(p keep.Process) (*Upstream, *Listing, error) {
	var s state
	if err := p.Memory.Read(&s); err != nil {
		return nil, nil, err
	}
	a, err := s.Offered.agreement()
	if err != nil {
		return nil, nil, fmt.Errorf("reading its capabilities: %w", err)
	}
	u := r.upstreams.connect(s.Server, p.Stdin, p.Stdout, p.Memory, 0)
	u.kept = true
	u.Agree(a, self(r.version, s.Server.Capabilities))
	listing := u.listing(s.Offered)
	u.lists.found = s.findings
	u.trial.proof, u.trial.is = s.Proof, s.Trial
	return u, listing, nil
}

// Claim gives a session the process of a server's back that it had with another gateway, false if that is not there.
func (r *Registry) Claim(ctx context.Context, server, handle string, clientOf ClientOf) (Own, *Upstream, bool) {
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	main := r.table.entries[server]
	if main == nil || main.served == nil {
		return Own{}, nil, false
	}
	return r.sessions.claim(ctx, main.upstream, handle, clientOf)
}

// launchSession serves the connection of a launcher whose server is for one session.
func (r *Registry) launchSession(ctx context.Context, c *handover.Conn, u *Upstream) {
	r.table.mu.Lock() // so that no edit comes between
	var now *handover.Server
	if e := r.table.entries[u.Server().Name]; e != nil {
		now = new(e.upstream.Server())
	}
	o, err := r.sessions.launch(u, now)
	r.table.mu.Unlock()
	if err != nil {
		u.end(err)
		r.stored.drop(u)
		u.log.Warn("refusing a launcher", "error", err.Error())
		return
	}
	r.sessions.converse(ctx, c, u, o, func(ctx context.Context) error { return r.sessions.greet(ctx, u, o) })
}
