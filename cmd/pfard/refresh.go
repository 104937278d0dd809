package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/systemd"
)

// refreshing is a token set that a process is to refresh.
type refreshing struct {
	key  string
	text []byte // of the set
}

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

// refreshWith has a local runner start the process, at the other end of a pair of sockets.
func (t *tokens) refreshWith(runner *local.Runner) func(context.Context, string, []byte) error {
	return func(ctx context.Context, key string, text []byte) error {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("making a pair of sockets: %w", err)
		}
		theirs := os.NewFile(uintptr(pair[1]), units.FDRefresh)
		conn, err := attach.FromFile(os.NewFile(uintptr(pair[0]), units.FDRefresh))
		if err != nil {
			theirs.Close()
			return err
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer conn.Close()
			if m, files, err := conn.Receive(); err == nil {
				attach.CloseAll(files)
				if m.Hello != nil && m.Hello.Refresh {
					_ = t.converse(conn, refreshing{key, text}, "", func(attach.Allow) error { return errors.New("there is no firewall to ask") })
				}
			}
		}()
		err = runner.Refresh(ctx, units.RefreshInstance(key), theirs)
		conn.Close()
		<-over
		return err
	}
}

// converse hands a set over and takes what comes of it, until the process hangs up. One that has the set is given none.
func (t *tokens) converse(conn *attach.Conn, r refreshing, held string, allow func(attach.Allow) error) error {
	var files []*os.File
	if r.text != nil {
		if err := t.hand(r.key); err != nil {
			t.fail(r.key, attach.Refreshed{Error: err.Error()})
			return err
		}
		memory, err := units.Sealed("tokens", r.text)
		if err != nil {
			return err
		}
		files = append(files, memory)
	}
	err := conn.Send(attach.Message{Welcome: &attach.Welcome{Held: held}}, files...)
	attach.CloseAll(files)
	if err != nil {
		return nil
	}
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return nil // it has ended
		}
		switch {
		case m.Allow != nil:
			conn.Answer(m.Allow.ID, allow(*m.Allow))
		case m.Refreshed != nil:
			var content []byte
			if m.Refreshed.Error == "" || len(files) > 0 {
				if content, err = passed(files); err != nil {
					m.Refreshed.Error = cmp.Or(m.Refreshed.Error, err.Error())
				}
			}
			t.take(r.key, *m.Refreshed, content)
			_ = conn.Send(attach.Message{Taken: true})
		}
		attach.CloseAll(files)
	}
}

// passed reads the one file that came with a message.
func passed(files []*os.File) ([]byte, error) {
	if len(files) != 1 {
		return nil, fmt.Errorf("%d files came with it, want one", len(files))
	}
	return units.ReadSealed(files[0], attach.MaxTokens)
}
