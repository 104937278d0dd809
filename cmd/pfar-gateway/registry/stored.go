package registry

import (
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
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
	to Store // nil: there is none
	mu sync.Mutex
	by map[string]*Upstream // by the name that they are stored under
}

// maxKept bounds them: each takes four descriptors.
const maxKept = (units.MaxStored - units.OwnStored) / 4

// memory is what a new server's conversation is remembered in.
func (k *stored) memory() (*keep.Memory, error) {
	if k.to == nil {
		return keep.Volatile(), nil
	}
	return keep.New()
}

func (u *Upstream) keptAs() string { return units.Kept(u.Server().Name, u.Server().Session) }

// store stores what belongs to a server whose handshake is over: one that is in the middle of it is started again, for
// nobody else could tell what it has been asked.
func (k *stored) store(c *handover.Conn, u *Upstream) {
	if k.to == nil {
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
			if err := k.to.Forget(name); err != nil {
				return err
			}
		}
		if len(k.by) >= maxKept {
			return fmt.Errorf("%d processes are stored already", maxKept)
		}
		launcher, err := c.File()
		if err != nil {
			return err
		}
		defer launcher.Close()
		return k.to.Keep(name, slices.Concat([]syscall.Conn{launcher}, u.conn.Files(), []syscall.Conn{u.memory.File()})...)
	}()
	if err != nil {
		u.log.Warn("this server will not outlive the gateway: storing its descriptors", "error", err.Error())
		return
	}
	k.by[name] = u
}

// has reports whether the next gateway will go on with the conversation.
func (k *stored) has(u *Upstream) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return u != nil && k.by[u.keptAs()] == u
}

// giveUp gives up what is stored of a server that is to end.
func (k *stored) giveUp(u *Upstream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name := u.keptAs(); k.by[name] == u {
		delete(k.by, name)
		if err := k.to.Forget(name); err != nil {
			u.log.Warn("giving up what is stored, ignoring", "error", err.Error())
		}
	}
}

// drop gives up all that is kept of a server that has ended.
func (k *stored) drop(u *Upstream) {
	k.giveUp(u)
	u.memory.Close()
}

// resume enters what the gateway before this one has stored.
func (k *stored) resume(name string, u *Upstream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.by[name] = u
}
