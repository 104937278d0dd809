package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/bridge"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/fingerprint"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/local"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/sandbox"
	"github.com/pfar/pfar/units/systemd"
)

// attachments is where the processes of instance units report (package units/attach). What they say of themselves is
// not believed: systemd says whose they are.
type attachments struct {
	log     *slog.Logger
	link    *systemd.Link
	runner  *systemd.Runner
	limits  *local.UnitScopes
	hold    *hold
	gateway string // its socket for launchers
	homes   string // directory of the servers' private homes

	delivery *delivery
	policy   *policy
	audit    *auditor

	rootless  bool       // launchers make their servers' namespaces
	redaction *redaction // by which bridges search what they log, each for its own server's, and pfard what launchers do, for all

	programs fingerprint.Cache

	newcomers newcomers
	warnings  rate.Sometimes // of warn

	talks *bridge.Talks // with bridges
	tasks *taskUnits

	mu        sync.Mutex
	launchers map[string]launcher      // by instance
	bridges   map[string]*attach.Conn  // likewise
	kept      map[string]*kept         // by instance, for its bridge
	budgets   map[string]*rate.Limiter // by instance, of what its launcher asks; one that comes again finds its own
	mistakes  map[string]string        // by server: what is wrong with its file
}

// launcher is a server's launcher that has been welcomed.
type launcher struct {
	conn *attach.Conn
	pid  int
}

// errForGood is wrapped by what another start would not mend: the server is disabled, and the owner told.
var errForGood = errors.New("no server can run on this machine")

const (
	helloTime    = 5 * time.Second        // whoever connects and says nothing holds nothing
	strangerTime = 100 * time.Millisecond // for the hello of a stranger, who is to hear why it is refused
	identifyTime = 20 * time.Second       // for systemd's word on who has connected: at boot it has much else to do
)

// serve takes connections until the listener is closed.
func (a *attachments) serve(l *net.UnixListener) {
	for {
		c, err := units.Accept(context.Background(), l.AcceptUnix, func(err error) {
			a.log.Warn("accepting the processes of servers, trying again", "error", err)
		})
		if err != nil {
			return
		}
		peer, err := control.PeerOf(c)
		if err == nil {
			err = a.newcomers.enter(peer.UID)
		}
		if err != nil {
			c.Close()
			a.warn("hanging up on a process, which may try again", err)
			continue
		}
		go a.attached(attach.Accepted(c), peer)
	}
}

// warn logs what every process of this machine can bring about, and so not each time.
func (a *attachments) warn(words string, err error) {
	a.warnings.Do(func() { a.log.Warn(words, "error", err) })
}

// attached converses with one process until it hangs up.
func (a *attachments) attached(conn *attach.Conn, peer control.Peer) {
	defer conn.Close()
	p, hello := a.introduced(conn, peer)
	if hello == nil {
		return
	}
	var err error
	switch {
	case p.Bridge:
		err = a.bridge(conn, p, hello)
	case p.Refresh, p.Login:
		err = a.tasks.sent(conn, p, hello)
	case p.Model:
		err = a.modeller(conn, p)
	case p.Chat:
		err = a.talker(conn, p, peer.UID)
	case p.Page, p.Console:
		err = a.tasks.paged(conn, p, hello)
	default:
		err = a.launcher(conn, p, peer.UID, hello)
	}
	if err != nil {
		a.log.Warn("refusing a process of a server's", "server", p.Instance, "error", err)
		_ = conn.Send(attach.Message{Error: err.Error(), Later: !errors.Is(err, errForGood)})
	}
}

// introduced finds out who has connected, which is a newcomer until then, and returns its hello; nil if it goes no
// further.
func (a *attachments) introduced(conn *attach.Conn, peer control.Peer) (systemd.Process, *attach.Hello) {
	defer a.newcomers.leave(peer.UID)
	p, err := a.identify(peer)
	patience := helloTime
	if errors.Is(err, systemd.ErrStranger) {
		patience = strangerTime
	} else if err != nil {
		a.warn("finding out who has attached, which tries again", err)
		return p, nil
	}
	stop := time.AfterFunc(patience, func() { conn.Close() })
	m, files, silent := conn.Receive()
	attach.CloseAll(files)
	if !stop.Stop() || silent != nil {
		return p, nil
	}
	if err == nil && (m.Hello == nil || m.Hello.Bridge != p.Bridge || m.Hello.Refresh != p.Refresh ||
		m.Hello.Login != p.Login || m.Hello.Model != p.Model || m.Hello.Page != p.Page || m.Hello.Chat != p.Chat ||
		m.Hello.Console != p.Console || m.Hello.Remote != p.Remote) {
		err = fmt.Errorf("the first message of process %d is not the hello of %q", p.PID, p.Instance)
	}
	if err != nil {
		a.warn("refusing a process", err)
		_ = conn.Send(attach.Message{Error: err.Error(), Later: true})
		return p, nil
	}
	return p, m.Hello
}

// identify finds out who has connected.
func (a *attachments) identify(peer control.Peer) (systemd.Process, error) {
	ctx, cancel := context.WithTimeout(context.Background(), identifyTime)
	defer cancel()
	bus, err := a.link.Bus(ctx)
	if err != nil {
		return systemd.Process{}, err
	}
	return systemd.Identify(ctx, bus, peer.PID, peer.UID)
}

// launcher is the conversation with a server's launcher. An error is why it must not go on. One that comes again takes
// the place of its own earlier connection.
func (a *attachments) launcher(conn *attach.Conn, p systemd.Process, uid int, hello *attach.Hello) error {
	begun := handover.Now()
	plan, err := a.runner.Attach(p.Instance, hello.Digest, p.PID, uid)
	if err != nil {
		return err
	}
	defer a.runner.Observe(p.Instance)
	if err := a.welcome(conn, p, uid, plan, begun, hello.Again); err != nil {
		return err
	}
	a.mu.Lock()
	before := a.launchers[p.Instance].conn
	a.launchers[p.Instance] = launcher{conn, p.PID}
	mistake, mistaken := a.mistakes[p.Instance]
	a.mu.Unlock()
	if mistaken {
		_ = conn.Send(attach.Message{Mistake: &mistake})
	}
	if hello.Again { // it may have changed since the launcher read its plan
		a.relabelled(p.Instance, plan.Gateway.Label)
	}
	if before != nil {
		before.Close()
	}
	defer a.gone(p.Instance, conn)
	ctx, over := context.WithCancel(context.Background())
	defer over()
	searches := conn.Searches(ctx, a.redaction.searcher(a.log), a.budget(p.Instance))
	var limits sandbox.Limits // with which this pfard has placed the server
	for {
		m, files, err := conn.Receive()
		if err != nil {
			return nil // it has ended, or pfard does
		}
		if m.Sockets && a.rootless {
			a.keepOwn(p.Instance, files, hello.Again)
			continue
		}
		if m.Search != nil {
			searches.Take(*m.Search, files)
			continue
		}
		attach.CloseAll(files)
		switch {
		case m.Place != nil:
			var answer *attach.Placed
			answer, limits = a.place(p, m.Place.PID)
			_ = conn.Send(attach.Message{Placed: answer})
		case m.Ended:
			_ = conn.Send(attach.Message{End: &attach.End{OOM: a.limits.OOMKilled(p.Instance)}})
		case m.Notify != nil:
			a.runner.Tell(p.Instance, func(u *units.Update) { u.Take(m.Notify) })
			if m.Notify[units.NotifyLimits] != "" {
				a.runner.Relimit(p.Instance, limits)
			}
		}
	}
}

// welcome prepares what a launcher needs before it may start its server, and hands it over. The plan was read after
// begun.
func (a *attachments) welcome(conn *attach.Conn, p systemd.Process, uid int, plan plan.Plan, begun int64, again bool) error {
	if !a.rootless {
		if err := a.network(p, plan, again); err != nil {
			return err
		}
	}
	if again { // it has all this
		return conn.Send(attach.Message{Welcome: &attach.Welcome{}})
	}
	if !a.rootless {
		if err := checkStaged(filepath.Dir(a.gateway), p.PID, plan); err != nil {
			return err
		}
	}
	if plan.Sandbox.Once {
		if err := local.MakeOwn(plan.PrivateHome(), uid); err != nil {
			return err
		}
		return conn.Send(attach.Message{Welcome: &attach.Welcome{}}) // nobody speaks to it
	}
	if plan.State {
		if err := local.MakeOwn(filepath.Join(a.homes, plan.Name), uid); err != nil {
			return err
		}
	}
	if plan.Undo != nil {
		if err := local.MakeOwn(plan.Undo.Dir, uid); err != nil {
			return err
		}
	}
	told := a.programs.Told(os.DirFS("/").(fs.ReadLinkFS), plan)
	f, err := handover.DialFor(a.gateway, handover.Message{
		Expect: &told, At: begun, Secrets: a.redaction.serial(), Proof: a.delivery.proof(plan),
	})
	if err != nil {
		return err
	}
	defer f.Close()
	return conn.Send(attach.Message{Welcome: &attach.Welcome{}}, f)
}

// checkStaged wants what systemd shows to a launcher to be what its plan names: systemd follows symbolic links, and
// whoever may write above a source may have put one there since.
func checkStaged(run string, pid int, plan plan.Plan) error {
	for _, m := range systemd.Staged(plan) {
		f, err := units.OpenNoLinks(m.Source)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the launcher says so
		}
		if err != nil {
			return err
		}
		var source, shown unix.Stat_t
		err = unix.Fstat(int(f.Fd()), &source)
		f.Close()
		if err == nil {
			err = unix.Lstat(fmt.Sprintf("/proc/%d/root%s", pid, units.Staged(run, m.Source)), &shown)
		}
		if err != nil {
			return fmt.Errorf("looking for what is shown in place of %q: %w", m.Source, err)
		}
		if source.Dev != shown.Dev || source.Ino != shown.Ino {
			return fmt.Errorf("%q is not what is shown in its place", m.Source)
		}
	}
	return nil
}

// place puts the process of a launcher's into the server's scope, and returns the limits that it is held to. The
// launcher runs as the server's user: it may have its own child moved, and no other process.
func (a *attachments) place(p systemd.Process, pid int) (*attach.Placed, sandbox.Limits) {
	plan, err := a.runner.Plan(p.Instance)
	if err == nil {
		if err = local.ChildOf(pid, p.PID); err != nil {
			err = systemd.Final(err)
		}
	}
	var how string
	if err == nil {
		how, err = a.limits.Place(context.Background(), p.Instance, pid, plan.Sandbox.Limits)
	}
	return placed(how, err), plan.Sandbox.Limits
}

// placed is the answer for a process that is held like this, or not. What is no answer of systemd's, nor a refusal of
// ours, is none of the server's fault.
func placed(how string, err error) *attach.Placed {
	if err != nil {
		return &attach.Placed{Error: err.Error(), Later: !systemd.Answered(err)}
	}
	return &attach.Placed{How: how}
}

// gone forgets a launcher, unless another one has come in the meantime.
func (a *attachments) gone(instance string, conn *attach.Conn) {
	a.mu.Lock()
	last := a.launchers[instance].conn == conn
	if last {
		delete(a.launchers, instance)
		time.AfterFunc(attach.Refill, func() { a.forgetBudget(instance) })
	}
	a.mu.Unlock()
	if last && a.rootless { // the namespace was the launcher's
		a.drop(instance)
	}
}

// budget is what an instance may have searched.
func (a *attachments) budget(instance string) *rate.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.budgets[instance] == nil {
		a.budgets[instance] = attach.NewBudget()
	}
	return a.budgets[instance]
}

// forgetBudget forgets one that is whole, of an instance without a launcher.
func (a *attachments) forgetBudget(instance string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.budgets[instance]
	if b != nil && a.launchers[instance].conn == nil && b.Tokens() >= float64(b.Burst()) {
		delete(a.budgets, instance)
	}
}
