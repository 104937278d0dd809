package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/systemd"
)

// refresh has systemd run the process that refreshes a set. It returns when that has ended.
func (a *attachments) refresh(ctx context.Context, key string, text []byte) error {
	return a.send(ctx, systemd.RefreshUnit(units.RefreshInstance(key)), refreshing{a.tokens, key, text})
}

// login has systemd run the process that obtains a set. When it returns, that has ended.
func (a *attachments) login(ctx context.Context, key string, e errand) error {
	unit := systemd.LoginUnit(units.RefreshInstance(key))
	err := a.send(ctx, unit, e)
	if ctx.Err() == nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	bus, failed := a.link.Bus(stopping)
	if failed == nil {
		failed = bus.StopUnit(stopping, unit)
	}
	if failed != nil {
		a.log.Warn("stopping the process of a login, which ends with its time", "key", key, "error", failed)
	}
	return err
}

// stopTime is for systemd to stop a process.
const stopTime = 20 * time.Second

// send has systemd run the process of a unit, which asks for its errand when it attaches (sent). It returns when that
// has ended.
func (a *attachments) send(ctx context.Context, unit string, e errand) error {
	a.mu.Lock()
	_, taken := a.errands[unit]
	if !taken {
		a.errands[unit] = e
	}
	a.mu.Unlock()
	if taken {
		return fmt.Errorf("the unit %q is under way for another one", unit)
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.errands, unit)
	}()
	bus, err := a.link.Bus(ctx)
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
			return fmt.Errorf("its process has failed (%s): systemctl status %s", result, unit)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refreshMended has systemd forget that a refresh has failed.
func (a *attachments) refreshMended(key string) {
	a.tellSystemd("forgetting that a refresh has failed", key, func(ctx context.Context, bus *systemd.Bus) error {
		return bus.StopUnit(ctx, systemd.RefreshUnit(units.RefreshInstance(key)))
	})
}

// sent is the conversation with a process that was sent on an errand. One that an earlier pfard has given a set to
// refresh brings back what came of it.
func (a *attachments) sent(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	unit, name := systemd.RefreshUnit(p.Instance), "@"+p.Instance // no server's name begins so
	if p.Login {
		unit, name = systemd.LoginUnit(p.Instance), name+".login" // no key of the vault has a dot
	}
	a.mu.Lock()
	e, asked := a.errands[unit]
	a.mu.Unlock()
	switch {
	case hello.Again && p.Refresh:
		e = refreshing{tokens: a.tokens, key: a.keyOf(p.Instance)}
	case !asked || hello.Again:
		return fmt.Errorf("nobody has asked for %q", unit)
	}
	policy, err := e.policy()
	if err != nil {
		return err
	}
	held, why := a.hold.of(name, unit, p.PID, policy)
	defer held.Gone()
	return serveErrand(conn, e, why, held)
}

// keyOf finds the key of an instance; "" if it is none of the vault's.
func (a *attachments) keyOf(instance string) string {
	keys, err := a.tokens.vault.Keys()
	if err != nil {
		a.log.Warn("looking for a key, ignoring", "error", err)
	}
	for _, key := range keys {
		if units.RefreshInstance(key) == instance {
			return key
		}
	}
	return ""
}
