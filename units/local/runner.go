// Package local runs pfar's processes without systemd, by the same protocols: plans in, supervised processes and their states out.
package local

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/pfar/pfar/generator"
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
	Changed  func(Update) // called for each change, from several goroutines
}

// Update is what has become of one server.
type Update struct {
	Server  string
	State   string // a units.State
	Detail  string // status line in words; "" leaves the last one
	PID     int    // of the launcher; 0: none
	UID     int    // of the sandboxed process, on the host
	Tools   int
	Crashes int
	Limits  string
	Refusal string // last refusal of the egress bridge; "" leaves the last one
}

// Runner starts and stops servers, each with its egress bridge, and the gateway.
type Runner struct {
	cfg   Config
	dirs  dirs
	users *users

	mu      sync.Mutex
	servers map[string]*server
	gateway *service
}

// New makes the runner's directories and starts the gateway.
func New(cfg Config) (*Runner, error) {
	r := &Runner{cfg: cfg, dirs: dirs{cfg.Run, cfg.State}, users: newUsers(), servers: map[string]*server{}}
	if err := r.dirs.make(); err != nil {
		return nil, err
	}
	if err := r.startGateway(); err != nil {
		return nil, err
	}
	return r, nil
}

// Start starts the server of a plan; it must not be running. credentials are by name. It returns once the launcher is
// under way; what becomes of it comes by Config.Changed.
func (r *Runner) Start(p generator.Plan, credentials map[string][]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.servers[p.Name] != nil {
		return fmt.Errorf("starting %q: it has been started already", p.Name)
	}
	s, err := r.newServer(p, credentials)
	if err != nil {
		return fmt.Errorf("starting %q: %w", p.Name, err)
	}
	r.servers[p.Name] = s
	s.launcher.start()
	return nil
}

// Stop ends a server, its bridge and whatever it forked. Its user id stays its own until Forget.
func (r *Runner) Stop(name string) {
	r.mu.Lock()
	s := r.servers[name]
	delete(r.servers, name)
	r.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// Forget gives up what is kept for a server that has no declaration any more.
func (r *Runner) Forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users.release(launcherName(name))
	r.users.release(bridgeName(name))
}

// Close stops everything, the servers side by side and the gateway last.
func (r *Runner) Close() {
	r.mu.Lock()
	names := make([]string, 0, len(r.servers))
	for n := range r.servers {
		names = append(names, n)
	}
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, n := range names {
		wg.Go(func() { r.Stop(n) })
	}
	wg.Wait()
	r.gateway.stop()
	for _, n := range names {
		r.Forget(n)
	}
	r.mu.Lock()
	r.users.release(gatewayName)
	r.mu.Unlock()
}

// Log returns the path of a server's log.
func (r *Runner) Log(server string) string { return r.dirs.log(server) }

func launcherName(server string) string { return "pfar-mcp@" + server }
func bridgeName(server string) string   { return "pfar-egress@" + server }

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

const stopTimeout = 10 * time.Second // LIF-09 takes 8 s at most
