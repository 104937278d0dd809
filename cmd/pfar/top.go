package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/processes"
)

const topHelp = `Show each second, until q or Ctrl-C, what each server does and costs.

Calls per second cover the last second; latencies and errors cover the last minute, as clients see them.
Refused calls are errors, cancelled ones are not. MEMORY is the memory of the server's processes, with
their share of common pages; CPU is in percent of one processor. Of a server that pfar does not start, these
are pfar's adapter alone, and a line below the table says where the server is.

Keys: n sorts by name, c by calls, a by calls in flight, p by p50, l by p99, e by errors, m by memory,
u by CPU, s by sessions; r reverses the order, q ends.

Without a terminal, or with --json, this prints one table or document after a second. --once prints it
immediately: then calls per second are the average of the last minute, and CPU is missing.`

// topOptions are the flags of pfar top, and what tests replace.
type topOptions struct {
	once     bool
	sort     topOrder
	interval time.Duration
	proc     string // where proc(5) is mounted
}

// topVerb shows what servers use, again and again.
type topVerb struct{ *pfar }

func (c topVerb) topCommand() *cobra.Command {
	o := topOptions{sort: byName, interval: time.Second, proc: processes.Proc}
	cmd := c.outputFlag(&cobra.Command{
		Use:     "top",
		Short:   "Show what the servers do and cost, updated each second",
		Long:    topHelp,
		Example: example("pfar top", "pfar top --once --sort memory", "pfar top --json | jq '.servers[] | select(.errors > 0).name'"),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.top(cmd.Context(), o) },
	})
	cmd.Flags().BoolVar(&o.once, "once", false, "print one table at once and end")
	cmd.Flags().Var(&o.sort, "sort", "sort by `COLUMN`: "+strings.Join(topOrderNames(), ", "))
	cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(topOrderNames(), noFiles))
	return cmd
}

// topServer is a row of the table. Without the gateway what it counts is 0, and topTable.Problem says so.
type topServer struct {
	Name     string        `json:"name"`
	State    control.State `json:"state,omitempty"`
	Tools    int           `json:"tools"`
	Held     int           `json:"held"` // definitions that wait for acceptance
	Rate     float64       `json:"calls_per_second"`
	InFlight int           `json:"in_flight"`
	Recent   int           `json:"calls"` // of the last minute, as are the next four
	Errors   int           `json:"errors"`
	P50      float64       `json:"p50"` // seconds, as are the next two
	P99      float64       `json:"p99"`
	Max      float64       `json:"max"`
	topTotal
	Memory   *uint64  `json:"memory,omitempty"` // bytes
	CPU      *float64 `json:"cpu,omitempty"`    // processors
	Sessions int      `json:"sessions"`         // processes for one client session each
	topPlace
}

// topTotal counts since the gateway's start.
type topTotal struct {
	Total    uint64 `json:"calls_total"`
	Failures uint64 `json:"errors_total"`
}

// topPlace is where a server is that pfar does not start.
type topPlace struct {
	URL      string `json:"url,omitempty"`      // of a remote server
	Attached string `json:"attached,omitempty"` // a socket, or a pair of FIFOs
}

// topTable is all that pfar top shows at one time.
type topTable struct {
	Time    time.Time   `json:"time"`
	Servers []topServer `json:"servers"`
	Gateway *topServer  `json:"gateway,omitempty"` // what it answers itself: lists, greetings
	Problem string      `json:"problem,omitempty"` // why there are no calls
}

// top shows what the options and the terminal allow.
func (c topVerb) top(ctx context.Context, o topOptions) error {
	v := &topView{pfar: c.pfar, topOptions: o, client: c.socketHTTP(c.dirs.Operator())}
	defer v.client.CloseIdleConnections()
	first, err := v.sample(ctx)
	if err != nil {
		return err
	}
	if !o.once && v.live() {
		return v.show(ctx, &topScreen{topView: v, ctx: ctx, last: measured{table: first}})
	}
	if !o.once {
		select {
		case <-time.After(o.interval):
		case <-ctx.Done():
			return ctx.Err()
		}
		if first, err = v.sample(ctx); err != nil {
			return err
		}
	}
	if err := v.print(first); err != nil {
		return err
	}
	if first.Problem != "" {
		return fail(exitFailed, "reading the gateway's statistics: %s", first.Problem)
	}
	return nil
}

// topView makes one table after the other.
type topView struct {
	*pfar
	topOptions
	reverse bool
	client  *http.Client

	sampled time.Time                // the last time; zero: never
	calls   map[string]uint64        // that had ended then, by server
	cpu     map[string]time.Duration // used up to then, by server
}

func (v *topView) print(t topTable) error {
	v.order(t.Servers)
	if v.json() {
		return v.printJSON(t)
	}
	for _, line := range v.lines(t) {
		if _, err := fmt.Fprintln(v.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// errorsOf is how many calls have failed, also because pfar refused them.
func errorsOf(p operator.Period) uint64 { return p.ToolError + p.Refused + p.Failed }

const (
	statsTimeout = 5 * time.Second
	maxStats     = 16 << 20 // bytes
)

// statistics asks the gateway.
func (v *topView) statistics(ctx context.Context) (map[string]operator.ServerStats, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, statsTimeout, fmt.Errorf("the gateway does not answer within %s", statsTimeout))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/stats", nil)
	if err != nil {
		return nil, err
	}
	resp, err := v.client.Do(r)
	if errors.Is(err, control.ErrNotRunning) {
		return nil, errors.New("the gateway does not run")
	}
	if err != nil {
		return nil, plainly(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the gateway answers %q: pfar and pfar-gateway may be of different versions", resp.Status)
	}
	var answer struct {
		Servers []operator.ServerStats `json:"servers"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxStats)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading its answer: %w", err)
	}
	all := map[string]operator.ServerStats{}
	for _, s := range answer.Servers {
		all[s.Server] = s
	}
	return all, nil
}

// sample measures. Without pfard there is nothing to show; without the gateway there are no calls.
func (v *topView) sample(ctx context.Context) (topTable, error) {
	report, err := v.report(ctx)
	if err != nil {
		return topTable{}, err
	}
	t := topTable{Servers: []topServer{}}
	stats, err := v.statistics(ctx)
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	if err != nil {
		t.Problem = err.Error()
	}
	running, err := processes.Read(v.proc)
	if err != nil {
		running = nil // no memory and no CPU is shown
	}
	t.Time = v.now()
	passed := time.Duration(0)
	if !v.sampled.IsZero() {
		passed = t.Time.Sub(v.sampled)
	}
	calls, cpu := map[string]uint64{}, map[string]time.Duration{}
	for _, s := range report.Servers {
		row := topServer{Name: s.Name, State: s.State, Tools: s.Tools, Sessions: len(s.Sessions)}
		row.URL, row.Attached = s.URL, s.Attached
		v.measureCalls(&row, stats, passed, calls)
		v.measureProcesses(&row, running, s.Launchers(), passed, cpu)
		t.Servers = append(t.Servers, row)
	}
	if _, ok := stats[""]; ok {
		t.Gateway = &topServer{}
		v.measureCalls(t.Gateway, stats, passed, calls)
	}
	v.sampled, v.calls, v.cpu = t.Time, calls, cpu
	return t, nil
}

// measureCalls takes a server's calls from the statistics. A rate needs two samples; before, it is the last minute's.
func (v *topView) measureCalls(row *topServer, stats map[string]operator.ServerStats, passed time.Duration, calls map[string]uint64) {
	s, ok := stats[row.Name]
	if !ok {
		return
	}
	row.Held, row.InFlight = s.Held, s.InFlight
	row.Recent, row.Errors = int(s.Minute.Calls), int(errorsOf(s.Minute))
	row.P50, row.P99, row.Max = s.Minute.P50, s.Minute.P99, s.Minute.Max
	row.Total, row.Failures = s.Total.Calls, errorsOf(s.Total)
	calls[row.Name] = s.Total.Calls
	before, known := v.calls[row.Name]
	switch {
	case passed > 0 && known && before <= s.Total.Calls: // not after the gateway began anew
		row.Rate = float64(s.Total.Calls-before) / passed.Seconds()
	case s.Minute.Seconds > 0:
		row.Rate = float64(s.Minute.Calls) / s.Minute.Seconds
	}
}

// measureProcesses sums up what the server's processes cost.
func (v *topView) measureProcesses(
	row *topServer, running *processes.Table, launchers []int, passed time.Duration, cpu map[string]time.Duration,
) {
	if running == nil || len(launchers) == 0 {
		return
	}
	cost := running.Below(launchers)
	row.Memory = &cost.Memory
	cpu[row.Name] = cost.Used
	if before, known := v.cpu[row.Name]; known && passed > 0 {
		share := processes.Share(cost.Used-before, passed)
		row.CPU = &share
	}
}
