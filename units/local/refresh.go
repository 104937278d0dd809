package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// Errand is what a process of pfar-egress is run for beside servers.
type Errand string

const (
	Refresh Errand = "refresh" // a token set is refreshed
	Login   Errand = "login"   // one is obtained
)

// Send runs a process on an errand, as its unit does, and returns when it has ended. It gets what it needs by the
// connection, which is closed here.
func (r *Runner) Send(ctx context.Context, errand Errand, instance string, conn *os.File) error {
	return r.brief(ctx, "pfar-"+string(errand)+"@"+instance, func(name string) (spec, error) {
		return r.errandSpec(errand, name)
	}, descriptor{units.FDRefresh, conn})
}

// Page runs the process that serves a one-time page, as pfar-setup@.service does, and returns when it has ended. It
// gets what it shows by the connection, which is closed here.
func (r *Runner) Page(ctx context.Context, instance string, conn *os.File) error {
	of := func(name string) (spec, error) { return r.ownSpec(name, units.PageLog, "pfar-setup") }
	return r.brief(ctx, "pfar-setup@"+instance, of, descriptor{units.FDPage, conn})
}

// Console runs the process that serves the console of this process's own user, as pfar-console@.service does, and
// returns when it has ended. It connects to the gateway's socket for the operator, as that user.
func (r *Runner) Console(ctx context.Context, instance, operator string, conn *os.File) error {
	of := func(name string) (spec, error) { return r.consoleSpec(name, "--operator", operator) }
	return r.brief(ctx, "pfar-console@"+instance, of, descriptor{units.FDPage, conn})
}

// KeepConsole runs the process that serves the remote console, as pfar-console.service does, until Close. If
// the process ends, another one follows. It connects to the gateway's socket for that console; arguments say where it
// listens. talk gets this side of the connection to each process, and closes it.
func (r *Runner) KeepConsole(passkey string, arguments []string, talk func(*attach.Conn)) {
	again, began := new(impatience), time.Time{}
	arguments = append([]string{"--remote", "--operator", passkey}, arguments...)
	kept := &service{
		name: "pfar-console", dirs: r.dirs, log: r.cfg.Log, timeout: stopTimeout,
		restart: func(code int) (time.Duration, bool) {
			again.ended(time.Since(began))
			return again.again(code)
		},
		prepare: func() (spec, error) {
			began = time.Now()
			sp, err := r.consoleSpec("pfar-console", arguments...)
			if err != nil {
				return sp, err
			}
			ours, theirs, err := attach.Pair(units.FDPage)
			if err != nil {
				return sp, err
			}
			go talk(ours)
			sp.descriptors = []descriptor{{units.FDPage, theirs}}
			return sp, nil
		},
		notice: func(m notification) { m.close() },
		changed: func(p phase, _ *process, code int) {
			if p == autoRestart {
				r.cfg.Log.Warn("the remote console has ended, starting it again", "status", code,
					"log", r.dirs.log(units.ConsoleLog))
			}
		},
	}
	r.mu.Lock()
	r.console = kept
	r.mu.Unlock()
	kept.start()
}

func (r *Runner) consoleSpec(name string, arguments ...string) (spec, error) {
	log := r.dirs.log(units.ConsoleLog)
	argv := append([]string{filepath.Join(r.cfg.Bin, "pfar-console")}, arguments...)
	return spec{name: name, argv: argv, log: log}, rotate(log, units.LogSegment)
}

// brief runs a process that has one thing to do, and returns when it has ended.
func (r *Runner) brief(ctx context.Context, name string, of func(name string) (spec, error), conn descriptor) error {
	sp, err := of(name)
	if err != nil {
		conn.file.Close()
		return err
	}
	sp.descriptors = []descriptor{conn}
	defer r.endBrief(sp.name)
	p, err := spawn(sp, r.dirs.credentials(sp.name))
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		<-p.exited
		return context.Cause(ctx)
	}
	if p.code != 0 {
		return fmt.Errorf("the process ended with %d; its log is %s", p.code, sp.log)
	}
	return nil
}

func (r *Runner) errandSpec(errand Errand, name string) (spec, error) {
	log := map[Errand]string{Refresh: units.RefreshLog, Login: units.LoginLog}[errand]
	sp, err := r.ownSpec(name, log, "pfar-egress", "--"+string(errand))
	sp.env = roots(os.Environ())
	if r.cfg.Upstream != nil {
		sp.credentials = map[string][]byte{units.CredentialUpstream: r.cfg.Upstream}
	}
	return sp, err
}

// ownSpec says how a process with a user of its own is run.
func (r *Runner) ownSpec(name, log, program string, arguments ...string) (spec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	user, err := r.users.acquire(name)
	if err != nil {
		return spec{}, err
	}
	program, binds, err := r.program(program, name, user)
	if err != nil {
		return spec{}, err
	}
	sp := spec{name: name, argv: append([]string{program}, arguments...), user: user, binds: binds, log: r.dirs.log(log)}
	return sp, rotate(sp.log, units.LogSegment)
}

// endBrief gives back what a process had.
func (r *Runner) endBrief(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users.release(name)
	_ = removeCredentials(r.dirs.credentials(name))
	if err := os.RemoveAll(r.dirs.binds(name)); err != nil {
		r.cfg.Log.Warn("removing what is left of "+name+", ignoring", "error", err)
	}
}
