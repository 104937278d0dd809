package registry

import (
	"context"
	"errors"
	"sync"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/units/handover"
)

// older remembers servers, by name and program, that are not asked server/discover when they are started again: those
// that end when they are asked, and those that spoke the older generation the last time.
type older struct {
	mu sync.Mutex
	of map[[2]string]elder
}

// elder is one of them.
type elder struct {
	ends bool   // when it is asked
	info string // what it said that it is: another version of it may speak the newer generation
}

func (o *older) get(h handover.Server) (elder, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, ok := o.of[[2]string{h.Name, h.Program}]
	return e, ok
}

func (o *older) put(h handover.Server, e elder) {
	const most = 1024
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || len(o.of) >= most {
		o.of = make(map[[2]string]elder)
	}
	o.of[[2]string{h.Name, h.Program}] = e
}

func (o *older) forget(h handover.Server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, [2]string{h.Name, h.Program})
}

// settled takes what a server turned out to be, of which was was known.
func (o *older) settled(h handover.Server, was elder, known bool, a protocol.Agreement) {
	switch {
	case known && was.ends:
	case !known && !a.Modern():
		o.put(h, elder{info: string(a.Info)})
	case known && (a.Modern() || was.info != string(a.Info)):
		o.forget(h)
	}
}

// shake is the handshake, by what is remembered of the server.
func (o *older) shake(ctx context.Context, u *Upstream, self protocol.Client) (protocol.Agreement, error) {
	was, known := o.get(u.Server())
	a, err := u.Handshake(ctx, self, known)
	if err != nil && known && !was.ends && u.Why() == nil && ctx.Err() == nil { // another version of it, perhaps
		a, err = u.Handshake(ctx, self, false)
	}
	switch {
	case err == nil:
		o.settled(u.Server(), was, known, a)
	case errors.Is(err, protocol.ErrProbe):
		o.put(u.Server(), elder{ends: true})
	case !was.ends:
		o.forget(u.Server())
	}
	return a, err
}
