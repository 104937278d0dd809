package main

import (
	"context"
	"fmt"
	"os"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/systemd"
)

// runPage has systemd run the process of a page, which attaches (paged), and returns when it has hung up.
func (u *taskUnits) runPage(ctx context.Context, instance string, talk pageTalk) error {
	over := make(chan struct{})
	u.mu.Lock()
	u.pages[instance] = func(conn *attach.Conn) {
		defer close(over)
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		talk(conn)
	}
	u.mu.Unlock()
	defer u.forgetPage(instance)
	unit := systemd.PageUnit(instance)
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return err
	}
	started := make(chan string, 1)
	if err := bus.StartUnit(ctx, unit, func(result string) { started <- result }); err != nil {
		return err
	}
	// Whatever ends the page, nothing of it stays. ctx may have ended.
	defer tellSystemd(u.log, u.link, "ending a page", instance, func(ctx context.Context, bus *systemd.Bus) error {
		return bus.StopUnit(ctx, unit)
	})
	select {
	case result := <-started:
		if result != "done" {
			return fmt.Errorf("its process could not be started (%s): systemctl status %s", result, unit)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return nil
	}
}

func (u *taskUnits) forgetPage(instance string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pages, instance)
}

// paged is the conversation with the process of a page. Each has one: what comes again is of an earlier pfard, and
// ends.
func (u *taskUnits) paged(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	u.mu.Lock()
	talk := u.pages[p.Instance]
	delete(u.pages, p.Instance)
	u.mu.Unlock()
	if talk == nil || hello.Again {
		return fmt.Errorf("nobody has asked for %q", systemd.PageUnit(p.Instance))
	}
	talk(conn)
	return nil
}

// localPages has a local runner start the processes, each at the other end of a pair of sockets.
type localPages struct{ runner *local.Runner }

func (l localPages) runPage(ctx context.Context, instance string, talk pageTalk) error {
	run := func(theirs *os.File) error { return l.runner.Page(ctx, instance, theirs) }
	err := overPair(units.FDPage, run, func(conn *attach.Conn, h *attach.Hello) {
		if h.Page {
			talk(conn)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}
