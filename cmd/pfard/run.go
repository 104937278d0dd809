package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/seal"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/migrate"
	"github.com/pfar/pfar/units/plan"
)

// run is pfard from start to end.
func run(ctx context.Context, o options, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25) // it does little, and all the time it takes memory
	}
	if err := o.absolute(); err != nil {
		return err
	}
	if err := o.console.check(o.local, os.Getuid()); err != nil {
		return err
	}
	if err := prepareDirs(o.dirs); err != nil {
		return err
	}
	lock, err := lockRun(o.dirs.Run)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := bringState(o.dirs.State, log); err != nil {
		return err
	}
	if o.local {
		return runLocal(ctx, o, log)
	}
	return runSystem(ctx, o, log)
}

// bringState makes the state one of this program's format, before anything in it is opened.
func bringState(dir string, log *slog.Logger) error {
	r, err := migrate.Bring(dir)
	if err != nil {
		return err
	}
	if r.Unmarked != nil {
		log.Warn("numbering the state, ignoring", "state", dir, "error", r.Unmarked)
	}
	if r.Undone {
		log.Warn("undid a migration of the state that was cut short", "state", dir)
	}
	if r.From != r.To {
		log.Info("migrated the state", "state", dir, "from", r.From, "to", r.To, "backups", r.Backups)
	}
	return nil
}

// private keeps this process's memory, which secrets pass through, out of core dumps, and from other processes of its
// user (prctl(2), PR_SET_DUMPABLE): a server of that user that got out of its sandbox is one.
func private() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping this process's memory to itself: %w", err)
	}
	return nil
}

// runLocal runs everything as processes of its own.
func runLocal(ctx context.Context, o options, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// There is no more to win without systemd: whoever is this user can read the vault's key.
	if err := units.NoCore(); err != nil {
		return err
	}
	if err := seal.NotSealed(o.dirs, os.Getuid()); err != nil {
		return err
	}
	store, err := vault.Open(o.dirs.Vault())
	if err != nil {
		return err
	}
	gateway, err := listenGateway(o)
	if err != nil {
		return err
	}
	controlListener, err := listenUnix("unix", o.dirs.Control())
	if err != nil {
		return err
	}
	d := newDaemon(o, log, store, gateway.HTTP.Addr().String())
	log = d.log
	anchors, err := d.audit.alsoTo(o.dirs.Log(units.AnchorsLog))
	if err != nil {
		return err
	}
	defer anchors.Close()
	defer d.audit.keep(ctx, false)()
	limits, note := local.NewLimiter(ctx, log)
	if note != "" {
		d.notes = append(d.notes, note)
	}
	if c, ok := limits.(io.Closer); ok {
		defer c.Close()
	}
	bin, err := programs()
	if err != nil {
		return err
	}
	gateway.Control = o.dirs.Control()
	up, err := upstream()
	if err != nil {
		return err
	}
	r, err := local.New(local.Config{
		Log: log, Bin: bin, Run: o.dirs.Run, State: o.dirs.State, Gateway: gateway, Limits: limits, Upstream: up,
		Bridges: d.bridges, Events: func(event units.Event) { d.heard(ctx, event) },
		Search: d.redaction.searcher(log), Secrets: bridgeSecrets{d.delivery, d.redaction},
	})
	if err != nil {
		return err
	}
	inspectors := local.NewInspectors(r, d.inspectors.giveModel)
	d.fleet.runner, d.inspectors.runner = converge.New(r, d.fleet), inspectors
	d.fleet.units = localUnits{runner: r}
	errands := localErrands{d.tokens, r}
	d.tokens.runs, d.orders.logins.runs = errands, errands
	pages := localPages{r, o.dirs, d.orders.commands.run}
	d.servePages(pages)
	d.orders.installs.jobs.Run(r)
	owner := &telling{ctx: ctx, hook: hook{path: o.dirs.OnFailure(), log: log}}
	defer owner.wait()
	d.fleet.owner = owner
	if err := admitGateway(o.dirs.Control(), r.GatewayUID()); err != nil {
		r.Close()
		return err
	}
	d.folders.Watch(o.watched()...)
	defer d.folders.Close()
	defer guardHomes(ctx, d.fleet)()
	served := d.serve(ctx, stop, controlListener, r.GatewayUID())
	pages.keepConsole(o.console, newRemoteConsole(d).talk)
	d.loop(ctx, d.folders.Changed, d.ready)
	notify(log, sd.SdNotifyStopping)
	d.tokens.settle()
	gateway.HTTP.Close() // nobody is to wait for a gateway that takes no more requests
	gateway.Unix.Close()
	gateway.Operator.Close()
	gateway.Passkey.Close()
	r.Close()
	inspectors.Inspect(nil)
	for _, path := range []string{o.dirs.Gateway(), o.dirs.Operator(), o.dirs.Passkey(), serversSocket(o.dirs)} {
		os.Remove(path)
	}
	return <-served
}

// bridgeSecrets are local.Secrets.
type bridgeSecrets struct {
	delivery  *delivery
	redaction *redaction
}

func (b bridgeSecrets) Brokered(p plan.Plan) (*os.File, error) { return b.delivery.brokered(p) }
func (b bridgeSecrets) Hides(p plan.Plan) attach.Redaction     { return b.redaction.ofBridge(p) }
func (b bridgeSecrets) Serial() int64                          { return b.redaction.serial() }
func (b bridgeSecrets) Proof(p plan.Plan) string               { return b.delivery.proof(p) }

// serve answers on the control socket until ctx ends, and sends how that went. It calls stop also when it cannot go on:
// a pfard that nobody can ask is to be started again.
func (d *daemon) serve(ctx context.Context, stop func(), l *net.UnixListener, gateway int) <-chan error {
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- control.Serve(ctx, l, d.answer, gatewayGuest(gateway))
	}()
	return served
}

// ready is called when what is declared is being brought up.
func (d *daemon) ready() {
	notify(d.log, sd.SdNotifyReady)
	units.Settle()
	go func() { // it may take a job of systemd's
		if err := d.vault.Settle(); err != nil {
			d.log.Warn("finishing a change of the vault's key, ignoring", "error", err)
		}
	}()
}

func notify(log *slog.Logger, state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		log.Warn("notifying the supervisor, ignoring", "error", err)
	}
}

// upstream is the proxy of pfard's own environment, as every bridge gets it; nil if there is none. It may hold a
// password.
func upstream() ([]byte, error) {
	c := httpproxy.FromEnvironment()
	if c.HTTPSProxy == "" && c.HTTPProxy == "" {
		return nil, nil
	}
	return json.Marshal(units.Upstream{HTTPS: c.HTTPSProxy, HTTP: c.HTTPProxy, No: c.NoProxy})
}

// programs is the directory that pfard itself lies in, and the other programs with it.
func programs() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding pfar's programs: %w", err)
	}
	dir := filepath.Dir(self)
	for _, name := range []string{
		"pfar-sandbox", "pfar-egress", "pfar-gateway", "pfar-setup", "pfar-console", "pfar-adapter",
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("finding pfar's programs: %w", err)
		}
	}
	return dir, nil
}

// prepareDirs makes the run and state directories and refuses one that somebody else could have prepared: /dev/shm and
// /tmp are open to all.
func prepareDirs(d control.Dirs) error {
	for _, dir := range []string{d.Run, d.State} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("making %q: %w", dir, err)
		}
		st, err := os.Lstat(dir)
		if err != nil {
			return err
		}
		if owner := st.Sys().(*syscall.Stat_t).Uid; !st.IsDir() || int(owner) != os.Getuid() || st.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf(
				"using %q: it must be a directory of uid %d that nobody else may write (owner %d, mode %v)",
				dir, os.Getuid(), owner, st.Mode())
		}
	}
	const longest = 107 // octets of a Unix socket's path (unix(7))
	instance := units.Instance(strings.Repeat("x", declaration.MaxName), units.NewSession())
	if len(local.LongestSocket(d.Run, instance)) > longest {
		return fmt.Errorf("using %q: too long for the paths of Unix sockets (%d octets); set PFAR_RUN_DIR", d.Run, longest)
	}
	if os.Getuid() == 0 && !units.Reachable(filepath.Join(d.Run, "x")) {
		return fmt.Errorf("using %q as run directory: the servers' own users cannot enter it; set PFAR_RUN_DIR to a directory below /run", d.Run)
	}
	return nil
}

// lockRun keeps a second pfard away from the same run directory.
func lockRun(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "pfard.lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the run directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %q: %w", f.Name(), err)
		}
		return nil, fmt.Errorf("another pfar runs with the run directory %q: stop it, or set PFAR_RUN_DIR and PFAR_STATE_DIR", dir)
	}
	return f, nil
}

// listenGateway opens the gateway's listeners, which pfard keeps while the gateway is started again.
func listenGateway(o options) (g local.Gateway, err error) {
	if g.HTTP, err = listenLoopback("--listen", o.listen, "127.0.0.1:7417"); err != nil {
		return g, err
	}
	if o.metrics != "" {
		if g.Metrics, err = listenMetrics(o.metrics); err != nil {
			return g, err
		}
	}
	if g.Unix, err = listenUnix("unix", o.dirs.Gateway()); err != nil {
		return g, err
	}
	if g.Servers, err = listenUnix("unixpacket", serversSocket(o.dirs)); err != nil {
		return g, err
	}
	if g.Operator, err = listenUnix("unix", o.dirs.Operator()); err != nil {
		return g, err
	}
	if g.Passkey, err = listenUnix("unix", o.dirs.Passkey()); err != nil {
		return g, err
	}
	g.Token, err = token(o.dirs.Token())
	return g, err
}

// listenMetrics wants a port: a scraper has to be told one, and a free one would be known to nobody.
func listenMetrics(address string) (*net.TCPListener, error) {
	if addr, err := netip.ParseAddrPort(address); err == nil && addr.Port() == 0 {
		return nil, fmt.Errorf("reading --metrics %q: port 0 cannot be scraped; write the port that Prometheus is told, such as 9464", address)
	}
	return listenLoopback("--metrics", address, "127.0.0.1:9464")
}

// listenLoopback listens on the address that a flag says.
func listenLoopback(flag, address, example string) (*net.TCPListener, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("reading %s %q: want an address and a port, %s: %w", flag, address, example, err)
	}
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("listening on %s: only loopback addresses are served; use an SSH forward or a reverse proxy with TLS", addr)
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, fmt.Errorf("listening on %s: another program has the port, perhaps another pfar; choose one with %s", addr, flag)
	case err != nil:
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	return l, nil
}

const minToken = 32 // characters

// token returns the bearer token of the loopback endpoint, made at the first start.
func token(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		st, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if st.Mode().Perm()&0o077 != 0 || len(b) < minToken {
			return nil, fmt.Errorf(
				"reading the token %q: it must be 0600 and hold at least %d characters; remove it and a new one is made",
				path, minToken)
		}
		return b, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	b = []byte(rand.Text() + rand.Text()) // 52 characters, 260 bits
	if err := durable.WriteFile(path, b); err != nil {
		return nil, fmt.Errorf("writing the token: %w", err)
	}
	return b, nil
}

// gatewayGuest says what the gateway may ask for where it has a user of its own: what it needs, for it reads what
// servers and clients write, and might be taken over by one.
func gatewayGuest(uid int) control.Guest {
	return control.Guest{UID: uid, Verbs: []control.Verb{
		control.Open, control.Close, control.Wake, control.Sleep, control.Demand,
		control.Redaction, control.Clients, control.Audit, control.Stuck, control.Policy, control.LastRefusal,
		control.Begin,
	}}
}

// admitGateway lets the gateway's user connect to the control socket, and no other one.
func admitGateway(path string, uid int) error {
	if uid == os.Getuid() {
		return nil
	}
	// Its group has its number, and it alone is in it. The group first: the old one is not to get in for a moment.
	if err := os.Lchown(path, -1, uid); err != nil {
		return fmt.Errorf("giving the control socket to the gateway's group: %w", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return fmt.Errorf("opening the control socket to the gateway: %w", err)
	}
	return nil
}
