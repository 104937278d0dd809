package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-egress/resolver"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	sdjournal "github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/plan"
)

// run serves what was passed to this process. Path is pfard's socket, "" without one: then no firewall holds this
// process.
func run(ctx context.Context, path string, idle time.Duration) error {
	passed, err := passedSockets()
	if err != nil {
		return err
	}
	pl, digest, err := readPlan()
	if err != nil {
		return err
	}
	var pfard *attachment
	var log *slog.Logger
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.Warn("notifying the runner, ignoring", "error", err)
		}
	}
	clean, err := newHidden()
	if err != nil {
		return err
	}
	full := func() { notify(units.NotifyLogFull + "=1") }
	written := &sdjournal.Counted{To: os.Stderr, Every: units.LogSegment, Full: full}
	log = slog.New(sdjournal.Redacting(sdjournal.New(written), clean.clean)).With("server", pl.Name)
	if session := pl.Gateway.Session; session != "" {
		log = log.With("session", session)
	}
	keep := newSecrets(pl)
	serving, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if path != "" {
		var files []*os.File
		if pfard, files, err = attachTo(ctx, path, digest, keep, clean, log, fail); err != nil {
			return err
		}
		if err := passed.take(files); err != nil {
			return err
		}
	}
	if passed.pfard != nil {
		go keep.follow(passed.pfard, clean, log)
	}
	if len(passed.proxy)+len(passed.monitor) == 0 {
		return fmt.Errorf("taking over sockets: no listener was passed as %q or %q", units.FDEgress, units.FDMonitor)
	}
	table := monitor.NewTable(runtimeFile("connections"))
	j := newJournal(log, table, func(status string) { notify("STATUS=" + status) })
	j.clean = clean.clean
	switch {
	case pfard != nil:
		j.tell = pfard.tell
	case passed.pfard != nil:
		j.tell = func(r egress.Refusal) { _ = passed.pfard.Send(attach.Message{Refused: &r}) } // it may have gone
	}
	p, err := newProxy(pl, j)
	if err != nil {
		return err
	}
	p.out.firewall, p.secrets, p.pins, p.trusted = pfard, keep, pl.TLSPins, pl.CA
	s := &service{sources: p.sources(passed, table), idle: idle, log: log}
	notify("READY=1")
	units.Settle()
	if err = s.run(serving); err == nil && ctx.Err() == nil {
		err = context.Cause(serving)
	}
	notify("STOPPING=1")
	j.flush()
	if serr := table.Save(); serr != nil {
		log.Warn("saving what was seen of connections, ignoring", "error", serr)
	}
	return err
}

// runtimeFile is a file of this unit that outlives the process; "" if there is no place for one.
func runtimeFile(name string) string {
	dir := os.Getenv("RUNTIME_DIRECTORY")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, name)
}

func newProxy(pl plan.Plan, j *journal) (*proxy, error) {
	addresses, err := resolver.NewAddresses(pl.Egress, runtimeFile("leases"))
	if err != nil {
		return nil, err
	}
	up, err := readUpstream(os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return nil, err
	}
	out := newDialer()
	out.upstream = up
	return &proxy{ // where the owner keeps declarations is not the server's business
		route: newRoute(pl.Egress, out), name: pl.Name, file: filepath.Base(pl.File), addresses: addresses,
		journal: j, opener: newOpener(defaultLimits),
	}, nil
}

// sockets are those that were passed to this process. They live in the server's network namespace, but for the monitor.
type sockets struct {
	proxy     []*net.TCPListener
	redirect  []*net.TCPListener
	names     []*net.TCPListener
	datagrams []*net.UDPConn
	rejected  []*os.File // NFLOG
	monitor   []*net.UnixListener
	pfard     *attach.Conn // of a local pfard; nil: none
}

func (p *proxy) sources(in sockets, table *monitor.Table) []source {
	ipv6 := false
	conns, pace := make(chan struct{}, p.limits.conns), rate.NewLimiter(p.limits.rate, int(p.limits.rate))
	var all []source
	for _, l := range in.proxy {
		all = append(all, listener(l, conns, pace, p.serveConn))
	}
	for _, l := range in.redirect {
		a, ok := l.Addr().(*net.TCPAddr)
		ipv6 = ipv6 || ok && a.IP.To4() == nil
		all = append(all, listener(l, conns, pace, p.serveRedirected))
	}
	n := &names{resolver: resolver.New(p.policy, p.addresses, ipv6), journal: p.journal, wanted: p.expect}
	for _, l := range in.names {
		all = append(all, listener(l, make(chan struct{}, 16), nil, n.serveConn))
	}
	for _, c := range in.datagrams {
		all = append(all, n.datagrams(c))
	}
	for _, f := range in.rejected {
		all = append(all, rejected(f, p))
	}
	for _, l := range in.monitor {
		all = append(all, listener(l, make(chan struct{}, 16), nil, func(ctx context.Context, c *net.UnixConn) {
			defer c.Close()
			_ = table.Serve(ctx, c) // a watcher that went away
		}))
	}
	return all
}

// readPlan returns the plan, and what it is known by.
func readPlan() (pl plan.Plan, digest string, err error) {
	b, err := units.Credential("plan")
	if err != nil {
		return plan.Plan{}, "", err
	}
	// A bridge needs neither the sandbox nor most of what the gateway is told: to decode them would take 65 kB.
	var own struct {
		plan.Plan
		Sandbox struct{} `json:"sandbox"`
		Gateway struct {
			Session string `json:"session"`
		} `json:"gateway"`
	}
	if err := json.Unmarshal(b, &own); err != nil {
		return plan.Plan{}, "", fmt.Errorf("reading credential %q: %w", "plan", err)
	}
	pl = own.Plan
	pl.Gateway.Session = own.Gateway.Session
	if pl.Name == "" {
		return plan.Plan{}, "", errors.New(`reading credential "plan": it names no server`)
	}
	return pl, units.Digest(b), nil
}
