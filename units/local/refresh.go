package local

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
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
	sp, err := r.errandSpec(errand, instance)
	if err != nil {
		conn.Close()
		return err
	}
	sp.descriptors = []descriptor{{units.FDRefresh, conn}}
	defer r.endErrand(sp.name)
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
		return fmt.Errorf("its process ended with %d; its log is %s", p.code, sp.log)
	}
	return nil
}

func (r *Runner) errandSpec(errand Errand, instance string) (sp spec, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := "pfar-" + string(errand) + "@" + instance
	user, err := r.users.acquire(name)
	if err != nil {
		return spec{}, err
	}
	program, binds, err := r.program("pfar-egress", name, user)
	if err != nil {
		return spec{}, err
	}
	log := r.dirs.log(map[Errand]string{Refresh: units.RefreshLog, Login: units.LoginLog}[errand])
	if err := rotate(log, units.LogSegment); err != nil {
		return spec{}, err
	}
	sp = spec{name: name, argv: []string{program, "--" + string(errand)}, env: roots(os.Environ()), user: user,
		binds: binds, log: log}
	if r.cfg.Upstream != nil {
		sp.credentials = map[string][]byte{units.CredentialUpstream: r.cfg.Upstream}
	}
	return sp, nil
}

func (r *Runner) endErrand(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users.release(name)
	_ = removeCredentials(r.dirs.credentials(name))
	if err := os.RemoveAll(r.dirs.binds(name)); err != nil {
		r.cfg.Log.Warn("removing what is left of "+name+", ignoring", "error", err)
	}
}
