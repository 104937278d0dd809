package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfard/install"
	"github.com/pfar/pfar/cmd/pfard/setups"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/cmd/pfard/watch"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/boot"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/converge"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/plan"
)

// daemon joins the parts of pfard, and reads the declarations. It and what the parts keep belong to the goroutine in
// loop; others send it functions.
type daemon struct {
	inbox
	options    options
	log        *slog.Logger
	vault      *vault.Vault
	tokens     *tokens
	redaction  *redaction
	audit      *auditor
	delivery   *delivery
	clientele  *clientele
	policy     *policy
	folders    *watch.Folders
	reader     *reader
	fleet      *fleet
	orders     *orders
	uses       *uses
	bridges    *bridge.Talks
	gateway    *gateway
	inspectors *inspectors
	leftovers  *leftovers
	keeper     *keeper
	followers  *followers
	hold       *hold     // nil: nothing holds bridges but their own rules
	units      *reloader // nil: there are none
	notes      []string
}

func newDaemon(o options, log *slog.Logger, v *vault.Vault, address string) *daemon {
	secrets := newRedaction()
	unrecorded := slog.New(journal.Redacting(log.Handler(), secrets.clean))
	records := newAuditor(o.dirs, unrecorded)
	log = slog.New(journal.Redacting(vaultRecords{log.Handler(), records}, secrets.clean))
	secrets.fill(v, log)
	fresh := newTokens(log, v)
	d := &daemon{
		options: o, log: log, vault: v, tokens: fresh, audit: records, redaction: secrets, inbox: newInbox(),
		clientele: newClientele(o.dirs.Clients(), newOperators(o.dirs.Operators(), records, log)),
		policy:    newPolicy(), bridges: bridge.NewTalks(),
		delivery: &delivery{
			handing: handing{unrecorded, records.append}, vault: served{v, fresh}, learn: secrets.put,
			stood: newStood(o.placeholders(), log), given: newGiven(o.dirs.Given(), log),
		},
	}
	d.followers = &followers{d.inbox, map[chan struct{}]bool{}}
	d.folders = watch.NewFolders(log, func() { d.post(d.tell) })
	d.fleet = newFleet(d)
	d.fleet.runner = converge.New(nil, d.fleet)
	d.reader = newReader(o, log, d.fleet, records)
	d.orders = &orders{inbox: d.inbox, around: d, fleet: d.fleet, followers: d.followers, installs: newInstalls(d)}
	d.gateway = &gateway{inbox: d.inbox, log: log, around: d, socket: o.dirs.Gateway(), clientele: d.clientele}
	d.gateway.endpoint = endpointAt(address)
	d.inspectors = &inspectors{policy: d.policy, delivery: d.delivery, dir: o.dirs.Policies(), host: d.reader.host}
	d.uses = &uses{
		inbox: d.inbox, log: log, around: d, fleet: d.fleet, inspectors: d.inspectors, policy: d.policy, vault: v,
		tokens: fresh, delivery: d.delivery, redaction: secrets, bridges: d.bridges,
	}
	d.leftovers = &leftovers{
		inbox: d.inbox, dirs: o.dirs, log: log, audit: records, ids: noIDs{},
		servers: d.reader, secrets: d.uses, around: d,
	}
	d.keeper = &keeper{
		inbox: d.inbox, log: log, vault: v, tokens: fresh, redaction: secrets, audit: records,
		servers: d.uses, around: d, bridges: d.bridges, gateway: gatewayAt(serversSocket(o.dirs), d.delivery),
	}
	fresh.users, fresh.signIns = d.uses, newSignIns(o.dirs, d.reader.services.now)
	d.delivery.signIns, d.reader.signIns = fresh.signIns, fresh.signIns
	d.orders.flows = newFlows(d)
	d.keeper.flows = d.orders.flows
	d.orders.commands = newCommands(d)
	d.orders.logins = &logins{
		keeper: d.keeper, signIns: fresh.signIns, reader: d.reader, of: map[string]*signingIn{},
		flows:  setups.SignIns{Flows: d.orders.flows.Flows},
		handed: func(key string) error { return d.delivery.over(toLogin, key, "", "", nil) },
	}
	d.audit.told = func() { d.post(d.tell) }
	d.clientele.operators.told = func() { d.clientele.operatorsChanged(); d.post(d.followers.tell) }
	d.audit.again = func() { d.post(d.recordedAgain) }
	return d
}

// loop runs until ctx ends, and calls ready when it has begun to make what runs match the declarations. changed says
// that those may have changed; SIGHUP says so as well.
func (d *daemon) loop(ctx context.Context, changed <-chan struct{}, ready func()) {
	defer close(d.ended)
	defer d.tokens.close()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	for _, dir := range []string{d.options.declarations, d.options.dirs.Upgrades()} {
		if err := durable.Sweep(dir); err != nil {
			d.log.Warn("removing what an earlier pfard has not written to its end, ignoring", "error", err)
		}
	}
	d.reload()
	defer d.orders.flows.close()
	defer d.orders.commands.close()
	d.orders.flows.Resume()
	ready()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			d.reload()
		case <-changed:
			d.reload()
		case f := <-d.work:
			f()
		}
	}
}

// heard takes what the runner tells.
func (d *daemon) heard(ctx context.Context, event units.Event) {
	switch e := event.(type) {
	case units.Update:
		if !d.orders.installs.jobs.Take(e) {
			d.fleet.changed(e)
		}
	case units.BridgeRefused:
		d.audit.refusals.refused(e.Server, e.Session, e.Refusal.Clean(d.redaction.clean))
	case units.GatewayTurned:
		d.gateway.turned(ctx, e.Running)
	case units.GatewayAnchor:
		d.audit.gatewayAnchor(e.Seq, e.Hash)
	}
}

// tell wakes those who watch.
func (d *daemon) tell() {
	d.policy.confine(sandboxes(d.fleet.servers))
	d.audit.lifecycle(d.fleet.lives())
	d.reader.showTrouble()
	for _, s := range d.fleet.servers {
		d.fleet.intents.keep(s)
	}
	d.followers.tell()
}

// reload reads all declarations and brings what runs to what they say. A broken file changes nothing that runs.
func (d *daemon) reload() {
	o := d.reader.known()
	set := declaration.Load(declaration.Folders(d.reader.folder, d.options.folders()...), o)
	dirs := d.options.dirs
	recorded := func(next *gate.Policy) error { return d.audit.policies(dirs.Policies(), next) }
	files, diags := d.policy.read(dirs, d.log, recorded)
	diags = append(diags[:len(diags):len(diags)], d.inspectors.inspect()...)
	d.reader.fileRoles = fileRoles{set.Of, set.Hidden}
	d.reader.diagnostics = append(d.reader.describe(files, diags), d.reader.describe(set.Files, set.Diags)...)
	d.reader.diagnostics = append(d.reader.diagnostics, d.reader.describe(d.tokens.signIns.read())...)
	lacked := slices.Clone(diags)
	wanted := map[string]plan.Plan{}
	stale, broken := map[string]bool{}, slices.Clone(set.Broken)
	for _, s := range d.fleet.servers {
		s.held = nil
	}
	d.orders.installs.want(set.Servers)
	for _, s := range set.Servers {
		p, diags := generator.Compile(s, d.reader.host())
		shown := d.orders.installs.shown(s, diags)
		d.reader.diagnostics = append(d.reader.diagnostics, d.reader.describe(set.Files, shown)...)
		lacked = append(lacked, diags...)
		if diags.HasErrors() {
			broken = append(broken, declaration.Broken{Name: s.Name, File: s.File})
			continue
		}
		if diags := d.uses.holdBack(s, p); diags.HasErrors() {
			d.reader.diagnostics = append(d.reader.diagnostics, d.reader.describe(set.Files, diags)...)
			stale[s.Name] = true
			continue
		}
		wanted[s.Name] = d.delivery.scoped(p)
	}
	d.folders.Lack(append(generator.Absent(lacked), generator.Trusted(set.Servers, d.reader.host())...))
	d.reader.declared = slices.Concat(set.Servers, set.Earlier)
	d.tokens.signIns.serve(d.reader.declared)
	for _, p := range d.reader.standIns(set, broken, o) {
		if _, taken := wanted[p.Name]; !taken {
			wanted[p.Name], stale[p.Name] = d.delivery.scoped(p), p.Fault == ""
		}
	}
	keepApart(d.fleet.servers, wanted)
	stays := d.reader.stays(set.Unread, broken)
	if err := d.delivery.given.begin(wanted, d.vault.List); err != nil {
		d.log.Warn("beginning to remember to which servers secrets are given, again soon", "error", err)
	}
	d.delivery.given.declared(wanted)
	for name, p := range wanted {
		d.fleet.want(name, p, wordOf(set.Sources[p.File], p.Fault))
	}
	doubts := d.clientele.read(set.Servers, d.policy.inForce(), d.reader.describe, d.audit.clients)
	d.reader.diagnostics = append(d.reader.diagnostics, doubts...)
	d.clientele.reach(d.options.dirs.Gateway(), d.log)
	d.tokens.use(d.uses.keysInUse())
	d.orders.installs.rest()
	for name, s := range d.fleet.servers {
		_, ok := wanted[name]
		s.stale = stale[name] || !ok && stays(s)
		if !ok && !s.stale {
			s.want = nil
		}
		s.checkLearner()
		d.fleet.rewant(s)
	}
	d.orders.commands.forget(func(server string) bool {
		s := d.fleet.servers[server]
		return s != nil && s.want != nil
	})
	d.policy.confine(sandboxes(d.fleet.servers)) // before a server can go by another one
	d.fleet.apply()
	d.reader.earlier.keep(set, broken)
	d.audit.declarations(d.fleet.lives())
	d.reader.nameServers(set)
	d.reader.showMistakes()
	d.atBoot()
	d.reader.unread = set.Unread
	d.forgotten()
	d.tell()
}

// recordedAgain goes on with what could not be recorded, and was not done for that.
func (d *daemon) recordedAgain() {
	d.reload()
	for name := range d.fleet.servers {
		d.bridges.Changed(name)
	}
	d.uses.wakeWaiting()
}

// forgotten looks for what servers have left that are gone, and gives up what only they needed.
func (d *daemon) forgotten() {
	d.leftovers.find()
	if len(d.fleet.servers) == 0 && d.hold != nil {
		d.hold.clear()
	}
}

// atBoot has systemd know what starts with the machine.
func (d *daemon) atBoot() {
	d.units.files(boot.Files(os.Getuid(), d.reader.declared, d.fleet.disabled))
}

// report is what `pfar status` shows.
func (d *daemon) report() control.Report {
	dirs := d.options.dirs
	r := control.Report{
		Version: units.Version(), Directory: d.options.declarations, Programs: d.options.servers,
		Clients: dirs.Clients(), ClientFiles: d.clientele.known(), Policies: dirs.Policies(),
		Endpoint: d.gateway.endpoint, TokenFile: dirs.Token(), Socket: dirs.Gateway(), Journal: !d.options.local,
		Diagnostics: d.reader.diagnostics, Notes: slices.Clone(d.notes), Servers: []control.Server{},
		Undeclared: control.Undeclared{Leftovers: d.leftovers.names, Models: d.inspectors.models()},
	}
	if d.gateway.down {
		r.Notes = append(r.Notes, "the gateway is not running; its log is "+d.fleet.runner.Log(units.GatewayLog))
	}
	if r.PortFault = d.gateway.fault; r.PortFault != "" {
		r.Notes = append(r.Notes, r.PortFault)
	}
	r.Notes = append(append(r.Notes, d.policy.notes(dirs.Policies())...), d.clientele.notes()...)
	if d.hold != nil && !rootless() { // one note tells it all otherwise
		r.Notes = append(r.Notes, d.hold.Unheld()...)
	}
	r.Notes = append(r.Notes, d.inspectors.keyless...)
	r.Chats = d.inspectors.silent()
	for _, note := range r.Chats {
		if !slices.Contains(r.Notes, note) {
			r.Notes = append(r.Notes, note)
		}
	}
	r.Notes = append(r.Notes, d.folders.Notes()...)
	r.Notes = append(r.Notes, d.audit.shown()...)
	for _, s := range d.fleet.servers {
		c := s.report(d.fleet.runner.Log(s.name))
		c.SignInPage = signInPage(s, d.tokens)
		problems := d.uses.problems(s)
		if s.unscoped != "" && s.want != nil && s.want.Enabled && !s.off {
			problems = append(problems, s.unscoped)
		}
		if s.unreached != "" && s.has.Started != nil {
			problems = append(problems, s.unreached)
		}
		if words := outdated(s.name, c.PID); words != "" {
			problems = append(problems, words)
		}
		for _, words := range problems {
			if !strings.Contains(c.Detail, words) {
				c.Detail = strings.TrimPrefix(c.Detail+"; "+words, "; ")
			}
		}
		if s.want != nil {
			c.Unknown = generator.Unknown(*s.want, d.policy.inForce())
		}
		d.orders.installs.show(s, &c)
		r.Servers = append(r.Servers, c)
	}
	slices.SortFunc(r.Servers, func(a, b control.Server) int { return strings.Compare(a.Name, b.Name) })
	return r
}

func newFleet(d *daemon) *fleet {
	return &fleet{
		inbox: d.inbox, log: d.log, dirs: d.options.dirs, around: d, audit: d.audit, redaction: d.redaction,
		delivery: d.delivery, units: noUnits{}, servers: map[string]*server{},
		after: func(pause time.Duration, f func()) interface{ Stop() bool } { return time.AfterFunc(pause, f) },
	}
}

func newInstalls(d *daemon) *installs {
	i := &installs{
		inbox: d.inbox, reader: d.reader, redaction: d.redaction, around: d, tries: map[source.Package]*installTry{},
	}
	i.jobs = install.New(d.log, d.options.dirs.Packages(), i)
	d.reader.installs = i
	return i
}

func newCommands(d *daemon) *commands {
	home := os.Getenv("HOME")
	if os.Getuid() == 0 { // root has no console
		home = ""
	}
	own := newCLI(d.options)
	c := &commands{
		run: own.run, pfar: own.program, clean: d.redaction.clean, told: func() { d.post(d.followers.tell) }, home: home,
		learns: make(chan struct{}, 1), imports: make(chan struct{}, 1), learned: map[string]chores.Learning{},
	}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

func newFlows(d *daemon) *flows {
	f := &flows{
		inbox: d.inbox, reader: d.reader, fleet: d.fleet, followers: d.followers, keeper: d.keeper, audit: d.audit,
		redaction: d.redaction, installs: d.orders.installs, around: d, turn: d.orders.turn, fresh: map[string]bool{},
		clients: rate.NewLimiter(rate.Every(10*time.Second), 10), policy: d.policy,
	}
	clock := &alarm{}
	f.Flows = setups.New(setups.World{
		Log: d.log, Dir: d.options.dirs.Flows(), Vault: f, Servers: f, Records: f, Clock: wallClock{clock},
	})
	clock.ring = f.Due
	return f
}
