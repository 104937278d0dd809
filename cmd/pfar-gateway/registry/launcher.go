package registry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/packet"
)

// during calls f, and closes a launcher's connection after that, or when ctx ends.
func during(ctx context.Context, c *handover.Conn, f func(context.Context)) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f(ctx)
}

// exitGrace is how long a launcher may take to notice that its server ended, before it is told that stdout closed.
const exitGrace = 2 * time.Second

// listen follows what the launcher says until it leaves, which closes left. stopping is called when it says that it
// stops the server.
func listen(c *handover.Conn, u *Upstream, stopping func()) (left <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, files, err := c.Receive()
			if err != nil {
				u.end(errLauncher)
				return
			}
			u.launcher.take(m, files)
			if m.Stopping {
				stopping()
			}
		}
	}()
	return done
}

func ready(u *Upstream, l *Listing, v reviewed) handover.Message {
	found, a := u.lists.now(), u.Agreed()
	d := found.dropped()
	return handover.Message{Ready: &handover.Ready{
		Dropped: d.Count, Why: d.Why,
		Tools: len(l[Tools]), Prompts: len(l[Prompts]), Resources: len(l[Resources]),
		Speech: units.Speech{Protocol: a.Protocol, Transport: a.Transport}, Server: a.Title(),
		Held: v.count, Unreviewed: v.strange, Verification: u.trial.verification(),
	}}
}

// first receives what somebody has connected for, who may hand a server over, or say more of it: root or our own user.
func first(c *handover.Conn) (handover.Message, error) {
	peer, err := c.Peer()
	if err != nil {
		return handover.Message{}, err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		return handover.Message{}, fmt.Errorf("the peer has the uid %d, not 0 or %d", peer.Uid, os.Geteuid())
	}
	m, files, err := c.Receive()
	packet.CloseAll(files)
	if err != nil {
		return m, fmt.Errorf("receiving the name of the server to hand over: %w", err)
	}
	about := m.Expect
	if about == nil {
		about = m.Change
	}
	switch {
	case about == nil:
		return m, errors.New("the first message does not say which server it hands over")
	case !units.IsServer(about.Name), about.Session != "" && !units.IsSession(about.Session):
		return m, fmt.Errorf("the first message hands over %s with the session %s", protocol.Quote(about.Name),
			protocol.Quote(about.Session))
	}
	return m, nil
}

// checkHello wants the descriptors of the server that is expected.
func checkHello(hello *handover.Hello, files int, server handover.Server) error {
	switch {
	case hello == nil:
		return fmt.Errorf("the first message of the launcher of %q is not a hello", server.Name)
	case hello.Name != server.Name, hello.Session != server.Session:
		return fmt.Errorf("the launcher of %q hands over %s with the session %s", server.Name, protocol.Quote(hello.Name), protocol.Quote(hello.Session))
	case files != 2:
		return fmt.Errorf("the hello of %q has %d descriptors", server.Name, files)
	}
	return nil
}
