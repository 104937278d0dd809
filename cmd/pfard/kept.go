package main

import (
	"context"
	"os"
	"time"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/systemd"
)

// kept are sockets of a server's network namespace that systemd does not have: the kernel's reports of what its ruleset
// rejects, and all of them where the launcher has made the namespace. The bridge is started when there is something to
// read, as systemd does for its own, and gets them when it attaches.
type kept struct {
	sockets []*os.File
	left    chan struct{} // has one when a bridge has left
	ended   chan struct{} // closed by close
}

// keep takes sockets, in place of those of an earlier run.
func (a *attachments) keep(instance string, sockets []*os.File) {
	k := &kept{sockets: sockets, left: make(chan struct{}, 1), ended: make(chan struct{})}
	a.mu.Lock()
	old := a.kept[instance]
	a.kept[instance] = k
	a.mu.Unlock()
	if old != nil {
		old.close()
	}
	go k.watch(func() bool { return a.bridgeOf(instance) != nil }, func() {
		tellSystemd(a.log, a.link, "starting a bridge", instance, func(ctx context.Context, bus *systemd.Bus) error {
			return bus.TryStart(ctx, systemd.BridgeUnit(instance))
		})
	})
}

// keepOwn takes the sockets of a namespace that a launcher has made. A bridge that is there has those of an earlier
// namespace, or none, and goes; but that of a launcher that comes again has these.
func (a *attachments) keepOwn(instance string, sockets []*os.File, again bool) {
	a.keep(instance, sockets)
	if again || a.bridgeOf(instance) == nil {
		return
	}
	tellSystemd(a.log, a.link, "stopping a bridge", instance, func(ctx context.Context, bus *systemd.Bus) error {
		return bus.StopUnit(ctx, systemd.BridgeUnit(instance))
	})
}

func (a *attachments) bridgeOf(instance string) *attach.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bridges[instance]
}

// drop gives up what is kept of an instance.
func (a *attachments) drop(instance string) {
	a.mu.Lock()
	k := a.kept[instance]
	delete(a.kept, instance)
	a.mu.Unlock()
	if k != nil {
		k.close()
	}
}

// handed are the sockets that are kept for an instance's bridge, which is there until left is called.
func (a *attachments) handed(instance string, bridge *attach.Conn) (sockets []*os.File, left func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bridges[instance] = bridge
	if k := a.kept[instance]; k != nil {
		sockets = k.sockets
	}
	return sockets, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.bridges[instance] != bridge {
			return
		}
		delete(a.bridges, instance)
		if k := a.kept[instance]; k != nil {
			select {
			case k.left <- struct{}{}:
			default:
			}
		}
	}
}

// watch calls start whenever there is something to read and no bridge, until close.
func (k *kept) watch(bridged func() bool, start func()) {
	const again = 2 * time.Second // a bridge that does not start must not keep us busy
	for local.WaitAny(k.sockets) == nil {
		pause := time.After(again)
		if bridged() {
			pause = nil
		} else {
			start()
		}
		select {
		case <-k.left:
		case <-pause:
		case <-k.ended:
			return
		}
	}
}

func (k *kept) close() {
	close(k.ended)
	attach.CloseAll(k.sockets)
}
