package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/systemd"
)

// runPage has systemd run the process of a page, which attaches (paged), and returns when it has hung up.
func (u *taskUnits) runPage(ctx context.Context, instance string, talk pageTalk) error {
	return u.serve(ctx, systemd.PageUnit(instance), talk)
}

// runConsole is runPage for the console of a user.
func (u *taskUnits) runConsole(ctx context.Context, uid int, talk pageTalk) error {
	return u.serve(ctx, systemd.ConsoleUnit(strconv.Itoa(uid)), talk)
}

func (u *taskUnits) serve(ctx context.Context, unit string, talk pageTalk) error {
	over := make(chan struct{})
	u.mu.Lock()
	u.pages[unit] = func(conn *attach.Conn) {
		defer close(over)
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		talk(conn)
	}
	u.mu.Unlock()
	defer u.forgetPage(unit)
	bus, err := u.link.Bus(ctx)
	if err != nil {
		return err
	}
	started := make(chan string, 1)
	if err := bus.StartUnit(ctx, unit, func(result string) { started <- result }); err != nil {
		return err
	}
	// Whatever ends the page, nothing of it stays. ctx may have ended.
	defer tellSystemd(u.log, u.link, "ending a page", unit, func(ctx context.Context, bus *systemd.Bus) error {
		return bus.StopUnit(ctx, unit)
	})
	select {
	case result := <-started:
		if result != "done" {
			return fmt.Errorf("the process could not be started (%s): systemctl status %s", result, unit)
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

func (u *taskUnits) forgetPage(unit string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.pages, unit)
}

// paged is the conversation with the process of a page. Each has one: what comes again is of an earlier pfard, and
// ends, unless it serves the remote console.
func (u *taskUnits) paged(conn *attach.Conn, p systemd.Process, hello *attach.Hello) error {
	if p.Remote {
		u.remotely(conn)
		return nil
	}
	unit := systemd.PageUnit(p.Instance)
	if p.Console {
		unit = systemd.ConsoleUnit(p.Instance)
	}
	u.mu.Lock()
	talk := u.pages[unit]
	delete(u.pages, unit)
	u.mu.Unlock()
	if talk == nil || hello.Again {
		return fmt.Errorf("nobody has asked for %q", unit)
	}
	talk(conn)
	return nil
}

// remotely is the conversation with the process of the remote console. One that comes again takes the place
// of its earlier connection.
func (u *taskUnits) remotely(conn *attach.Conn) {
	u.mu.Lock()
	before := u.talks
	u.talks = conn
	u.mu.Unlock()
	if before != nil {
		before.Close()
	}
	u.remote(conn)
}

// localPages has a local runner start the processes, each at the other end of a pair of sockets.
type localPages struct {
	runner *local.Runner
	dirs   control.Dirs
	pfar   runner // runs pfar's own program
}

func (l localPages) runPage(ctx context.Context, instance string, talk pageTalk) error {
	return l.serve(ctx, talk, func(theirs *os.File) error { return l.runner.Page(ctx, instance, theirs) })
}

func (l localPages) runConsole(ctx context.Context, uid int, talk pageTalk) error {
	return l.serve(ctx, talk, func(theirs *os.File) error {
		return l.runner.Console(ctx, strconv.Itoa(uid), l.dirs.Operator(), theirs)
	})
}

func (l localPages) serve(ctx context.Context, talk pageTalk, run func(theirs *os.File) error) error {
	err := overPair(units.FDPage, run, func(conn *attach.Conn, h *attach.Hello) {
		if h.Page || h.Console {
			talk(conn)
		}
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keepConsole has the process of the remote console run as long as pfard does, if there is to be one.
func (l localPages) keepConsole(at remoteConsole, talk pageTalk) {
	if at == (remoteConsole{}) {
		return
	}
	l.runner.KeepConsole(l.dirs.Passkey(), at.arguments(), func(conn *attach.Conn) {
		afterHello(conn, func(conn *attach.Conn, h *attach.Hello) {
			if h.Console && h.Remote {
				talk(conn)
			}
		})
	})
}
