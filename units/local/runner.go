// Package local runs pfar's processes without systemd, by the same protocols: plans in, supervised processes and their
// states out.
package local

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/fingerprint"
	"github.com/pfar/pfar/units/plan"
)

// Config is what a Runner needs to know.
type Config struct {
	Log     *slog.Logger
	Bin     string // directory of pfar's programs
	Run     string // run directory, on a tmpfs because credentials pass through it
	State   string // state directory
	Gateway Gateway
	Limits  Limiter
	// Upstream is units.CredentialUpstream of every bridge; nil: there is no upstream proxy.
	Upstream []byte
	Bridges  *bridge.Talks     // with bridges
	Events   func(units.Event) // is told what becomes of all, from several goroutines
	Search   attach.Searcher   // what servers write to stderr passes it before it is logged
	Secrets  Secrets           // nil: there are none
}

// Secrets are what pfard knows of them.
type Secrets interface {
	Brokered(plan.Plan) (*os.File, error) // attach.Message.Broker for a server's bridge, or nil
	Hides(plan.Plan) attach.Redaction     // what the bridge of a plan keeps out of its log
	Serial() int64                        // handover.Message.Secrets
	Proof(plan.Plan) string               // handover.Message.Proof
}

// noSecrets has nothing to broker and nothing to hide.
type noSecrets struct{}

func (noSecrets) Brokered(plan.Plan) (*os.File, error) { return nil, nil }
func (noSecrets) Hides(plan.Plan) attach.Redaction     { return nil }
func (noSecrets) Serial() int64                        { return 0 }
func (noSecrets) Proof(plan.Plan) string               { return "" }

// Runner starts and stops servers, each with its egress bridge, and the gateway. A process that serves one session is a
// server of its own here, with everything that belongs to one but a log, and named by units.Instance.
type Runner struct {
	cfg   Config
	dirs  dirs
	users *users
	subs  *subordinates // nil: servers run as this process does, or as root's users

	mu          sync.Mutex
	servers     map[string]*server // by instance
	gateway     *service
	console     *service // for other machines; nil: there is none
	gatewayUser identity
	logs        sync.Mutex // held while a log is rotated: several processes ask for it

	programs fingerprint.Cache
}

// New makes the runner's directories and starts the gateway.
func New(cfg Config) (*Runner, error) {
	if cfg.Secrets == nil {
		cfg.Secrets = noSecrets{}
	}
	r := &Runner{
		cfg: cfg, dirs: dirs{cfg.Run, cfg.State}, users: newUsers(), servers: map[string]*server{},
	}
	if err := r.dirs.make(); err != nil {
		return nil, err
	}
	if os.Getuid() != 0 {
		var err error
		if r.subs, err = findSubordinates(); err != nil {
			cfg.Log.Info("servers run as this user", "why", err.Error())
			r.subs = nil
		}
	}
	r.forgetSessions()
	if err := r.startGateway(); err != nil {
		return nil, err
	}
	return r, nil
}

// Start starts the server of a plan, or the process for the one session that the plan names; it must not be running.
// It returns once the launcher is under way; what becomes of it comes by Config.Events. A
// session's process is not started again when it ends, for what its client had in it is gone.
func (r *Runner) Start(p plan.Plan, secrets units.Secrets) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	session := p.Gateway.Session
	if session != "" && (!units.IsSession(session) || p.State) { // the handle becomes part of paths
		return fmt.Errorf("starting %q for session %q: want a handle of units.NewSession, and a server without a home", p.Name, session)
	}
	name := units.Instance(p.Name, session)
	if r.servers[name] != nil {
		return fmt.Errorf("starting %q: it has been started already", name)
	}
	s, err := r.newServer(name, p, secrets)
	if err != nil {
		if session != "" {
			r.forget(name)
		}
		return fmt.Errorf("starting %q: %w", name, err)
	}
	r.servers[name] = s
	s.launcher.start()
	return nil
}

// Stop ends an instance, its bridge and whatever it forked, and returns when nothing of them is left, whoever asked
// first. A server's user ids stay its own until Forget; a session's are given up with it.
func (r *Runner) Stop(name string) {
	r.mu.Lock()
	s := r.servers[name]
	r.mu.Unlock()
	if s == nil {
		return
	}
	s.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers[name] != s {
		return // another's stop was the first to get here
	}
	delete(r.servers, name)
	if s.plan.Gateway.Session != "" {
		r.forget(name)
	}
}

// Prepare does nothing: a local server's plan is in no file of ours.
func (r *Runner) Prepare(plan.Plan) error { return nil }

// Offer does nothing: nobody else can start a local server.
func (r *Runner) Offer(string, *plan.Plan) {}

// Forget gives up what is kept for a server that has no declaration any more.
func (r *Runner) Forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(name)
}

func (r *Runner) forget(name string) {
	if r.subs != nil {
		r.subs.release(name)
	}
	for _, unit := range []string{launcherName(name), bridgeName(name)} {
		r.users.release(unit)
		for _, dir := range []string{r.dirs.runtime(unit), r.dirs.binds(unit)} {
			if err := os.RemoveAll(dir); err != nil {
				r.cfg.Log.Warn("removing what is left of "+unit+", ignoring", "error", err)
			}
		}
	}
}

// forgetSessions removes what the sessions of a pfard that was killed left: nothing of their names comes again and
// would do so by the way.
func (r *Runner) forgetSessions() {
	for _, places := range []string{"credentials", "notify", "runtime", "binds", "egress"} {
		dir := filepath.Join(r.cfg.Run, places)
		entries, err := os.ReadDir(dir)
		if err != nil {
			r.cfg.Log.Warn("looking for what an earlier pfard left, ignoring", "error", err)
		}
		for _, e := range entries {
			server, session, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".sock"), "_")
			if server == "" || !units.IsSession(session) {
				continue
			}
			if err := removeCredentials(filepath.Join(dir, e.Name())); err != nil {
				r.cfg.Log.Warn("removing what an earlier pfard left, ignoring", "error", err)
			}
		}
	}
}

// Close stops everything: the gateway, once its calls in flight have ended, and then the servers side by side. Nothing
// may be started any more.
func (r *Runner) Close() {
	r.mu.Lock()
	names := make([]string, 0, len(r.servers))
	for n := range r.servers {
		names = append(names, n)
	}
	console := r.console
	r.mu.Unlock()
	var wg sync.WaitGroup
	if console != nil {
		console.stop()
	}
	r.gateway.stop() // it lets calls in flight end
	for _, n := range names {
		wg.Go(func() { r.Stop(n) })
	}
	wg.Wait()
	for _, n := range names {
		r.Forget(n)
	}
	r.mu.Lock()
	r.users.release(gatewayName)
	_ = os.RemoveAll(r.dirs.binds(gatewayName))
	r.mu.Unlock()
}

// Log returns the path of a server's log.
func (r *Runner) Log(server string) string { return r.dirs.log(server) }

// program returns the path of one of pfar's programs as the process may see it, and the bind that it takes: an
// unprivileged user may not be able to enter the directory that they lie in.
func (r *Runner) program(name, unit string, who identity) (string, []bind, error) {
	path := filepath.Join(r.cfg.Bin, name)
	if !who.set {
		return path, nil, nil
	}
	st := stage{dir: r.dirs.binds(unit)}
	staged, err := st.add(path, true)
	return staged, st.binds, err
}

// stage collects binds below one directory.
type stage struct {
	dir   string
	binds []bind
}

// add makes a place for source and returns it.
func (s *stage) add(source string, readOnly bool) (string, error) {
	source, err := filepath.EvalSymlinks(source)
	if err != nil {
		return "", err
	}
	st, err := os.Lstat(source)
	if err != nil {
		return "", err
	}
	target := filepath.Join(s.dir, strconv.Itoa(len(s.binds)), filepath.Base(source))
	if err := os.MkdirAll(filepath.Dir(target), 0o711); err != nil {
		return "", fmt.Errorf("making a place for %q: %w", source, err)
	}
	if st.IsDir() {
		err = os.MkdirAll(target, 0o711)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("making a place for %q: %w", source, err)
	}
	s.binds = append(s.binds, bind{source, target, readOnly})
	return target, nil
}
