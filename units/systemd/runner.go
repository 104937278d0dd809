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

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/sandbox"
	"github.com/pfar/pfar/units"
)

// Config is what a Runner needs to know.
type Config struct {
	Log     *slog.Logger
	Run     string // run directory
	Runtime string // where systemd makes the units' runtime directories: /run, or the user's
	Link    *Link
	Limits  Limits
	Changed func(units.Update)    // called for each change, one after the other; it may wait
	Gateway func(running bool)    // called when the gateway's service has come up or gone down
	Left    func(instance string) // called when nothing of an instance is left, before Stop returns; it must not call the Runner
}

// Limits are those of the scopes that launchers have asked for.
type Limits interface {
	Relimit(ctx context.Context, instance string, l sandbox.Limits) (how string, err error)
	Remove(instance string) error // returns when nothing of the scope is left
}

// Runner has systemd run plans as instances of the units that pfar ships. What runs is systemd's, and stays when pfard
// ends; a Runner begins with what it finds.
type Runner struct {
	cfg   Config
	plans plans

	order     sync.Mutex // held while an update is made and told, so that the last told is the last made; taken before mu
	mu        sync.Mutex
	instances map[string]*instance
	gateway   bool
}

// instance is one that has been started and not stopped since.
type instance struct {
	digest   string // of the plan
	server   string
	session  string
	update   units.Update
	starting bool          // a job of ours is under way: what systemd says may be older
	stopping chan struct{} // closed when it has been; nil: nobody stops it
	asked    chan struct{} // closed when systemd has been asked to start it, or will not be
	cancel   context.CancelFunc
}

// NewRunner returns a Runner that knows of nothing yet.
func NewRunner(cfg Config) (*Runner, error) {
	r := &Runner{cfg: cfg, plans: plans{cfg.Run}, instances: map[string]*instance{}, gateway: true}
	return r, r.plans.make()
}

// GatewayUnit is the gateway's service.
const GatewayUnit = "pfar-gateway.service"

// pauses between tries to reach systemd.
const (
	firstPause = 20 * time.Millisecond
	maxPause   = 2 * time.Second
	busTime    = 10 * time.Second // for one question; systemd answers in milliseconds
	stopTime   = time.Minute      // for a unit to stop: TimeoutStopSec= is shorter
)

// Start has systemd start the server of a plan, or the process for the one session that the plan names. It returns once
// that is under way; what becomes of it comes by Config.Changed.
func (r *Runner) Start(p generator.Plan, _ map[string][]byte) error {
	name := units.Instance(p.Name, p.Gateway.Session)
	if s := p.Gateway.Session; s != "" && (!units.IsSession(s) || p.State) {
		return fmt.Errorf("starting %q for session %q: want a handle of units.NewSession, and a server without a home", p.Name, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.instances[name] != nil {
		return fmt.Errorf("starting %q: it has been started already", name)
	}
	digest, err := r.plans.write(name, p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	i := newInstance(p, digest)
	i.starting, i.asked, i.cancel = true, make(chan struct{}), cancel
	r.instances[name] = i
	go r.begin(ctx, name, i)
	return nil
}

func newInstance(p generator.Plan, digest string) *instance {
	return &instance{
		digest: digest, server: p.Name, session: p.Gateway.Session,
		update: units.Update{Server: p.Name, Session: p.Gateway.Session, State: units.StateStarting, Detail: "starting"},
	}
}

// begin asks systemd until it answers.
func (r *Runner) begin(ctx context.Context, name string, i *instance) {
	defer close(i.asked)
	err := r.persist(ctx, "starting "+name, func(ctx context.Context, bus *Bus) error {
		return bus.StartUnit(ctx, LauncherUnit(name), func(result string) { r.started(name, i, result) })
	})
	switch {
	case err == nil:
		r.mark(name, i.digest, i.digest)
	case ctx.Err() == nil:
		r.change(name, i, func(u *units.Update) {
			i.starting = false
			u.State, u.Detail, u.Ended = units.StateFailed, err.Error(), true
		})
	}
}

// persist repeats a question until systemd has answered it, whatever it answers, or ctx ends.
func (r *Runner) persist(ctx context.Context, doing string, ask func(context.Context, *Bus) error) error {
	var told bool
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := r.ask(ctx, ask)
		if err == nil || Answered(err) || errors.Is(err, ErrMasked) || errors.Is(err, errLinkClosed) {
			return err
		}
		if !told && ctx.Err() == nil {
			told = true
			r.cfg.Log.Warn("systemd does not answer, trying again", "doing", doing, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *Runner) ask(ctx context.Context, question func(context.Context, *Bus) error) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	bus, err := r.cfg.Link.Bus(ctx)
	if err != nil {
		return err
	}
	return question(ctx, bus)
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
		r.cfg.Changed(after)
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
	r.observe(name)
}

func jobWords(instance, result string) string {
	return fmt.Sprintf("systemd could not start it (%s); systemctl status %s", result, LauncherUnit(instance))
}

// observe asks systemd what has become of an instance.
func (r *Runner) observe(name string) {
	r.mu.Lock()
	i := r.instances[name]
	busy := i == nil || i.starting || i.stopping != nil
	r.mu.Unlock()
	if busy {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), busTime)
	defer cancel()
	var s UnitState
	err := r.ask(ctx, func(ctx context.Context, bus *Bus) (err error) {
		s, err = bus.State(ctx, LauncherUnit(name))
		return err
	})
	if err != nil {
		r.cfg.Log.Warn("asking for the state of a server, ignoring", "server", name, "error", err)
		return // whoever watches asks again once systemd is back
	}
	r.change(name, i, func(u *units.Update) {
		if i.starting {
			return
		}
		follow(u, s)
		if u.Ended && u.Outside {
			delete(r.instances, name)
			r.left(name, i)
		}
	})
}

// follow is what systemd's word on a launcher means for what is known of its server. The launcher tells the rest.
func follow(u *units.Update, s UnitState) {
	switch {
	case s.Active == "inactive":
		if u.Ended { // by a job that failed
			return
		}
		gone(u)
		u.Ended, u.Outside = true, true
		if u.Session == "" { // a session's launcher has said why, and ends with success
			u.State, u.Detail = units.StateStopped, "stopped by systemctl"
		}
	case s.Active == "failed":
		gone(u)
		u.Ended = true
		if u.State != units.StateFailed {
			u.State, u.Detail = units.StateFailed, "the launcher "+s.ending()
		}
	case s.Sub == "auto-restart":
		gone(u)
		if u.State != units.StateBackOff {
			u.State, u.Detail = units.StateBackOff, "the launcher "+s.ending()
		}
	case u.Ended: // started again, by somebody else
		u.Ended, u.State, u.Detail = false, units.StateStarting, "starting"
	}
}

// gone forgets what is true of a process.
func gone(u *units.Update) { u.PID, u.Tools, u.Limits = 0, 0, "" }

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

// Stop ends an instance and returns when nothing of it is left, whoever asked first. If systemd does not answer it waits
// until it does.
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
	if err := r.plans.unapply(name); err != nil {
		r.cfg.Log.Warn("forgetting that a server was started, ignoring", "server", name, "error", err)
	}
	err := r.persist(context.Background(), "stopping "+name, func(ctx context.Context, bus *Bus) error {
		return bus.StopUnit(ctx, LauncherUnit(name))
	})
	if err == nil {
		err = r.cfg.Limits.Remove(name)
	}
	if err != nil {
		r.cfg.Log.Error("stopping a server", "server", name, "error", err)
	}
	r.mu.Lock()
	delete(r.instances, name)
	r.left(name, i)
	r.mu.Unlock()
	close(i.stopping)
}

// left forgets what is kept of an instance that has ended: all of a session's, nothing of a server's that may be
// started again.
func (r *Runner) left(name string, i *instance) {
	r.cfg.Left(name)
	if i.session != "" {
		r.forget(name)
	}
}

// Offer lets others start a server that does not run (systemctl(1)), from this plan; nil takes that back.
func (r *Runner) Offer(server string, p *generator.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	if p == nil {
		err = r.plans.remove(server)
	} else {
		_, err = r.plans.write(server, *p)
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
	errs := []error{r.plans.remove(name)}
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
	if name == units.GatewayLog {
		return "journalctl -u " + GatewayUnit
	}
	return "journalctl -u " + LauncherUnit(name)
}

// mark remembers that a process was started with the plan of one digest, which has become the other since.
func (r *Runner) mark(name, started, now string) {
	if err := r.plans.apply(name, started, now); err != nil {
		r.cfg.Log.Warn("remembering that a server was started, ignoring", "server", name, "error", err)
	}
}

// Adjust has a running instance held to the limits of another plan, if there is no other difference, and reports whether
// there is none.
func (r *Runner) Adjust(p generator.Plan) bool {
	name := units.Instance(p.Name, p.Gateway.Session)
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[name]
	old, _, err := r.plans.read(name)
	if i == nil || i.stopping != nil || err != nil || !generator.SameButForLimits(old, p) {
		return false
	}
	started, _ := r.plans.applied(name)
	digest, err := r.plans.write(name, p)
	if err != nil {
		r.cfg.Log.Error("changing the limits of a server", "server", name, "error", err)
		return false
	}
	r.mark(name, started, digest)
	go r.relimit(name, i, p.Sandbox.Limits)
	return true
}

func (r *Runner) relimit(name string, i *instance, l sandbox.Limits) {
	ctx, cancel := context.WithTimeout(context.Background(), busTime)
	defer cancel()
	how, err := r.cfg.Limits.Relimit(ctx, name, l)
	if err != nil { // it does not run at this moment: it is started with the new ones
		r.cfg.Log.Warn("changing the limits of a server that runs, ignoring", "server", name, "error", err)
		return
	}
	r.change(name, i, func(u *units.Update) { u.Limits = how })
}

// Attach is asked when a launcher has attached: may this process run, and what? One that somebody else has had started
// is known from now on, and told of as coming from Outside.
func (r *Runner) Attach(name, digest string, pid int) (generator.Plan, error) {
	r.order.Lock()
	defer r.order.Unlock()
	p, update, err := r.attach(name, digest, pid)
	if err == nil {
		r.cfg.Changed(update)
	}
	return p, err
}

func (r *Runner) attach(name, digest string, pid int) (generator.Plan, units.Update, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, now, err := r.plans.read(name)
	if err != nil {
		return p, units.Update{}, err
	}
	started, _ := r.plans.applied(name)
	i := r.instances[name]
	switch {
	case digest != now && digest != started:
		err = errors.New("its plan has changed since it was started")
	case i != nil && i.stopping != nil:
		err = errors.New("it is being stopped")
	case i == nil && p.Gateway.Session != "":
		err = errors.New("its session is over")
	}
	if err != nil {
		return p, units.Update{}, err
	}
	outside := i == nil
	if outside {
		i = newInstance(p, now)
		r.instances[name] = i
		r.mark(name, digest, now)
	}
	u := &i.update
	if u.Ended {
		u.Ended, u.State, u.Detail = false, units.StateStarting, "starting"
	}
	u.PID = pid
	told := *u
	told.Outside = outside
	return p, told, nil
}

// Identify says which user an attached launcher's sandbox runs as.
func (r *Runner) Identify(name string, uid int) { r.tell(name, func(u *units.Update) { u.UID = uid }) }

// Notify takes what a launcher says (package units).
func (r *Runner) Notify(name string, vars map[string]string) {
	r.tell(name, func(u *units.Update) { u.Take(vars) })
}

// Refused takes what an instance's bridge has refused, in words.
func (r *Runner) Refused(name, words string) {
	r.tell(name, func(u *units.Update) { u.Refusal = words })
}

// Limited takes how an instance's limits are held.
func (r *Runner) Limited(name, how string) { r.tell(name, func(u *units.Update) { u.Limits = how }) }

func (r *Runner) tell(name string, f func(*units.Update)) {
	r.mu.Lock()
	i := r.instances[name]
	r.mu.Unlock()
	if i != nil {
		r.change(name, i, f)
	}
}

// Detached is told when a launcher has hung up: it ended, if systemd says so.
func (r *Runner) Detached(name string) { r.observe(name) }

// Found is an instance that was there when the Runner began.
type Found struct {
	Plan   generator.Plan
	Update units.Update
}

// Adopt takes over what systemd runs, which an earlier pfard has started, and returns it with the digests of the plans
// that were applied, by server: one that is not among what was found has been stopped since.
func (r *Runner) Adopt(ctx context.Context) (found []Found, applied map[string]string, err error) {
	var known map[string]UnitState
	err = r.persist(ctx, "looking for what runs", func(ctx context.Context, bus *Bus) (err error) {
		known, err = bus.Launchers(ctx)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	names, err := r.plans.instances()
	if err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	applied = map[string]string{}
	for _, name := range names {
		s, ok := known[name]
		delete(known, name)
		p, digest, err := r.plans.read(name)
		idle := !ok || s.Active == "inactive"
		switch {
		case err != nil:
			r.cfg.Log.Warn("a plan cannot be read; what runs by it is stopped", "server", name, "error", err)
			known[name] = s // "" is not inactive
			r.forget(name)
			continue
		case idle && p.Gateway.Session != "":
			r.forget(name)
			continue
		}
		if _, now := r.plans.applied(name); now != "" {
			applied[name] = now
		}
		if idle {
			continue
		}
		i := newInstance(p, digest)
		follow(&i.update, s)
		r.instances[name] = i
		found = append(found, Found{p, i.update})
	}
	for name, s := range known { // systemctl shows it, and nobody knows what it is
		if s.Active == "inactive" {
			continue
		}
		r.instances[name] = &instance{update: units.Update{Server: name}}
		go r.Stop(name)
	}
	return found, applied, nil
}

// Watch follows what systemd says until ctx ends.
func (r *Runner) Watch(ctx context.Context) {
	for ctx.Err() == nil {
		var bus *Bus
		err := r.persist(ctx, "watching", func(_ context.Context, b *Bus) error { bus = b; return nil })
		if err != nil {
			return
		}
		changed := bus.watch()
		r.lookAtAll()
		for open := true; open; {
			var unit string
			select {
			case <-ctx.Done():
				return
			case unit, open = <-changed:
			}
			name, ok := instanceOf(unit)
			switch {
			case ok:
				r.observe(name)
			case unit == GatewayUnit:
				r.lookAtGateway()
			case unit == "":
				r.lookAtAll()
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

func (r *Runner) lookAtAll() {
	r.mu.Lock()
	var names []string
	for name := range r.instances {
		names = append(names, name)
	}
	r.mu.Unlock()
	for _, name := range names {
		r.observe(name)
	}
	r.lookAtGateway()
}

func (r *Runner) lookAtGateway() {
	ctx, cancel := context.WithTimeout(context.Background(), busTime)
	defer cancel()
	var s UnitState
	err := r.ask(ctx, func(ctx context.Context, bus *Bus) (err error) {
		s, err = bus.State(ctx, GatewayUnit)
		return err
	})
	if err != nil {
		return
	}
	running := s.Active == "active" || s.Active == "activating" && s.Sub != "auto-restart"
	r.mu.Lock()
	changed := running != r.gateway
	r.gateway = running
	r.mu.Unlock()
	if changed {
		r.cfg.Gateway(running)
	}
}
