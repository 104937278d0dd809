package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/pfar/pfar/cmd/pfard/control"
)

// version is the module's, as the build recorded it.
func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "unknown"
}

var errEnding = errors.New("pfard is ending")

// do runs f in the loop and waits for it.
func (d *daemon) do(f func() error) error {
	done := make(chan error, 1)
	d.post(func() { done <- f() })
	select {
	case err := <-done:
		return err
	case <-d.ended:
		return errEnding
	}
}

// answer carries out one request on the control socket.
func (d *daemon) answer(ctx context.Context, _ control.Peer, q control.Request, send func(control.Response) error) error {
	switch q.Verb {
	case control.Status:
		return d.sendReport(send)
	case control.Watch:
		return d.watchReports(ctx, send)
	case control.Start, control.Stop, control.Restart:
		if err := d.do(func() error { return d.turn(q.Verb, q.Server) }); err != nil {
			return err
		}
		return d.sendReport(send)
	case control.Store:
		if err := d.vault.Set(q.Key, []byte(q.Secret)); err != nil {
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		if err := d.do(func() error { d.wakeWaiting(); return nil }); err != nil {
			return err
		}
		return send(control.Response{})
	case control.Remove:
		if err := d.vault.Remove(q.Key); err != nil {
			if notFound(err) {
				return fmt.Errorf("%w: %q", control.ErrNoKey, q.Key)
			}
			return fmt.Errorf("%w: %w", control.ErrInvalid, err)
		}
		return send(control.Response{})
	case control.Secrets:
		keys, err := d.vault.Keys()
		if err != nil {
			return err
		}
		return send(control.Response{Secrets: keys})
	}
	return fmt.Errorf("%w: verb %q", control.ErrInvalid, q.Verb)
}

func (d *daemon) sendReport(send func(control.Response) error) error {
	var r control.Report
	if err := d.do(func() error { r = d.report(); return nil }); err != nil {
		return err
	}
	return send(control.Response{Status: &r})
}

func (d *daemon) watchReports(ctx context.Context, send func(control.Response) error) error {
	wake := make(chan struct{}, 1)
	if err := d.do(func() error { d.watchers[wake] = true; return nil }); err != nil {
		return err
	}
	defer d.do(func() error { delete(d.watchers, wake); return nil })
	for {
		if err := d.sendReport(send); err != nil {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// turn is start, stop and restart.
func (d *daemon) turn(verb control.Verb, name string) error {
	s := d.servers[name]
	if s == nil || s.want == nil {
		return fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	if verb != control.Stop && !s.want.Enabled {
		return fmt.Errorf("%w: %q has enabled = false in %s", control.ErrDisabled, name, s.want.File)
	}
	s.run = verb != control.Stop
	before := s.status.State
	// Start is for a server that is not there; what serves is left alone.
	s.again = verb == control.Restart || verb == control.Start && before != control.Running && before != control.Starting
	asked := s.again
	d.converge(s)
	if asked && s.status.State == before { // it was tried, and whoever asked must see that it ended where it began
		s.status.Since = time.Now()
	}
	d.tell()
	return nil
}

// wakeWaiting starts what may have got its credential.
func (d *daemon) wakeWaiting() {
	for _, s := range d.servers {
		if s.status.State == control.Waiting {
			d.converge(s)
		}
	}
	d.tell()
}
