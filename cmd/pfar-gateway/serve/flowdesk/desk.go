// Package flowdesk runs flows for clients: their orders by HTTP in, plans that the gate has judged to the runner, and
// the runner's calls through the gate to tools and native nodes.
package flowdesk

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/models"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/reuse"
	"github.com/pfar/pfar/cmd/pfar-gateway/runs"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/call"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Desk takes orders about flows, and makes the calls of their runs.
type Desk struct {
	calls    *call.Calls
	nodes    *native.Nodes
	models   *models.Models
	consents consent.Store
	runner   *runs.Runner
	results  *reuse.Store // of pure tools
	log      *slog.Logger
	begun    time.Time
	life     life
	asked    asked
	rates    rates
	turns    turns
	followed places
	asking   places // orders for which models are asked
	reading  places // orders that read nodes or runs
}

// Parts are those of a Desk.
type Parts struct {
	Calls  *call.Calls
	DB     *state.DB
	Nodes  *native.Nodes
	Models *models.Models // that plan, and put results into words; nil: none are declared
	Log    *slog.Logger

	Pfard func(context.Context) error // asks pfard for an answer; an error: it gives none. nil: there is nobody to ask
}

// Open opens the desk, and the runs of the gateway before. No run goes on before Start.
func Open(p Parts) (*Desk, error) {
	d := &Desk{
		calls: p.Calls, nodes: p.Nodes, models: p.Models, log: p.Log, begun: p.Calls.Clock.Now(),
		consents: consent.Store{DB: p.DB, Now: time.Now, Recent: new(consent.Recent)},
		results:  reuse.New(reuse.DefaultLimits(), p.Calls.Clock.Now),
		life:     begun(p.Pfard),
		asked:    asked{of: make(map[string]question)},
	}
	var err error
	d.runner, err = runs.Open(runs.Parts{DB: p.DB, Caller: d, Clean: d.clean, Log: p.Log, Over: d})
	return d, err
}

// Start lets runs go on. Clients and the gate are there by then, or their calls wait for them.
func (d *Desk) Start() { d.runner.Start() }

// Close ends the runs that go on, whose calls have until ctx is done. The next gateway goes on with them.
func (d *Desk) Close(ctx context.Context) {
	d.life.end()
	d.runner.Close(ctx)
}

// Settle ends the runs of clients that a new table does not let in.
func (d *Desk) Settle(t *clients.Table) {
	go func() { // the table is held, and the disk takes its time
		if err := d.runner.Dismiss(t.Proves); err != nil {
			d.log.Warn("ending the runs of removed clients; pfar denies their calls", "error", err.Error())
		}
	}()
}

// clean says why a text must not be written to the disk: it holds a secret of the vault.
func (d *Desk) clean(text []byte) error {
	vault := d.calls.Gate.Vault
	if vault == nil {
		return nil
	}
	if !vault.Known() {
		return fmt.Errorf("pfar does not know the secrets of the vault yet")
	}
	if len(vault.Names(text)) > 0 {
		return fmt.Errorf("the text contains a secret of the vault")
	}
	return nil
}

// Over forgets what was decided about the plan of a run that is over.
func (d *Desk) Over(run string) {
	d.asked.set(run, question{})
	if err := d.consents.Forget(run); err != nil {
		d.log.Warn("forgetting the decision about the plan of a finished run; pfar keeps it for 30 days", "run", run,
			"error", err.Error())
	}
}

// plans judges plans.
func (d *Desk) plans() enforce.Plans { return enforce.Plans{Point: d.calls.Gate} }

// question is what waits for a person about the plan of a run.
type question struct {
	approval string // its id
	call     string // id of the plan's record in the audit
}

// asked are the plans that wait, by run. A restart forgets them: their runs ask again.
type asked struct {
	mu sync.Mutex
	of map[string]question
}

func (a *asked) get(run string) question {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[run]
}

// set notes what a run's plan waits for, and returns what it waited for before.
func (a *asked) set(run string, q question) (before question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = a.of[run]
	if a.of[run] = q; q == (question{}) {
		delete(a.of, run)
	}
	return before
}

// withdrawn forgets the run that waited for an approval.
func (a *asked) withdrawn(approval string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for run, q := range a.of {
		if q.approval == approval {
			delete(a.of, run)
		}
	}
}

// Orders of one client.
const (
	ordersAtOnce = 32
	orderEvery   = 100 * time.Millisecond
	mostRates    = 1024
)

// rates bound the orders of each client.
type rates struct {
	mu sync.Mutex
	of map[string]*rate.Limiter
}

func (r *rates) allow(client string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.of[client]
	if l == nil {
		if r.of == nil || len(r.of) >= mostRates {
			r.of = make(map[string]*rate.Limiter)
		}
		l = rate.NewLimiter(rate.Every(orderEvery), ordersAtOnce)
		r.of[client] = l
	}
	return l.AllowN(now, 1)
}

// spliced is a result with its changes.
func spliced(result []byte, edits []jsonrpc.Edit) []byte {
	if len(edits) == 0 {
		return result
	}
	return jsonrpc.Splice(nil, result, edits...)
}
