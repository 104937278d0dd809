package registry

import (
	"errors"
	"log/slog"
	"maps"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
)

// undecided are launchers that wait until the program of their server is accepted.
type undecided struct {
	by  *reviewer
	log *slog.Logger

	mu sync.Mutex
	of map[*handover.Conn]handover.Server
}

var errUndecided = errors.New("the program has changed and is not accepted")

// admit tells a launcher whether its server may be started. A program that was changed in its place would get secrets
// and the network before anybody finds out; its launcher waits here until the owner has accepted it, and then comes
// again.
func (u *undecided) admit(c *handover.Conn, s handover.Server) error {
	if s.Files == nil { // nothing is known of it, and its launcher does not ask
		return nil
	}
	u.add(c, s)
	defer u.remove(c)
	state := pins.Accepted // a session's process is of the program that its server is
	if s.Session == "" {
		state = u.by.program(s)
	}
	if state == pins.Accepted {
		return c.Send(handover.Message{Begin: &handover.Begin{Start: true}})
	}
	wait, remedy := ", which has changed, to be accepted: ", units.ToDo(units.AcceptPins, s.Name)
	if state == pins.New {
		wait, remedy = ", whose pins cannot be used: ", units.ToDo(units.ShowPins, s.Name)
	}
	wait += remedy.Command
	u.log.Warn("not starting a server", "server", s.Name, "reason", "the server waits "+units.ForProgram+wait)
	if err := c.Send(handover.Message{Begin: &handover.Begin{Wait: wait, Remedy: remedy}}); err != nil {
		return err
	}
	_, files, _ := c.Receive() // until it leaves, or decide hangs up
	packet.CloseAll(files)
	return errUndecided
}

// decide hangs up on the launchers of a server whose program may be started now.
func (u *undecided) decide(server string) {
	u.mu.Lock()
	waiting := maps.Clone(u.of)
	u.mu.Unlock()
	for c, s := range waiting {
		if s.Name == server && u.by.program(s) == pins.Accepted {
			c.Close()
		}
	}
}

func (u *undecided) add(c *handover.Conn, s handover.Server) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.of[c] = s
}

func (u *undecided) remove(c *handover.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.of, c)
}
