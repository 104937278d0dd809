package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfard/seal"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator/boot"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/systemd"
)

// runSystem has systemd run everything. Nothing ends with this process, and the next one goes on where it was.
func runSystem(ctx context.Context, o options, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := private(); err != nil {
		return err
	}
	link := systemd.NewLink(systemd.Connect)
	defer link.Close()
	store, note, err := systemVault(ctx, o.dirs, link)
	if err != nil {
		return err
	}
	l, err := systemListeners()
	if err != nil {
		return err
	}
	guest, err := gatewayUser()
	if err != nil {
		return err
	}
	up, err := provideUpstream(o.dirs)
	if err != nil {
		return err
	}
	if _, err := token(o.dirs.Token()); err != nil { // the gateway loads it
		return err
	}
	at, err := gatewayPort(ctx, link)
	if err != nil {
		return err
	}
	d := newDaemon(o, log, store, "")
	d.gateway.link = link
	d.gateway.portTurned(ctx, at)
	d.notes = append(d.notes, note...)
	log = d.log
	defer d.audit.keep(ctx, !rootless())()
	// Nobody watches what is obeyed here.
	d.reader.folder, d.policy.open, d.clientele.open = control.OurDir, control.OurDir, control.OurDir
	d.tokens.signIns.open = control.OurDir
	d.reader.services.open = control.OurDir
	d.fleet.waits, d.units = true, newReloader(log, link, boot.Directory(os.Getuid(), filepath.Dir(o.dirs.Run)))
	if d.fleet.intents, err = newIntents(filepath.Join(o.dirs.Run, "intent"), log); err != nil {
		return err
	}
	limits := local.NewUnitScopes(link, systemd.LauncherUnit)
	if d.hold, err = d.holdBridges(up); err != nil {
		return err
	}
	defer d.hold.close()
	if d.reader.earlier, err = newEarlier(o.dirs.Kept(), log); err != nil {
		return fmt.Errorf("making the directory of earlier declarations: %w", err)
	}
	d.reader.status = func(words string) { notify(log, "STATUS="+words) }
	a := newAttachments(d, link, limits)
	own, err := openUsers(o.dirs)
	if err != nil {
		return err
	}
	r, err := systemd.NewRunner(systemd.Config{
		Log: log, Run: o.dirs.Run, Runtime: filepath.Dir(o.dirs.Run), Units: dropIns(), Link: link, Limits: limits,
		Told: gatewayAt(serversSocket(o.dirs), d.delivery), Events: d.hearUnits(ctx, a, own),
	})
	if err != nil {
		return err
	}
	own.plan, d.leftovers.ids = r.Plan, own.registry
	d.join(a, r)
	if err := d.adoptAll(ctx, r, own); err != nil {
		return err
	}
	if err := d.reader.makeFolder(); err != nil {
		return err
	}
	d.folders.Watch(o.watched()...)
	defer d.folders.Close()
	defer guardHomes(ctx, d.fleet)()
	go a.serve(l.attach)
	answered := d.giveCredentials(l.credentials, r.Plan, own.of)
	served := d.serve(ctx, stop, l.control, guest)
	defer d.serveLooks(ctx, l.look)()
	go r.Watch(ctx)
	go d.units.run(ctx)
	d.loop(ctx, d.folders.Changed, func() {
		r.Settle() // systemd starts servers as soon as pfard is ready
		d.ready()
	})
	notify(log, sd.SdNotifyStopping)
	l.attach.Close()
	l.credentials.Close()
	select {
	case <-answered:
	case <-time.After(lastAnswers):
	}
	return <-served
}

// giveCredentials answers systemd until the listener is closed. The channel is closed when the last answer is given.
func (d *daemon) giveCredentials(
	l *net.UnixListener, plan func(instance string) (plan.Plan, error), user func(unit string) (int, error),
) <-chan struct{} {
	c := &credentials{
		log: d.log, unit: systemd.PeerUnit, plan: plan, secrets: d.delivery.secrets, give: d.uses.giveLauncher,
		model: d.inspectors.modelOf, user: user,
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		c.serve(l)
	}()
	return answered
}

// holdBridges has the host's firewall hold bridges to what is declared.
func (d *daemon) holdBridges(up units.Upstream) (*hold, error) {
	holding := holdConfig{State: holdState(d.options.dirs), ResolvConf: "/etc/resolv.conf", Proxies: proxiesOf(up), Log: d.log}
	holding.Changed = func() { d.post(d.tell) }
	if rootless() {
		holding.unheld()
		d.notes = append(d.notes, rootlessNote)
	}
	if !rootless() {
		d.inspectors.reachable = units.Reachable
	}
	return newHold(holding)
}

// adoptAll takes over what an earlier pfard has left running.
func (d *daemon) adoptAll(ctx context.Context, r *systemd.Runner, own allotted) error {
	found, err := r.Adopt(ctx)
	if err == nil {
		own.prune(d.log, found)
		d.adopt(found)
	}
	return err
}

// adopt begins with what systemd runs.
func (d *daemon) adopt(found []systemd.Found) {
	d.fleet.adopt(found)
	d.uses.outdated()
}

// systemVault opens the vault, and says what is to be known of where its key is. Only systemd's root can seal that.
func systemVault(ctx context.Context, dirs control.Dirs, link *systemd.Link) (v *vault.Vault, notes []string, err error) {
	if rootless() {
		v, err = vault.Open(dirs.Vault())
		return v, nil, err
	}
	k := seal.NewKey(dirs, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, sealTime, fmt.Errorf("%s has not ended within %s", seal.Unit, sealTime))
		defer cancel()
		bus, err := link.Bus(ctx)
		if err != nil {
			return err
		}
		return bus.RunUnit(ctx, seal.Unit)
	})
	if v, err = vault.OpenWith(dirs.Vault(), k); err == nil && !k.Opened() {
		notes = []string{unsealedNote}
	}
	return v, notes, err
}

// sealTime is for pfar-vault-key.service, whose own limits are shorter: nothing else is done with the vault meanwhile.
const sealTime = 3 * time.Minute

const unsealedNote = "the vault's key lies in a file in the clear: this machine has not sealed it " +
	"(journalctl -u " + seal.Unit + ")"

// hearUnits returns what takes what the runner of units tells.
func (d *daemon) hearUnits(ctx context.Context, a *attachments, own allotted) func(units.Event) {
	return func(event units.Event) {
		if left, ok := event.(units.Left); ok {
			a.drop(left.Instance)
			own.released(d.log, left.Instance)
			return
		}
		d.heard(ctx, event)
	}
}

// join has the daemon and the conversations with units know each other.
func (d *daemon) join(a *attachments, r *systemd.Runner) {
	d.fleet.runner, d.fleet.units, a.runner, d.keeper.running = converge.New(r, d.fleet), a, r, r.Bridges
	d.tokens.runs, d.orders.logins.runs = a.tasks, a.tasks
	d.servePages(a.tasks)
	a.tasks.remote = newRemoteConsole(d).talk
	d.orders.installs.jobs.Run(r)
	d.policy.outlived, d.inspectors.chats = true, a.tasks.chats
	d.inspectors.runner = systemd.NewInspectors(d.log, a.link, d.options.dirs.Run)
}

// sockets are pfard's own, which systemd keeps open while pfard is started again.
type sockets struct {
	control     *net.UnixListener
	attach      *net.UnixListener // SOCK_SEQPACKET
	credentials *net.UnixListener
	look        *net.UnixListener // nil: there is none
}

func systemListeners() (sockets, error) {
	files, err := units.Descriptors()
	if err != nil {
		return sockets{}, err
	}
	var s sockets
	for name, at := range map[string]struct {
		to      **net.UnixListener
		network string
	}{
		units.FDControl: {&s.control, "unix"}, units.FDAttach: {&s.attach, "unixpacket"},
		units.FDCredentials: {&s.credentials, "unix"}, units.FDLook: {&s.look, "unix"},
	} {
		if len(files[name]) == 0 && name == units.FDLook {
			continue
		}
		if len(files[name]) != 1 {
			return sockets{}, fmt.Errorf("taking over pfard's sockets: got %d named %q, want one: is pfard-%s.socket running? "+
				"without systemd, run pfar up", len(files[name]), name, name)
		}
		l, err := net.FileListener(files[name][0])
		files[name][0].Close()
		if err != nil {
			return sockets{}, fmt.Errorf("taking over the socket %q: %w", name, err)
		}
		u, ok := l.(*net.UnixListener)
		if !ok || u.Addr().Network() != at.network {
			return sockets{}, fmt.Errorf("taking over the socket %q: it is one of %s, want %s", name, l.Addr().Network(), at.network)
		}
		u.SetUnlinkOnClose(false)
		*at.to = u
	}
	return s, nil
}

// serveLooks answers those who may look, until the function that it returns is called. Without it pfard goes on.
func (d *daemon) serveLooks(ctx context.Context, l *net.UnixListener) (stop func()) {
	if l == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := control.ServeLooks(ctx, l, d.answer); err != nil {
			d.log.Error("answering the group pfar-admin", "error", err)
		}
	}()
	return func() { cancel(); <-ended }
}

// dropIns is where pfard may add to units. The units of a user run as that user, who reaches what it declares.
func dropIns() string {
	if rootless() {
		return ""
	}
	return "/run/systemd/system"
}

// gatewayUser returns the id of the user that pfar-gateway.service runs as.
func gatewayUser() (int, error) {
	if rootless() {
		return os.Getuid(), nil
	}
	u, err := user.Lookup("pfar")
	if err != nil {
		return 0, fmt.Errorf("looking for the gateway's user; systemd-sysusers makes it: %w", err)
	}
	return strconv.Atoi(u.Uid)
}

// provideUpstream writes what the units of the bridges load as a credential: the proxy of this process's environment.
func provideUpstream(dirs control.Dirs) (up units.Upstream, err error) {
	text, err := upstream()
	if err != nil {
		return up, err
	}
	if text == nil {
		text = []byte("{}") // a credential that is not there would keep the unit from starting
	}
	path := filepath.Join(dirs.Run, units.CredentialUpstream)
	if old, rerr := os.ReadFile(path); rerr != nil || !bytes.Equal(old, text) { // a full disk is no reason not to start
		if err := durable.Replace(path, text); err != nil {
			return up, fmt.Errorf("writing the upstream proxy: %w", err)
		}
	}
	return up, json.Unmarshal(text, &up)
}

func newAttachments(d *daemon, link *systemd.Link, limits *local.UnitScopes) *attachments {
	dirs := d.options.dirs
	return &attachments{
		log: d.log, link: link, limits: limits, hold: d.hold, gateway: serversSocket(dirs),
		homes: dirs.Homes(), rootless: rootless(), redaction: d.redaction, delivery: d.delivery,
		policy: d.policy, audit: d.audit,
		newcomers: newcomers{of: map[int]int{}}, warnings: rate.Sometimes{First: 10, Interval: 10 * time.Second},
		launchers: map[string]launcher{}, bridges: map[string]*attach.Conn{}, kept: map[string]*kept{},
		mistakes: map[string]string{},
		budgets:  map[string]*rate.Limiter{},
		talks:    d.bridges,
		tasks: &taskUnits{
			log: d.log, link: link, hold: d.hold, tokens: d.tokens, run: dirs.Run,
			errands: map[string]errand{}, pages: map[string]pageTalk{}, chats: newChatUnits(d),
		},
	}
}

func newChatUnits(d *daemon) *chatUnits {
	return &chatUnits{
		log: d.log, run: d.options.dirs.Run, gateway: d.options.dirs.Gateway(), clientele: d.clientele,
		answers: chatFlows{d.orders.flows}.answer, told: func() { d.post(d.followers.tell) }, at: map[string]*chatProcess{},
	}
}
