package main

import (
	"context"
	"fmt"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/systemd"
)

// refresh has systemd run the process that refreshes a set, which asks for it when it attaches (refresher). It returns
// when that has ended.
func (a *attachments) refresh(ctx context.Context, key string, text []byte) error {
	instance := units.RefreshInstance(key)
	unit := systemd.RefreshUnit(instance)
	a.mu.Lock()
	_, taken := a.refreshes[instance]
	if !taken {
		a.refreshes[instance] = refreshing{key, text}
	}
	a.mu.Unlock()
	if taken {
		return fmt.Errorf("the unit %q refreshes another one", unit)
	}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.refreshes, instance)
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

// refresher is the conversation with the process that refreshes a set. One that an earlier pfard has given it to brings
// back what came of it.
func (a *attachments) refresher(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	a.mu.Lock()
	r, asked := a.refreshes[p.Instance]
	a.mu.Unlock()
	switch {
	case hello.Again:
		r = refreshing{key: a.keyOf(p.Instance)}
	case !asked:
		return fmt.Errorf("nobody has asked for %q", systemd.RefreshUnit(p.Instance))
	}
	var policy egress.Policy // of one that comes again: it has been where it was to go
	if !hello.Again {
		set, err := oauth.Decode(r.text)
		if err != nil {
			return err
		}
		if _, _, policy, err = set.Host(); err != nil {
			return err
		}
	}
	// No server's name begins so.
	held, why := a.hold.of("@"+p.Instance, systemd.RefreshUnit(p.Instance), p.PID, policy)
	defer held.Gone()
	return a.tokens.converse(conn, r, why, held.Allow)
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
