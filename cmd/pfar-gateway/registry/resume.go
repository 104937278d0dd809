package registry

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/transport"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// Store is where descriptors outlive this process: the service manager's.
type Store interface {
	Keep(name string, of ...syscall.Conn) error
	Forget(name string) error
}

// stored are the processes of servers that the next gateway is to go on with.
type stored struct {
	store Store // nil: there is none
	mu    sync.Mutex
	by    map[string]*Upstream // by the name that they are stored under
}

// maxKept bounds them: each takes four descriptors.
const maxKept = (units.MaxStored - units.OwnStored) / 4

// Stores has servers stored for the next gateway, from before there is any.
func (r *Registry) Stores(s Store) { r.stored = stored{store: s, by: make(map[string]*Upstream)} }

// memory is what a new server's conversation is remembered in.
func (r *Registry) memory() (*keep.Memory, error) {
	if r.stored.store == nil {
		return keep.Volatile(), nil
	}
	return keep.New()
}

func (u *Upstream) keptAs() string { return units.Kept(u.Server().Name, u.Server().Session) }

// store stores what belongs to a server whose handshake is over: one that is in the middle of it is started again, for
// nobody else could tell what it has been asked.
func (r *Registry) store(c *handover.Conn, u *Upstream) {
	k := &r.stored
	if k.store == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.Stopping() {
		return
	}
	name := u.keptAs()
	err := func() error {
		if _, ok := k.by[name]; ok { // the process that this one replaces
			delete(k.by, name)
			if err := k.store.Forget(name); err != nil {
				return err
			}
		}
		if len(k.by) >= maxKept {
			return fmt.Errorf("there are %d already", maxKept)
		}
		launcher, err := c.File()
		if err != nil {
			return err
		}
		defer launcher.Close()
		return k.store.Keep(name, slices.Concat([]syscall.Conn{launcher}, u.conn.Files(), []syscall.Conn{u.memory.File()})...)
	}()
	if err != nil {
		u.log.Warn("this server will not outlive the gateway: storing its descriptors", "error", err.Error())
		return
	}
	k.by[name] = u
}

// isStored reports whether the next gateway will go on with the conversation.
func (r *Registry) isStored(u *Upstream) bool {
	r.stored.mu.Lock()
	defer r.stored.mu.Unlock()
	return u != nil && r.stored.by[u.keptAs()] == u
}

// unstore gives up what is stored of a server that is to end.
func (r *Registry) unstore(u *Upstream) {
	k := &r.stored
	k.mu.Lock()
	defer k.mu.Unlock()
	if name := u.keptAs(); k.by[name] == u {
		delete(k.by, name)
		if err := k.store.Forget(name); err != nil {
			u.log.Warn("giving up what is stored, ignoring", "error", err.Error())
		}
	}
}

// drop gives up all that is kept of a server that has ended.
func (r *Registry) drop(u *Upstream) {
	r.unstore(u)
	u.memory.Close()
}

// state is what the next gateway needs to know of a conversation, beside the numbers.
type state struct {
	Server  handover.Server
	Offered offered
	findings
}

// write writes it.
func (u *Upstream) write(l *Listing) error {
	u.writing.Lock()
	defer u.writing.Unlock()
	return u.memory.Write(state{Server: u.Server(), Offered: u.offers(l), findings: u.lists.now()})
}

func (u *Upstream) remember(l *Listing) {
	if err := u.write(l); err != nil {
		u.log.Warn("writing down for the next gateway what is known, ignoring", "error", err.Error())
	}
}

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
	r.stored.mu.Lock()
	r.stored.by[name] = u
	r.stored.mu.Unlock()
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
	u := r.connected(s.Server, transport.NewStdio(p.Stdin, p.Stdout, p.Memory, r.limits.Limits.Limits), p.Memory, 0)
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

// prove asks a server anything: once it answers, what was taken over works.
func (u *Upstream) prove() {
	call := Call{Method: string(mcp.MethodPing), Free: true}
	if u.Modern() {
		call.Method = string(mcp.MethodServerDiscover)
	}
	if _, err := u.Call(context.Background(), call); err == nil {
		u.memory.Settled()
	}
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
			r.drop(o.u)
			o.c.Close()
		}()
	}
}
