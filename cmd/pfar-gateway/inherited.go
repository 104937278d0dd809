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
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/packet"
)

type listeners struct {
	http    *net.TCPListener
	metrics *net.TCPListener // nil: none is asked for
	unix    *net.UnixListener
	servers *net.UnixListener
}

// inherited takes over what the runner passes (sd_listen_fds(3)): the listeners that it has opened, and by name what the
// gateway before this one has stored.
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
		if got.Addr().Network() == "unixpacket" {
			kind, to = units.FDServers, &l.servers
		}
		twice, *to = *to != nil, got
	}
	switch {
	case name != kind && name != units.FDListen:
		return fmt.Errorf("it is a listener of %s", got.Addr().Network())
	case twice:
		return fmt.Errorf("it is the second listener of %s", got.Addr().Network())
	}
	return nil
}

// goOn has kept from now on what the next gateway needs, and goes on with what the one before this one has left. What is
// of no use is given up, so that it is not passed on forever.
func (g *gateway) goOn(ctx context.Context, before map[string][]*os.File, log *slog.Logger) {
	store := units.NewStore()
	if store == nil {
		return
	}
	g.registry.Stores(store)
	g.store = store
	g.takeSecrets(before[units.FDSecrets])
	delete(before, units.FDSecrets)
	sessions := before[units.FDSessions]
	delete(before, units.FDSessions)
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

// takeSecrets goes on with the secrets that the gateway before this one recognised, until pfard says what there are now.
func (g *gateway) takeSecrets(files []*os.File) {
	if len(files) == 0 {
		return
	}
	g.stored = true
	packet.CloseAll(files[1:])
	b, err := units.ReadSealed(files[0], attach.MaxSet)
	set := new(redact.Set)
	if err == nil {
		err = set.UnmarshalBinary(b)
	}
	if err != nil {
		g.log.Warn("giving up the secrets of the gateway before this one", "reason", err.Error())
		return
	}
	g.secrets.Learn(set)
}

// keepSecrets has the next gateway begin with a set.
func (g *gateway) keepSecrets(set []byte) error {
	if g.store == nil {
		return nil
	}
	f, err := units.Sealed(units.FDSecrets, set)
	if err != nil {
		return err
	}
	defer f.Close()
	if g.stored {
		if err := g.store.Forget(units.FDSecrets); err != nil {
			return err
		}
	}
	g.stored = true
	return g.store.Keep(units.FDSecrets, f)
}

// sessionsMemory is where client sessions are written down: that of the gateway before this one if it is of use, or new.
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
