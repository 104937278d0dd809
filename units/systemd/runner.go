package systemd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
)

// Config is what a Runner needs to know.
type Config struct {
	Log     *slog.Logger
	Run     string // run directory
	Runtime string // where systemd makes the units' runtime directories: /run, or the user's
	Units   string // directory for drop-ins that do not outlive the machine's run; "": there is no need, or no use
	Link    *Link
	Limits  Limits
	// Told tells the gateway what a server that runs is by now, and returns once it goes by that.
	Told func(plan.Plan) error
	// Events is told each Event of an instance after the one before it. It may wait, and must not call the Runner.
	Events func(units.Event)
}

// Limits are those of the scopes that launchers have asked for.
type Limits interface {
	Relimit(ctx context.Context, bus *Bus, instance string, l sandbox.Limits) (how string, err error)
	Remove(instance string) error // returns when nothing of the scope is left
}

// Runner has systemd run plans as instances of the units that pfar ships. What runs is systemd's, and stays when pfard
// ends; a Runner begins with what it finds.
type Runner struct {
	cfg   Config
	plans plans
	binds binds

	asks    patient
	reloads reloads
	gateway gateway

	order     sync.Mutex // held while an update is made and told, so that the last told is the last made; taken before mu
	mu        sync.Mutex
	instances map[string]*instance
}

// instance is one that has been started and not stopped since.
type instance struct {
	digest   string // of the plan
	session  string
	update   units.Update
	starting bool          // a job of ours is under way: what systemd says may be older
	stopping chan struct{} // closed when it has been; nil: nobody stops it
	asked    chan struct{} // closed when systemd has been asked to start it, or will not be
	cancel   context.CancelFunc
	limiting sync.Mutex // held while its scope is given the limits of its plan
}

// NewRunner returns a Runner that knows of nothing yet.
func NewRunner(cfg Config) (*Runner, error) {
	asks := patient{cfg.Link, cfg.Log}
	r := &Runner{
		cfg: cfg, plans: plans{cfg.Run, cfg.Log}, binds: binds{cfg.Units, cfg.Run}, instances: map[string]*instance{},
		asks: asks, reloads: reloads{asks: asks}, gateway: gateway{runs: true},
	}
	return r, r.plans.make()
}

// GatewayUnit is the gateway's service.
const GatewayUnit = "pfar-gateway.service"

const busTime = 10 * time.Second // for one question; systemd answers in milliseconds

// Start has systemd start the server of a plan, or the process for the one session that the plan names. It returns once
// that is under way; what becomes of it comes by Config.Events.
func (r *Runner) Start(p plan.Plan, _ units.Secrets) error {
	name := units.Instance(p.Name, p.Gateway.Session)
	if s := p.Gateway.Session; s != "" && (!units.IsSession(s) || p.State) {
		return fmt.Errorf("starting %q for session %q: want a handle of units.NewSession, and a server without a home", p.Name, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[name] != nil {
		return fmt.Errorf("starting %q: it has been started already", name)
	}
	if err := makeHome(p); err != nil {
		return err
	}
	changed, err := r.binds.write(name, p)
	if err != nil {
		return err
	}
	digest, err := r.plans.write(name, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := newInstance(p, digest)
	i.starting, i.asked, i.cancel = true, make(chan struct{}), cancel
	r.instances[name] = i
	var reloaded <-chan struct{}
	if changed {
		reloaded = r.reloads.reload()
	}
	go r.begin(ctx, name, i, reloaded)
	return nil
}

func newInstance(p plan.Plan, digest string) *instance {
	return &instance{
		digest: digest, session: p.Gateway.Session,
		update: units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateStarting, Detail: "starting"},
	}
}

// begin asks systemd until it answers, once it has read the unit again; nil: it need not.
func (r *Runner) begin(ctx context.Context, name string, i *instance, reloaded <-chan struct{}) {
	defer close(i.asked)
	if reloaded != nil {
		select {
		case <-reloaded:
		case <-ctx.Done():
			return
		}
	}
	err := r.asks.persist(ctx, "starting "+name, func(ctx context.Context, bus *Bus) error {
		return bus.StartUnit(ctx, LauncherUnit(name), func(result string) { r.started(name, i, result) })
	})
	switch {
	case err == nil:
		r.plans.note(name, i.digest, i.digest)
	case ctx.Err() == nil:
		r.change(name, i, func(u *units.Update) {
			i.starting = false
			u.State, u.Detail, u.Ended = units.StateFailed, err.Error(), true
		})
	}
}

// change applies f to an instance that nobody stops and tells of it. The lock is held in f.
func (r *Runner) change(name string, i *instance, f func(*units.Update)) {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	if r.instances[name] != i || i.stopping != nil {
		r.mu.Unlock()
		return
	}
	before := i.update
	f(&i.update)
	after := i.update
	r.mu.Unlock()
	if after != before {
		r.cfg.Events(after)
	}
}

// started takes the result of the job that begin has queued.
func (r *Runner) started(name string, i *instance, result string) {
	r.change(name, i, func(u *units.Update) {
		i.starting = false
		// Without these its process has not run, so that nobody else will say why.
		switch result {
		case "assert", "dependency", "invalid":
			u.State, u.Detail, u.Ended = units.StateFailed, jobWords(name, result), true
		}
	})
	r.Observe(name)
}

func jobWords(instance, result string) string {
	return fmt.Sprintf("systemd could not start it (%s); systemctl status %s", result, LauncherUnit(instance))
}

// Stop ends an instance and returns when nothing of it is left, whoever asked first. If systemd does not answer it
// waits until it does.
func (r *Runner) Stop(name string) {
	r.mu.Lock()
	i := r.instances[name]
	if i == nil {
		r.mu.Unlock()
		return
	}
	if i.stopping != nil {
		r.mu.Unlock()
		<-i.stopping
		return
	}
	i.stopping = make(chan struct{})
	if i.cancel != nil {
		i.cancel()
	}
	r.mu.Unlock()
	if i.asked != nil {
		<-i.asked
	}
	if err := r.plans.stop(name); err != nil {
		r.cfg.Log.Warn("remembering that a server is being stopped, ignoring", "server", name, "error", err)
	}
	err := r.asks.persist(context.Background(), "stopping "+name, func(ctx context.Context, bus *Bus) error {
		if err := bus.StopUnit(ctx, LauncherUnit(name)); err != nil {
			return err
		}
		return bus.StopUnit(ctx, BridgeUnit(name)) // which ends by itself (PartOf=), but nobody would wait for that
	})
	if err == nil {
		err = r.cfg.Limits.Remove(name)
	}
	if err != nil {
		r.cfg.Log.Error("stopping a server", "server", name, "error", err)
	}
	if err := r.plans.unapply(name); err != nil {
		r.cfg.Log.Warn("forgetting that a server was started, ignoring", "server", name, "error", err)
	}
	r.mu.Lock()
	delete(r.instances, name)
	r.left(name, i)
	r.mu.Unlock()
	close(i.stopping)
}

// makeHome makes the directories of a server that has some: systemd shows to a unit what is there when it starts. Whose
// they are is known once it has. Whoever has a program run once has made what it writes to.
func makeHome(p plan.Plan) error {
	if p.Sandbox.Once {
		return nil
	}
	for _, dir := range p.OwnDirs() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a directory of %q: %w", p.Name, err)
		}
	}
	return nil
}

// left forgets what is kept of an instance that has ended: all of a session's and of one that nobody knew, nothing of a
// server's that may be started again.
func (r *Runner) left(name string, i *instance) {
	r.cfg.Events(units.Left{Instance: name})
	if i.session != "" || i.digest == "" {
		r.forget(name)
	}
}

// Plan is what an instance's units are to run.
func (r *Runner) Plan(instance string) (plan.Plan, error) {
	p, _, err := r.plans.read(instance)
	return p, err
}

// Prepare makes sure that Start, once what runs has ended, will not fail for want of space.
func (r *Runner) Prepare(p plan.Plan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans.prepare(units.Instance(p.Name, p.Gateway.Session), p)
}

// Offer lets others start a server that does not run (systemctl(1)), from this plan; nil takes that back.
func (r *Runner) Offer(server string, p *plan.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if p == nil {
		err = r.plans.remove(server)
	} else {
		var changed bool
		if changed, err = r.binds.write(server, *p); changed {
			r.reloads.reload()
		}
		_, werr := r.plans.write(server, *p)
		err = errors.Join(err, werr, makeHome(*p))
		if r.instances[server] == nil { // or it has been started in the meantime
			err = errors.Join(err, r.plans.unapply(server))
		}
	}
	if err != nil {
		r.cfg.Log.Warn("saying what systemctl may start, ignoring", "server", server, "error", err)
	}
}

// Forget gives up what is kept for a server that has no declaration any more.
func (r *Runner) Forget(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(server)
}

func (r *Runner) forget(name string) {
	changed, err := r.binds.remove(name)
	if changed {
		r.reloads.reload()
	}
	errs := []error{err, r.plans.remove(name)}
	for _, unit := range []string{"pfar-mcp", "pfar-egress"} {
		for _, dir := range []string{unit, filepath.Join("private", unit)} { // where DynamicUser= has them
			errs = append(errs, os.RemoveAll(filepath.Join(r.cfg.Runtime, dir, name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.cfg.Log.Warn("removing what is left of a server, ignoring", "server", name, "error", err)
	}
}

// Log says where what an instance writes is to be read.
func (r *Runner) Log(name string) string {
	command := "journalctl -u "
	if os.Geteuid() != 0 {
		command = "journalctl --user -u "
	}
	if name == units.GatewayLog {
		return command + GatewayUnit
	}
	return command + LauncherUnit(name)
}

// Settle returns when systemd has read all that was written for it.
func (r *Runner) Settle() { r.reloads.all.Wait() }

// Bridges returns the instances of a server whose bridges run.
func (r *Runner) Bridges(ctx context.Context, server string) (running []string, err error) {
	r.mu.Lock()
	var names []string
	for name, i := range r.instances {
		if i.update.Server == server {
			names = append(names, name)
		}
	}
	r.mu.Unlock()
	err = r.asks.persist(ctx, "asking for the bridges of "+server, func(ctx context.Context, bus *Bus) error {
		running = nil
		for _, name := range names {
			pid, err := bus.MainPID(ctx, BridgeUnit(name))
			if err != nil {
				return err
			}
			if pid != 0 {
				running = append(running, name)
			}
		}
		return nil
	})
	return running, err
}

// Relimit is asked when a launcher has said how its server is held, which it was placed with limits for: by now the
// plan may have others. It does not wait.
func (r *Runner) Relimit(name string, placed sandbox.Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[name]
	if p, _, err := r.plans.read(name); i != nil && err == nil && p.Sandbox.Limits != placed {
		go r.relimit(name, i)
	}
}

// relimit has an instance's scope held to the limits of its plan, the newest at the time that systemd is asked.
func (r *Runner) relimit(name string, i *instance) {
	i.limiting.Lock()
	defer i.limiting.Unlock()
	var how string
	err := r.asks.persist(context.Background(), "changing the limits of "+name, func(ctx context.Context, bus *Bus) error {
		p, _, err := r.plans.read(name)
		if err != nil {
			return Final(err) // it has been forgotten
		}
		how, err = r.cfg.Limits.Relimit(ctx, bus, name, p.Sandbox.Limits)
		return err
	})
	if err != nil { // it does not run at this moment: it is started with the new ones
		r.cfg.Log.Warn("changing the limits of a server that runs, ignoring", "server", name, "error", err)
		return
	}
	r.change(name, i, func(u *units.Update) { u.Limits = how })
}
