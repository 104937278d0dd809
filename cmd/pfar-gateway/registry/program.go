package registry

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
)

// undecided are launchers that wait until the program of their server is accepted.
type undecided struct {
	mu sync.Mutex
	of map[*handover.Conn]handover.Server
}

var errUndecided = errors.New("its program has changed and is not accepted")

// admit tells a launcher whether its server may be started. A program that was changed in its place would get secrets
// and the network before anybody finds out; its launcher waits here until the owner has accepted it, and then comes
// again.
func (r *Registry) admit(c *handover.Conn, s handover.Server) error {
	if err := r.admitOwn(s); err != nil {
		return err
	}
	if s.Files == nil { // nothing is known of it, and its launcher does not ask
		return nil
	}
	r.undecided.add(c, s)
	defer r.undecided.remove(c)
	state := pins.Accepted // a session's process is of the program that its server is
	if s.Session == "" {
		state = r.program(s)
	}
	if state == pins.Accepted {
		return c.Send(handover.Message{Begin: &handover.Begin{Start: true}})
	}
	wait := ", which has changed, to be accepted: pfar pins accept " + s.Name
	if state == pins.New {
		wait = ", whose pins cannot be used: pfar pins show " + s.Name
	}
	r.log.Warn("not starting a server", "server", s.Name, "reason", "it waits "+units.ForProgram+wait)
	if err := c.Send(handover.Message{Begin: &handover.Begin{Wait: wait}}); err != nil {
		return err
	}
	_, files, _ := c.Receive() // until it leaves, or decide hangs up
	packet.CloseAll(files)
	return errUndecided
}

// admitOwn refuses a session's own process if its program differs from the server's, and tells the session.
func (r *Registry) admitOwn(s handover.Server) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.owned[s.Session]
	if o == nil || o.server != s.Name || o.launched != nil || bytes.Equal(s.Files, o.main.Server().Files) {
		return nil // or ownLauncher says why not
	}
	delete(r.owned, o.handle) // another launcher would be unasked for
	o.err = errOtherProgram
	close(o.ready)
	return fmt.Errorf("a process of %q for one session: %w", s.Name, errOtherProgram)
}

// program says whether a server's program is accepted.
func (r *Registry) program(s handover.Server) pins.State {
	if r.pins == nil {
		return pins.Accepted
	}
	return r.pins.Program(s.Name, s.Program, s.Files)
}

// decide hangs up on the launchers of a server whose program may be started now.
func (r *Registry) decide(server string) {
	for c, s := range r.undecided.all() {
		if s.Name == server && r.program(s) == pins.Accepted {
			c.Close()
		}
	}
}

func (u *undecided) add(c *handover.Conn, s handover.Server) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of == nil {
		u.of = make(map[*handover.Conn]handover.Server)
	}
	u.of[c] = s
}

func (u *undecided) remove(c *handover.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, c)
}

func (u *undecided) all() map[*handover.Conn]handover.Server {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.of)
}
