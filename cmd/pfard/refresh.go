package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/systemd"
)

// taskUnits has systemd run units that do one task and end: pfar-refresh@.service, pfar-login@.service,
// pfar-setup@.service and pfar-console@.service. The process of each asks for its task when it attaches.
type taskUnits struct {
	log    *slog.Logger
	link   *systemd.Link
	hold   *hold
	tokens *tokens
	run    string // the directory of pfard's sockets

	chats  *chatUnits
	remote pageTalk // with the process of the remote console, which systemd starts by its socket

	mu      sync.Mutex
	errands map[string]errand   // by unit of the first two
	pages   map[string]pageTalk // by unit of the others
	talks   *attach.Conn        // of remote, with the last process; nil: there was none
}

// refresh has systemd run the process that refreshes a set. It returns when that has ended.
func (u *taskUnits) refresh(ctx context.Context, key string, text []byte) error {
	return u.send(ctx, systemd.RefreshUnit(units.RefreshInstance(key)), refreshing{u.tokens, key, text})
}

// login has systemd run the process that obtains a set. When it returns, that has ended.
func (u *taskUnits) login(ctx context.Context, key string, e errand) error {
	unit := systemd.LoginUnit(units.RefreshInstance(key))
	err := u.send(ctx, unit, e)
	if ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	bus, failed := u.link.Bus(stopping)
	if failed == nil {
		failed = bus.StopUnit(stopping, unit)
	}
	if failed != nil {
		u.log.Warn("stopping the process of a login, which ends with its time", "key", key, "error", failed)
	}
	return err
}

// stopTime is for systemd to stop a process.
const stopTime = 20 * time.Second

// send has systemd run the process of a unit, which asks for its errand when it attaches (sent). It returns when that
// has ended.
func (u *taskUnits) send(ctx context.Context, unit string, e errand) error {
	u.mu.Lock()
	_, taken := u.errands[unit]
	if !taken {
		u.errands[unit] = e
	}
	u.mu.Unlock()
	if taken {
		return fmt.Errorf("the unit %q is under way for another one", unit)
	}
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.errands, unit)
	}()
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return err
	}
	ended := make(chan string, 1)
	if err := bus.StartUnit(ctx, unit, func(result string) { ended <- result }); err != nil {
		return err
	}
	select {
	case result := <-ended:
		if result != "done" {
			return fmt.Errorf("the process has failed (%s): systemctl status %s", result, unit)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refreshMended has systemd forget that a refresh has failed.
func (u *taskUnits) refreshMended(key string) {
	forget := func(ctx context.Context, bus *systemd.Bus) error {
		return bus.StopUnit(ctx, systemd.RefreshUnit(units.RefreshInstance(key)))
	}
	tellSystemd(u.log, u.link, "forgetting that a refresh has failed", key, forget)
}

// sent is the conversation with a process that was sent on an errand. One that an earlier pfard has given a set to
// refresh brings back what came of it.
func (u *taskUnits) sent(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	unit, name := systemd.RefreshUnit(p.Instance), "@"+p.Instance // no server's name begins so
	if p.Login {
		unit, name = systemd.LoginUnit(p.Instance), name+".login" // no key of the vault has a dot
	}
	u.mu.Lock()
	e, asked := u.errands[unit]
	u.mu.Unlock()
	switch {
	case hello.Again && p.Refresh:
		e = refreshing{tokens: u.tokens, key: u.keyOf(p.Instance)}
	case !asked || hello.Again:
		return fmt.Errorf("nobody has asked for %q", unit)
	}
	policy, err := e.policy()
	if err != nil {
		return err
	}
	held, why := u.hold.of(name, unit, p.PID, policy)
	defer held.Gone()
	return serveErrand(conn, e, why, held)
}

// keyOf finds the key of an instance; "" if it is none of the vault's.
func (u *taskUnits) keyOf(instance string) string {
	keys, err := u.tokens.vault.Keys()
	if err != nil {
		u.log.Warn("looking for a key, ignoring", "error", err)
	}
	for _, key := range keys {
		if units.RefreshInstance(key) == instance {
			return key
		}
	}
	return ""
}
