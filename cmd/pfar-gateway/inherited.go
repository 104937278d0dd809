package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/packet"
)

type listeners struct {
	http     *net.TCPListener
	metrics  *net.TCPListener // nil: none is asked for
	unix     *net.UnixListener
	operator *net.UnixListener // nil: there is none
	passkey  *net.UnixListener // nil: there is none
	servers  *net.UnixListener
}

// inherited takes over what the runner passes (sd_listen_fds(3)): the listeners that it has opened, and by name what
// the gateway before this one has stored.
func inherited() (l listeners, before map[string][]*os.File, err error) {
	files, err := units.Descriptors()
	if err != nil {
		return l, nil, err
	}
	before = make(map[string][]*os.File)
	maps.DeleteFunc(files, func(name string, list []*os.File) bool {
		if units.IsKept(name) {
			before[name] = list
		}
		return units.IsKept(name)
	})
	l, err = listen(files)
	return l, before, err
}

// listen takes the listeners over that the runner has opened. Those of one socket unit have one name:
// what they are says what they are for.
func listen(files map[string][]*os.File) (listeners, error) {
	var l listeners
	for name, list := range files {
		for _, f := range list {
			got, err := net.FileListener(f)
			f.Close()
			if err == nil {
				err = l.take(name, got)
			}
			if err != nil {
				return l, fmt.Errorf("taking over the descriptor %q: %w", name, err)
			}
		}
	}
	if l.servers == nil || l.http == nil && l.unix == nil {
		return l, fmt.Errorf("want a listener for servers (%s), and one for clients (%s or %s)", units.FDServers, units.FDHTTP, units.FDUnix)
	}
	return l, nil
}

func (l *listeners) take(name string, got net.Listener) error {
	kind, twice := "", false
	switch got := got.(type) {
	case *net.TCPListener:
		kind = units.FDHTTP
		to := &l.http
		if name == units.FDMetrics {
			kind, to = name, &l.metrics
		}
		twice, *to = *to != nil, got
	case *net.UnixListener:
		kind = units.FDUnix
		to := &l.unix
		switch {
		case got.Addr().Network() == "unixpacket":
			kind, to = units.FDServers, &l.servers
		case name == units.FDOperator:
			kind, to = name, &l.operator
		case name == units.FDPasskey:
			kind, to = name, &l.passkey
		}
		twice, *to = *to != nil, got
	}
	switch {
	case name != kind && name != units.FDListen:
		return fmt.Errorf("the socket is a listener of %s", got.Addr().Network())
	case twice:
		return fmt.Errorf("the socket is the second listener of %s", got.Addr().Network())
	}
	return nil
}

// goOn has kept from now on what the next gateway needs, and goes on with what the one before this one has left. What
// is of no use is given up, so that it is not passed on forever.
func (g *gateway) goOn(ctx context.Context, before map[string][]*os.File, log *slog.Logger) {
	store := units.NewStore()
	if store == nil {
		return
	}
	g.registry.Stores(store)
	g.store = store
	var sessions []*os.File
	for _, own := range []struct {
		name string
		take func([]*os.File)
	}{
		{units.FDSecrets, g.takeSecrets}, {units.FDPolicy, g.takePolicy}, {units.FDClients, g.takeClients}, {units.FDAudit, g.takeAudit},
		{units.FDSessions, func(files []*os.File) { sessions = files }},
	} {
		own.take(before[own.name])
		delete(before, own.name)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		p, err := keep.Take(before[name])
		if err == nil {
			err = g.registry.Resume(ctx, name, p)
		}
		if err != nil {
			log.Warn("giving up what the gateway before this one has left", "name", name, "reason", err.Error())
			if err := store.Forget(name); err != nil {
				log.Warn("giving it up, ignoring", "error", err.Error())
			}
		}
	}
	memory, err := sessionsMemory(store, sessions, log)
	if err != nil {
		log.Warn("client sessions will not outlive this gateway", "error", err.Error())
	} else {
		g.endpoint.Keep(ctx, memory)
	}
	g.registry.Abandon()
}

// takeSecrets goes on with the secrets that the gateway before this one recognised, until pfard says what there are
// now.
func (g *gateway) takeSecrets(files []*os.File) {
	g.kept.secrets.take(files, g.log, func(b []byte) error {
		set := new(redact.Set)
		if err := set.UnmarshalBinary(b); err != nil {
			return err
		}
		g.secrets.Learn(set)
		return nil
	})
}

// takePolicy goes on deciding as the gateway before this one did, until pfard says by what it is done now.
func (g *gateway) takePolicy(files []*os.File) {
	g.kept.policy.take(files, g.log, func(b []byte) error {
		policy := new(gate.Policy)
		if err := policy.UnmarshalJSON(b); err != nil {
			return err
		}
		g.decideBy(policy, nil)
		return nil
	})
}

// handedDown is what pfard has told one gateway and the next begins with.
type handedDown struct {
	name  string // in the store
	most  int64  // bytes
	there bool
}

// take has the next one learn what was stored, if it is of use.
func (h *handedDown) take(files []*os.File, log *slog.Logger, learn func([]byte) error) {
	if len(files) == 0 {
		return
	}
	h.there = true
	packet.CloseAll(files[1:])
	b, err := units.ReadSealed(files[0], h.most)
	if err == nil {
		err = learn(b)
	}
	if err != nil {
		log.Warn("giving up what the gateway before this one was told", "name", h.name, "reason", err.Error())
	}
}

// keep stores it in the place of what was there. Without a store there is no next one that could begin with it.
func (h *handedDown) keep(store *units.Store, b []byte, log *slog.Logger) {
	if store == nil {
		return
	}
	if err := h.replace(store, b); err != nil {
		log.Warn("the next gateway will have to wait for pfard", "name", h.name, "error", err.Error())
	}
}

func (h *handedDown) replace(store *units.Store, b []byte) error {
	f, err := units.Sealed(h.name, b)
	if err != nil {
		return err
	}
	defer f.Close()
	if h.there {
		if err := store.Forget(h.name); err != nil {
			return err
		}
	}
	h.there = true
	return store.Keep(h.name, f)
}

// sessionsMemory is where client sessions are written down: that of the gateway before this one if it is of use, or
// new.
func sessionsMemory(store *units.Store, files []*os.File, log *slog.Logger) (*keep.Memory, error) {
	if len(files) > 0 {
		memory, err := keep.Only(files)
		if err == nil {
			return memory, nil
		}
		log.Warn("giving up the client sessions of the gateway before this one", "reason", err.Error())
		if err := store.Forget(units.FDSessions); err != nil {
			return nil, err
		}
	}
	memory, err := keep.New()
	if err != nil {
		return nil, err
	}
	return memory, store.Keep(units.FDSessions, memory.File())
}
