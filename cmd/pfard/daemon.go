package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/cmd/pfard/watch"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/boot"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/plan"
)

// runner is where plans become processes: our own, or systemd's. A plan that names a session makes a further process of
// its server, known as units.Instance. What becomes of a process the runner tells by an update.
type runner interface {
	Start(p plan.Plan, secrets units.Secrets) error
	Adjust(p plan.Plan) error          // what runs goes by this plan when it returns, without a stop; an error: it may not, and has to be stopped
	Prepare(p plan.Plan) error         // Start will not fail for want of space
	Stop(instance string)              // returns when nothing of it is left; a session's process is forgotten with it
	Offer(server string, p *plan.Plan) // others may start it, if it does not run; nil: they may not
	Forget(server string)
	Log(name string) string
}

// daemon holds what should run and what does. All its fields from servers on belong to the goroutine in loop; others
// send it functions.
type daemon struct {
	inbox
	options    options
	log        *slog.Logger
	vault      *vault.Vault
	tokens     *tokens
	redaction  *redaction
	audit      *auditor
	delivery   delivery
	clientele  *clientele
	policy     *policy
	endpoint   string
	folder     func(dir string) fs.FS // opens that of the declarations
	port       port
	runner     runner
	emptied    func() // called when there is no server, for the first time or again
	folders    *watch.Folders
	notice     func(server, words string) // to the status line of a server's unit
	unheld     func() []string            // notes on what the host's firewall does not do
	inspectors *inspectors
	rebroker   func(server string) // has the bridges of a server put its secrets on the wire as they are now
	tellOwner  func(failure)       // of a server that has failed; does not wait. nil: systemd does (OnFailure=)
	earlier    *earlier            // the last good versions of declarations, for after the next boot; nil: none are kept
	leftovers  *leftovers
	keeper     *keeper
	mistakes   mistakes  // in files, as told to the administrator
	waits      bool      // what waits for a credential has a unit that runs and says so
	intents    intents   // what the next pfard is to know
	units      *reloader // nil: there are none

	// after calls f when a time is over (time.AfterFunc).
	after func(time.Duration, func()) interface{ Stop() bool }
	// relabelled has the status line of a unit show another label. nil: there are no units.
	relabelled func(instance, label string)
	// homeInUse has the disk looked at: a server with a private home has started. nil: nobody looks.
	homeInUse func()

	servers     map[string]*server
	declared    []declaration.Server // without mistakes
	diagnostics []control.Diagnostic
	unread      bool // the declarations cannot be read: what is known is of before
	notes       []string
	gatewayDown bool
	watchers    map[chan struct{}]bool
}

func newDaemon(o options, log *slog.Logger, v *vault.Vault, address string) *daemon {
	secrets := newRedaction()
	unrecorded := slog.New(journal.Redacting(log.Handler(), secrets.clean))
	records := newAuditor(o.dirs, unrecorded)
	log = slog.New(journal.Redacting(vaultRecords{log.Handler(), records}, secrets.clean))
	secrets.fill(v, log)
	fresh := newTokens(log, v)
	d := &daemon{
		options: o, log: log, vault: v, tokens: fresh, audit: records, redaction: secrets, endpoint: endpointAt(address),
		clientele: newClientele(o.dirs.Clients()), policy: newPolicy(),
		delivery: delivery{handing: handing{unrecorded, records.append}, vault: served{v, fresh}, learn: secrets.put, stood: newStood(o.placeholders(), log), given: newGiven(o.dirs.Given(), log)},
		folder:   os.DirFS,
		emptied:  func() {},
		notice:   func(string, string) {},
		unheld:   func() []string { return nil },
		rebroker: func(string) {},
		inbox:    newInbox(),
		servers:  map[string]*server{},
		after:    func(pause time.Duration, f func()) interface{ Stop() bool } { return time.AfterFunc(pause, f) },
		watchers: map[chan struct{}]bool{},
	}
	d.folders = watch.NewFolders(log, func() { d.post(d.tell) })
	d.inspectors = &inspectors{policy: d.policy, delivery: &d.delivery, dir: o.dirs.Policies(), host: d.host}
	d.leftovers = &leftovers{inbox: d.inbox, dirs: o.dirs, log: log, audit: records, ids: noIDs{}, servers: d}
	d.keeper = &keeper{
		inbox: d.inbox, log: log, vault: v, tokens: fresh, redaction: secrets, audit: records, servers: d,
		wired: func(context.Context, string) error { return nil },
	}
	d.mistakes = newMistakes(log)
	fresh.changed, fresh.know, fresh.refused = d.tokenChanged, secrets.addAll, d.tokenRefused
	fresh.turned = func() { d.post(d.wakeWaiting) }
	fresh.hand = func(key string) error { return d.delivery.over(toRefresh, key, "", "", nil) }
	d.audit.told = func() { d.post(d.tell) }
	d.audit.again = func() { d.post(d.recordedAgain) }
	return d
}

// endpointAt is the gateway's URL; "" for none.
func endpointAt(address string) string {
	if address == "" {
		return ""
	}
	return "http://" + address + "/mcp"
}

// loop runs until ctx ends, and calls ready when it has begun to make what runs match the declarations. changed says
// that those may have changed; SIGHUP says so as well.
func (d *daemon) loop(ctx context.Context, changed <-chan struct{}, ready func()) {
	defer close(d.ended)
	defer d.tokens.close()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, unix.SIGHUP)
	defer signal.Stop(hangup)
	d.reload()
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

// serverChanged takes the runner's updates.
func (d *daemon) serverChanged(u local.Update) {
	u.Detail, u.Refusal = d.redaction.clean(u.Detail), u.Refusal.Clean(d.redaction.clean)
	d.post(func() {
		switch s := d.servers[u.Server]; {
		case s == nil:
			if u.Outside && !u.Ended { // it was started as it was removed
				go d.runner.Stop(units.Instance(u.Server, u.Session))
			}
			return
		case u.Session != "":
			d.sessionChanged(s, u)
		case u.Outside:
			d.turnedOutside(s, u)
		default:
			before := s.status.State
			d.take(s, u)
			d.failed(s, before)
			d.retryCrashed(s)
			d.retryWaiting(s)
		}
		d.tell()
	})
}

// refused takes what a server's bridge has refused.
func (d *daemon) refused(server, session string, r egress.Refusal) {
	d.audit.refusals.refused(server, session, r.Clean(d.redaction.clean))
}

func (d *daemon) gatewayChanged(running bool) {
	d.post(func() {
		d.gatewayDown = !running
		d.reach() // its socket may be another one
		d.tell()
	})
}

// tell wakes those who watch; one who is slow gets the newest state once.
func (d *daemon) tell() {
	d.audit.lifecycle(d.servers)
	d.showTrouble()
	for _, s := range d.servers {
		d.intents.keep(s)
	}
	for w := range d.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// reload reads all declarations and brings what runs to what they say. A broken file changes nothing that runs.
func (d *daemon) reload() {
	o := d.known()
	set := declaration.Load(d.folder(d.options.declarations), d.options.declarations, o)
	policies := d.options.dirs.Policies()
	files, diags := d.policy.read(policies, d.log, func(next *gate.Policy) error { return d.audit.policies(policies, next) })
	diags = append(diags[:len(diags):len(diags)], d.inspectors.inspect()...)
	d.diagnostics = append(d.describe(files, diags), d.describe(set.Files, set.Diags)...)
	lacked := slices.Clone(diags)
	wanted := map[string]plan.Plan{}
	stale, broken := map[string]bool{}, slices.Clone(set.Broken)
	for _, s := range d.servers {
		s.held = nil
	}
	for _, s := range set.Servers {
		p, diags := generator.Compile(s, d.host())
		d.diagnostics = append(d.diagnostics, d.describe(set.Files, diags)...)
		lacked = append(lacked, diags...)
		if diags.HasErrors() {
			broken = append(broken, declaration.Broken{Name: s.Name, File: s.File})
			continue
		}
		if diags := d.holdBack(s, p); diags.HasErrors() {
			d.diagnostics = append(d.diagnostics, d.describe(set.Files, diags)...)
			stale[s.Name] = true
			continue
		}
		wanted[s.Name] = p
	}
	d.folders.Lack(generator.Absent(lacked))
	d.declared = slices.Concat(set.Servers, set.Earlier)
	for _, p := range d.standIns(set, broken, o) {
		if _, taken := wanted[p.Name]; !taken {
			wanted[p.Name], stale[p.Name] = p, p.Fault == ""
		}
	}
	stays := d.stays(set.Unread, broken)
	if err := d.delivery.given.begin(wanted, d.vault.List); err != nil {
		d.log.Warn("beginning to remember to which servers secrets are given, again soon", "error", err)
	}
	for name, p := range wanted {
		d.want(name, p, wordOf(set.Files[p.File], p.Fault))
	}
	d.diagnostics = append(d.diagnostics, d.clientele.read(set.Servers, d.policy.inForce(), d.describe, d.audit.clients)...)
	d.reach()
	d.tokens.use(d.keysInUse())
	for name, s := range d.servers {
		_, ok := wanted[name]
		s.stale = stale[name] || !ok && stays(s)
		if !ok && !s.stale {
			s.want = nil
		}
		s.checkLearner()
		d.converge(s)
	}
	d.earlier.keep(set, broken)
	d.audit.declarations(d.servers)
	d.nameServers(set)
	d.showMistakes()
	d.atBoot()
	if len(d.servers) == 0 {
		d.emptied()
	}
	d.unread = set.Unread
	d.leftovers.find()
	d.tell()
}

// recordedAgain goes on with what could not be recorded, and was not done for that.
func (d *daemon) recordedAgain() {
	d.reload()
	for name := range d.servers {
		d.rebroker(name)
	}
	d.wakeWaiting()
}

// atBoot has systemd know what starts with the machine.
func (d *daemon) atBoot() { d.units.files(boot.Files(os.Getuid(), d.declared, d.disabled)) }

// forget gives up a server that has no declaration, and of which nothing is left.
func (d *daemon) forget(server string) {
	d.runner.Forget(server)
	d.intents.forget(server)
	d.delivery.stood.forget(server)
	delete(d.servers, server)
	d.leftovers.find()
	if len(d.servers) == 0 {
		d.emptied()
	}
}

// want takes what a declaration has become. A new or changed file is the owner's word: it starts also what was stopped
// or had failed. Another plan by the same file is the host's: an update of a program of the server's, or of pfar.
func (d *daemon) want(name string, p plan.Plan, word string) {
	s := d.servers[name]
	if s == nil {
		s = newServer(name)
		s.off = d.disabled(name)
		d.servers[name] = s
	}
	if s.want == nil || s.word != word {
		s.run, s.asleep, s.retry.tries = p.Enabled && p.Autostart, p.Enabled && !p.Autostart, 0
	}
	s.want, s.word = &p, word
	d.compareScopes(s)
}

// wordOf tells a file's content from others, and what is wrong with it.
func wordOf(f *hcl.File, fault string) string {
	var text []byte
	if f != nil {
		text = f.Bytes
	}
	sum := sha256.Sum256(append(slices.Clone(text), fault...))
	return hex.EncodeToString(sum[:])
}

// host is what the compiler may know of this machine.
func (d *daemon) host() generator.Host {
	home, _ := os.UserHomeDir() // without one there is none to protect
	dirs := d.options.dirs
	return generator.Host{
		FS: os.DirFS("/").(fs.ReadLinkFS), Path: filepath.SplitList(os.Getenv("PATH")), Home: home,
		StateDir: dirs.Homes(), Private: dirs.Private(d.options.declarations),
	}
}

// describe renders diagnostics as the CLI prints them.
func (d *daemon) describe(files map[string]*hcl.File, diags hcl.Diagnostics) []control.Diagnostic {
	var list []control.Diagnostic
	for _, g := range diags {
		c := control.Diagnostic{Severity: "error", Summary: g.Summary, Detail: g.Detail}
		if g.Severity == hcl.DiagWarning {
			c.Severity = "warning"
		}
		if g.Subject != nil {
			c.File, c.Line, c.Column = g.Subject.Filename, g.Subject.Start.Line, g.Subject.Start.Column
		}
		var text bytes.Buffer
		if err := declaration.Write(&text, files, hcl.Diagnostics{g}, 100, false); err != nil {
			d.log.Warn("rendering a diagnostic, ignoring", "error", err)
		}
		c.Text = text.String()
		list = append(list, c)
	}
	return list
}

// report is what `pfar status` shows.
func (d *daemon) report() control.Report {
	dirs := d.options.dirs
	r := control.Report{
		Version: units.Version(), Directory: d.options.declarations, Clients: dirs.Clients(), ClientFiles: d.clientele.known(), Policies: dirs.Policies(), Programs: d.options.servers, Endpoint: d.endpoint, TokenFile: dirs.Token(),
		Socket: dirs.Gateway(), Journal: !d.options.local, Diagnostics: d.diagnostics, Notes: slices.Clone(d.notes), Servers: []control.Server{}, Leftovers: d.leftovers.names,
	}
	if d.gatewayDown {
		r.Notes = append(r.Notes, "the gateway is not running; its log is "+d.runner.Log(units.GatewayLog))
	}
	if r.PortFault = d.port.fault; r.PortFault != "" {
		r.Notes = append(r.Notes, r.PortFault)
	}
	r.Notes = append(append(r.Notes, d.policy.notes(dirs.Policies())...), d.clientele.notes()...)
	r.Notes = append(r.Notes, d.unheld()...)
	r.Notes = append(r.Notes, d.inspectors.keyless...)
	r.Notes = append(r.Notes, d.folders.Notes()...)
	r.Notes = append(r.Notes, d.audit.shown()...)
	for _, s := range d.servers {
		c := s.report(d.runner.Log(s.name))
		problems := d.problems(s)
		if s.unscoped != "" && s.want != nil && s.want.Enabled && !s.off {
			problems = append(problems, s.unscoped)
		}
		if s.unreached != "" && s.started != nil {
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
		r.Servers = append(r.Servers, c)
	}
	slices.SortFunc(r.Servers, func(a, b control.Server) int { return strings.Compare(a.Name, b.Name) })
	return r
}
