package systemd

import (
	"context"
	"fmt"
	"sync"

	"github.com/pfar/pfar/units"
)

// Observe asks systemd what has become of an instance, as when its launcher has hung up. If a launcher has attached
// meanwhile it asks again: the answer may be about the one before.
func (r *Runner) Observe(name string) {
	for r.observeOnce(name) {
	}
}

func (r *Runner) observeOnce(name string) (again bool) {
	r.mu.Lock()
	i := r.instances[name]
	busy := i == nil || i.starting || i.stopping != nil
	var pid int
	if i != nil {
		pid = i.update.PID
	}
	r.mu.Unlock()
	if busy {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), busTime)
	defer cancel()
	var s UnitState
	err := r.asks.persist(ctx, "asking for the state of "+name, func(ctx context.Context, bus *Bus) (err error) {
		s, err = bus.State(ctx, LauncherUnit(name))
		return err
	})
	if err != nil {
		r.cfg.Log.Warn("asking for the state of a server, ignoring", "server", name, "error", err)
		return false
	}
	over := false
	r.change(name, i, func(u *units.Update) {
		if again = u.PID != pid; again || i.starting {
			return
		}
		follow(u, s)
		if u.Ended && u.Outside {
			delete(r.instances, name)
			r.left(name, i)
			over = i.session != ""
		}
	})
	if over {
		go r.stopSockets(name)
	}
	return again
}

// stopSockets stops what listens for an instance that has ended by itself and never comes again: nobody has asked
// systemd to stop it, and with it its sockets (PartOf=).
func (r *Runner) stopSockets(name string) {
	stop := func(ctx context.Context, bus *Bus) error { return bus.StopUnit(ctx, LauncherUnit(name)) }
	err := r.asks.persist(context.Background(), "stopping what is left of "+name, stop)
	if err != nil {
		r.cfg.Log.Warn("stopping what is left of a process that has ended, ignoring", "instance", name, "error", err)
	}
}

// follow is what systemd's word on a launcher means for what is known of its server. The launcher tells the rest.
func follow(u *units.Update, s UnitState) {
	u.Unreached = s.Unreached
	switch {
	case s.Active == "inactive":
		if u.Ended { // by a job that failed
			return
		}
		gone(u)
		if s.Queued && u.Session == "" { // systemctl restart has stopped it, and starts it next
			u.State, u.Detail = units.StateStarting, "starting"
			return
		}
		u.Ended, u.Outside = true, true
		if u.Session == "" { // a session's launcher has said why, and ends with success
			u.State, u.Detail = units.StateStopped, "stopped by systemctl"
		}
	case s.Active == "failed":
		gone(u)
		u.Ended = true
		if u.State != units.StateFailed {
			u.State, u.Detail = units.StateFailed, s.why(units.StateFailed)
		}
	case s.Sub == "auto-restart":
		gone(u)
		if u.Session != "" { // what its client had in it is gone
			u.Ended, u.State, u.Detail = true, units.StateFailed, s.why(units.StateFailed)
			return
		}
		switch {
		case s.Result == "exit-code" && s.Code == units.ExitGateway: // no fault of the server's: it is on its way
			u.State, u.Detail = units.StateStarting, s.why(units.StateStarting)
		case u.State != units.StateBackOff && u.State != units.StateOffline:
			u.State, u.Detail = units.StateBackOff, s.why(units.StateBackOff)
		}
	case u.Ended: // started again, by somebody else
		u.Ended, u.State, u.Detail = false, units.StateStarting, "starting"
	}
}

// gone forgets what is true of a process.
func gone(u *units.Update) { u.PID, u.Tools, u.Limits, u.Shared, u.Version = 0, 0, "", "", "" }

// why is what a launcher has said on its way into a state, or else how it ended.
func (s UnitState) why(state string) string {
	if s.Said.State == state && s.Said.Detail != "" {
		return s.Said.Detail
	}
	return "the launcher " + s.ending()
}

// ending is how a service's process ended, in words.
func (s UnitState) ending() string {
	switch s.Result {
	case "exit-code":
		return fmt.Sprintf("ended with status %d; see its log", s.Code)
	case "signal", "core-dump":
		return fmt.Sprintf("was killed by signal %d", s.Code)
	case ResultOOM:
		return "was killed by the kernel: out of memory"
	}
	return "failed: " + s.Result
}

// Watch follows what systemd says until ctx ends.
func (r *Runner) Watch(ctx context.Context) {
	for {
		var changed <-chan string
		err := r.asks.persist(ctx, "watching", func(_ context.Context, bus *Bus) (err error) {
			changed, err = bus.watch(ctx)
			return err
		})
		if err != nil {
			return
		}
		r.lookAtAll()
		for unit := range changed {
			if unit == everyUnit {
				r.lookAtAll()
			} else if name, ok := InstanceOf(unit); ok {
				r.Observe(name)
			} else if unit == GatewayUnit || unit == portUnit {
				r.lookAtGateway(unit == portUnit)
			}
		}
		r.forgetJobs()
	}
}

// forgetJobs: a connection that ended took with it the news of what jobs came to.
func (r *Runner) forgetJobs() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.instances {
		select {
		case <-i.asked:
			i.starting = false
		default:
		}
	}
}

// lookAtAll observes all instances, and has the scopes of those that run under what their units say by now.
func (r *Runner) lookAtAll() {
	r.mu.Lock()
	var names []string
	for name, i := range r.instances {
		names = append(names, name)
		if i.update.Limits != "" && i.stopping == nil {
			go r.relimit(name, i)
		}
	}
	r.mu.Unlock()
	for _, name := range names {
		r.Observe(name)
	}
	r.lookAtGateway(false)
}

// gateway is the gateway's service, as systemd has told of it last.
type gateway struct {
	mu   sync.Mutex
	runs bool
	pid  int
}

// turned takes what systemd says of the gateway, and reports whether it is another process, or none any more.
func (g *gateway) turned(s UnitState, socket string) (runs, turned bool) {
	// It is started by the first who connects.
	runs = s.Active == "active" || s.Active == "activating" && s.Sub != "auto-restart" ||
		s.Active == "inactive" && socket == "active"
	g.mu.Lock()
	defer g.mu.Unlock()
	turned = runs != g.runs || s.MainPID != g.pid
	g.runs, g.pid = runs, s.MainPID
	return runs, turned
}

// lookAtGateway tells of a gateway that has turned. It also tells of one whose port has: the socket may listen before
// the gateway runs first.
func (r *Runner) lookAtGateway(port bool) {
	ctx, cancel := context.WithTimeout(context.Background(), busTime)
	defer cancel()
	var s UnitState
	var socket string
	err := r.asks.persist(ctx, "asking for the state of the gateway", func(ctx context.Context, bus *Bus) (err error) {
		if s, err = bus.State(ctx, GatewayUnit); err == nil {
			socket, err = bus.active(ctx, "pfar-gateway.socket")
		}
		return err
	})
	if err != nil {
		return
	}
	if runs, turned := r.gateway.turned(s, socket); turned || port {
		r.cfg.Events(units.GatewayTurned{Running: runs})
	}
}
