package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/connect"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/inspect"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/notice"
	"github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/flowdesk"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/cmd/pfar-gateway/telemetry"
	"github.com/pfar/pfar/cmd/pfar-gateway/verify"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/migrate"
)

type options struct {
	tokenFile string
	uids      uids
	control   string // pfard's socket
	keepAudit bool   // in the service manager's store
	pins      string // directory
	state     string // directory
	inspect   string // directory of the inspectors' sockets
}

// uids is a flag that may be repeated.
type uids []uint32

func (u *uids) String() string { return fmt.Sprint(*u) }

func (u *uids) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a user id", s)
	}
	*u = append(*u, uint32(n))
	return nil
}

const (
	drainTime = 5 * time.Second  // for calls in flight at the end
	patience  = 10 * time.Second // of requests with a gateway that pfard has not told all yet
	spanTime  = 2 * time.Second  // for the last spans, after the calls
)

// keptFiles are in the store, and belong to whoever follows pfard once that runs.
type keptFiles struct{ secrets, policy, clients handedDown }

// gateway is its parts, put together.
type gateway struct {
	telemetry *telemetry.Telemetry
	pins      *pins.Store
	state     *state.DB
	sessions  *label.Sessions
	approvals *approval.Store
	registry  *registry.Registry
	endpoint  *serve.Server
	changed   chan struct{}   // something has, in what is served
	pfard     *control.Client // nil: nobody to ask for anything
	secrets   *protocol.Redaction
	before    *[]access.Client // that the gateway before this one was told of; nil: nothing
	audit     *trail.Log
	auditFull <-chan struct{} // the file has enough
	store     *units.Store    // nil: there is none
	point     *enforce.Point  // that every request passes
	others
	wishes *connect.Wishes // of models for services; nil: nobody fulfils them

	auditTurned <-chan error // why records cannot be written; nil: they can again

	kept keptFiles

	keepAudit bool // in the store: a service manager that is pfard itself opens it again
	log       *slog.Logger
}

// others are the desk for flows, those whom the gateway asks or tells by processes that reach them, and the operators
// at other machines.
type others struct {
	flows   *flowdesk.Desk
	panel   *inspect.Panel
	teller  *notice.Teller
	models  *models.Models
	signers *operator.Signers
}

// assemble makes the parts and tells them of each other.
func (o options) assemble(ctx context.Context, log *slog.Logger) (*gateway, error) {
	if o.pins == "" {
		return nil, errors.New("--pins is missing: it says where accepted tools are remembered")
	}
	if o.state == "" {
		return nil, errors.New("--state is missing: it says where is remembered what sessions have seen")
	}
	if err := migrate.Whole(filepath.Dir(o.state)); err != nil { // the gateway's directory lies in the state that pfard keeps
		return nil, err
	}
	store, err := pins.Open(o.pins, log)
	if err != nil {
		return nil, err
	}
	secrets := protocol.NewRedaction()
	log = slog.New(journal.Redacting(log.Handler(), secrets.Text))
	version := units.Version()
	tel := telemetry.New(ctx, log, version)
	g := &gateway{
		telemetry: tel, pins: store, registry: registry.New(log, version, registry.DefaultLimits()),
		changed: make(chan struct{}, 1), secrets: secrets, log: log,
		keepAudit: o.keepAudit,
		kept: keptFiles{
			secrets: handedDown{name: units.FDSecrets, most: attach.MaxSet},
			policy:  handedDown{name: units.FDPolicy, most: gate.MaxPolicy},
			clients: handedDown{name: units.FDClients, most: maxClients},
		},
	}
	g.registry.Pin(store)
	if err := g.remember(o.state); err != nil {
		return nil, err
	}
	g.audit = g.newAudit()
	g.others = others{
		panel: &inspect.Panel{Dir: o.inspect}, teller: notice.New(o.inspect, log, notice.Wall()),
		models: &models.Models{Dir: o.inspect, Vault: secrets}, signers: new(operator.Signers),
	}
	g.approvals.Console = g.signers
	g.point = &enforce.Point{
		Sessions: g.sessions, Approvals: g.approvals, Trail: g.audit, Vault: secrets, Inspectors: g.panel,
		Keeper: g.registry, Log: log,
	}
	g.point.Reads = provenance.New(provenance.DefaultLimits)
	if g.point.Grants, err = grant.Open(g.state, g.point.Reads); err != nil {
		g.state.Close()
		return nil, err
	}
	verifier, err := verify.Open(g.state, g.point, log)
	if err != nil {
		g.state.Close()
		return nil, err
	}
	g.registry.Verifies(verifier)
	if o.control != "" {
		store.Record(g.record)
		g.pfard = &control.Client{Path: o.control}
		g.point.Patience = patience
		g.registry.Redact(secrets)
		g.registry.Opens(asked{*g.pfard})
		g.registry.Wakes(asked{*g.pfard})
	}
	parts := serve.Parts{
		Log: log, Version: version, Registry: g.registry, Gate: g.point, Telemetry: tel, Await: true, Limits: serve.DefaultLimits(),
	}
	if g.pfard != nil {
		g.wishes = connect.New(*g.pfard)
		parts.Refusals, parts.Wishes = asked{*g.pfard}.refused, g.wishes
	}
	g.endpoint = serve.New(parts)
	err = g.endpoint.Flow(func(calls *call.Calls) (serve.Flows, error) {
		g.flows, err = openFlows(o.state, g.state, calls, g.models, answers(g.pfard), g.log)
		return g.flows, err
	})
	if err != nil {
		g.state.Close()
		return nil, err
	}
	tel.Gauges(g.registry.Gauges)
	g.registry.Watch(g.event)
	return g, nil
}

// event passes on what happens in the registry. It does not block.
func (g *gateway) event(e registry.Event) {
	g.endpoint.Event(e)
	if e.Forgotten {
		g.telemetry.Forget(e.Server)
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// run serves until ctx ends or a listener fails.
func run(ctx context.Context, o options, log *slog.Logger) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(300) // little is alive, and what calls leave behind is much: some MB more save a tenth of the time
	}
	l, before, err := inherited()
	if err != nil {
		return err
	}
	g, err := o.assemble(ctx, log)
	if err != nil {
		return err
	}
	log = g.log
	defer g.forget()
	upstream, hangUp := context.WithCancel(context.Background()) // calls in flight outlive ctx
	defer hangUp()
	guarded, err := o.loopback(g.endpoint, l.http)
	if err != nil {
		return err
	}
	g.goOn(upstream, before, log) // who hears from this process takes its credentials away
	defer lastSpans(g.telemetry, log)
	failed := make(chan error, 5)
	servers, err := o.clients(g, l, guarded, log, failed)
	if err != nil {
		return err
	}
	g.admit()
	if l.metrics != nil {
		h, err := g.telemetry.ServeMetrics(l.metrics)
		if err != nil {
			return err
		}
		servers = append(servers, h)
	}
	go func() { failed <- g.registry.Serve(upstream, l.servers) }()
	go g.teller.Run(ctx, g.approvals)
	if g.pfard != nil {
		go g.followAudit(ctx)
		go g.followTrouble(ctx)
		go g.followDemand(ctx)
		go g.followSecrets(ctx)
		go g.followClients(ctx)
		go g.followPolicy(ctx)
	}
	g.flows.Start()
	notify(log, daemon.SdNotifyReady+"\nSTATUS="+g.registry.Summary())
	units.Settle()
	err = follow(ctx, g.registry, g.changed, failed, log)
	notify(log, daemon.SdNotifyStopping)
	l.servers.Close()
	g.approvals.Release()
	end, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var runs sync.WaitGroup
	runs.Go(func() { g.flows.Close(end) }) // who watches a run is told at once
	g.endpoint.Drain(end, servers...)
	runs.Wait() // no request holds their calls, which need their servers and the record of how they end
	g.registry.Close()
	g.endAudit()
	return err
}

// lastSpans sends what traces wait, after the last call.
func lastSpans(tel *telemetry.Telemetry, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), spanTime)
	defer cancel()
	if err := tel.Close(ctx); err != nil {
		log.Warn("sending the last traces, ignoring", "error", err.Error())
	}
}

// askAgain is the longest pause until pfard is asked again what it has to tell, after it has hung up.
const askAgain = 30 * time.Second

// maxPasskey is how many connections the socket of passkeys has at once: the remote console needs no more.
const maxPasskey = 192

// followDemand tells the registry which servers are on demand, and which of them sleep, until ctx ends.
func (g *gateway) followDemand(ctx context.Context) {
	g.followPfard(ctx, "which servers are on demand", askAgain, func(heard func()) error {
		return g.pfard.OnDemand(ctx, func(list []control.OnDemand) error {
			g.registry.OnDemand(list)
			heard()
			return nil
		})
	})
}

// followSecrets learns what secrets no message may hold, until ctx ends. Without the first answer nothing is served, so
// it is asked for more often.
func (g *gateway) followSecrets(ctx context.Context) {
	g.followPfard(ctx, "which secrets results must not hold", 2*time.Second, func(heard func()) error {
		return g.pfard.Redaction(ctx, func(b []byte) error {
			set := new(redact.Set)
			if err := set.UnmarshalBinary(b); err != nil {
				return err
			}
			g.secrets.Learn(set)
			heard()
			g.kept.secrets.keep(g.store, b, g.log)
			return nil
		})
	})
}

// followPolicy learns what calls are decided by, until ctx ends. A policy of a later pfard may have a member that this
// gateway does not know, and that may be a restriction: the policy before stays in force. What servers may reach counts
// at once, since more of it makes decisions stricter.
func (g *gateway) followPolicy(ctx context.Context) {
	g.followPfard(ctx, "what calls are decided by", 2*time.Second, func(heard func()) error {
		return g.pfard.Policy(ctx, func(b, sandboxes []byte) error {
			policy := new(gate.Policy)
			refused := policy.UnmarshalJSON(b)
			if refused != nil {
				policy = g.point.Policy()
			}
			confined, unread := confinedBy(sandboxes)
			if policy != nil {
				g.decideBy(policy, confined)
			}
			if err := errors.Join(refused, unread); err != nil {
				return err
			}
			heard()
			g.kept.policy.keep(g.store, b, g.log)
			return nil
		})
	})
}

// confinedBy reads what all servers may reach. Without it, which is by a pfard of an earlier version, none is confined,
// nor is any if it cannot be read.
func confinedBy(b []byte) (*gate.Sandboxes, error) {
	if b == nil {
		return nil, nil
	}
	var told []gate.Sandbox
	if err := json.Unmarshal(b, &told); err != nil {
		return nil, fmt.Errorf("reading what servers may reach: %w", err)
	}
	return gate.NewSandboxes(told), nil
}

// decideBy takes a policy and the servers' sandboxes, and ends what was granted under another policy.
func (g *gateway) decideBy(policy *gate.Policy, sandboxes *gate.Sandboxes) {
	before := g.point.Policy()
	g.point.Learn(policy, sandboxes)
	if before != nil && before.Digest == policy.Digest {
		return
	}
	g.panel.Learn(policy.Inspectors)
	g.teller.Learn(policy.Notices)
	g.models.Learn(policy.Models)
	g.registry.Relist()
	g.point.Grants.Policy(policy.Digest)
}

// followPfard asks pfard something that it goes on answering, and again when it has hung up, until ctx ends. ask calls
// heard for each answer.
func (g *gateway) followPfard(ctx context.Context, what string, longest time.Duration, ask func(heard func()) error) {
	const first = time.Second / 2
	for pause := time.Second; ; pause = min(2*pause, longest) {
		err := ask(func() { pause = first })
		if ctx.Err() != nil {
			return
		}
		g.log.Warn("asking pfard "+what+", again soon", "error", err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// clients begins to serve clients on the listeners that there are.
func (o options) clients(g *gateway, l listeners, guarded http.Handler, log *slog.Logger, failed chan<- error) ([]*http.Server, error) {
	endpoint := g.endpoint
	most, err := connections()
	if err != nil {
		return nil, err
	}
	var servers []*http.Server
	if l.http != nil {
		h := endpoint.HTTP(guarded)
		servers = append(servers, h)
		go func() { failed <- h.Serve(limit(l.http, most, log)) }()
	}
	if l.unix != nil {
		operators := append(slices.Clone(o.uids), uint32(os.Geteuid()))
		h := endpoint.HTTP(endpoint.Local(operators...))
		servers = append(servers, h)
		peers := clients.Peers{UnixListener: l.unix, UIDs: operators, Declared: endpoint.Declared, Log: log}
		go func() { failed <- h.Serve(limit(peers, most, log)) }()
	}
	if l.operator != nil {
		h := g.desk().HTTP()
		servers = append(servers, h)
		go func() { failed <- h.Serve(limit(l.operator, most/4, log)) }()
	}
	if l.passkey != nil {
		h := g.desk().Signed(g.signers, time.Now)
		servers = append(servers, h)
		go func() { failed <- h.Serve(limit(l.passkey, min(most/4, maxPasskey), log)) }()
	}
	return servers, nil
}

// follow keeps the unit's status line until the end.
func follow(ctx context.Context, reg *registry.Registry, changed <-chan struct{}, failed <-chan error, log *slog.Logger) error {
	for {
		select {
		case <-changed:
			notify(log, "STATUS="+reg.Summary())
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if err == nil {
				err = errors.New("a listener was closed")
			}
			return fmt.Errorf("serving: %w", err)
		}
	}
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("notifying the runner, ignoring", "error", err.Error())
	}
}

// loopback returns what answers on the TCP listener, which must not be reachable from elsewhere; nil if there is none.
func (o options) loopback(endpoint *serve.Server, l *net.TCPListener) (http.Handler, error) {
	if l == nil {
		return nil, nil
	}
	addr := l.Addr().(*net.TCPAddr)
	if !addr.IP.IsLoopback() {
		return nil, fmt.Errorf("descriptor %q listens on %s, which is not loopback", units.FDHTTP, addr)
	}
	token, err := o.token()
	if err != nil {
		return nil, err
	}
	return endpoint.Loopback(token, addr.Port)
}

func (o options) token() ([]byte, error) {
	if o.tokenFile == "" {
		b, err := units.Credential("token")
		return bytes.TrimSpace(b), err
	}
	b, err := os.ReadFile(o.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	return bytes.TrimSpace(b), nil
}
