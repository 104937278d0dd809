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
		err = fmt.Errorf("it is %q", u.keptAs())
	}
	if err != nil {
		p.Close()
		return fmt.Errorf("going on with %q: %w", name, err)
	}
	r.stored.resume(name, u)
	c := handover.Accepted(p.Launcher)
	u.hangUp = func() { c.Close() }
	if u.Server().Session != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.orphans[u.Server().Session] = orphan{u, c}
		return nil
	}
	u.Inherit()
	u.note = r.noteOf(u)
	if !r.adopt(u) {
		u.end(errShutdown)
		return nil
	}
	r.announce(c, u, listing, begun)
	begin := func(context.Context) (*Listing, error) {
		u.Resume()
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
	return u, listing, nil
}

// orphan is a process of one session whose session has not been found yet.
type orphan struct {
	u *Upstream
	c *handover.Conn
}

// Claim gives a session the process of a server's back that it had with another gateway, false if that is not there.
func (r *Registry) Claim(ctx context.Context, server, handle string, clientOf func(handover.Server) (SessionClient, error)) (Own, *Upstream, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, main := r.orphans[handle], r.entries[server]
	if found.u == nil || found.u.Server().Name != server || main == nil || main.served == nil {
		return Own{}, nil, false
	}
	client, err := clientOf(found.u.Server())
	if err != nil {
		return Own{}, nil, false
	}
	delete(r.orphans, handle)
	u := found.u
	o := &owned{server: server, handle: handle, main: main.upstream, client: client, ready: make(chan struct{}), launched: u, up: u}
	r.owned[handle] = o
	u.Agree(u.Agreed(), client.Client)
	u.Inherit()
	u.amend(main.upstream.Server())
	r.assign(u, o)
	begin := func(context.Context) error {
		u.Resume()
		go u.prove()
		return nil
	}
	go during(ctx, found.c, func(ctx context.Context) { r.converseOwn(ctx, found.c, u, o, begin) })
	return Own{o}, u, true
}

// Abandon ends the processes that no session has claimed.
func (r *Registry) Abandon() {
	r.mu.Lock()
	orphans := r.orphans
	r.orphans = make(map[string]orphan)
	r.mu.Unlock()
	for handle, o := range orphans {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), r.limits.Handshake)
			defer cancel()
			if r.opener != nil {
				if err := r.opener.Close(ctx, o.u.Server().Name, handle); err != nil {
					o.u.log.Warn("ending a process whose session is not known, ignoring", "error", err.Error())
				}
			}
			o.u.end(errSessionOver)
			r.stored.drop(o.u)
			o.c.Close()
		}()
	}
}
