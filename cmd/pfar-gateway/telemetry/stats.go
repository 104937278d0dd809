package telemetry

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/pfar/pfar/units/operator"
)

// Gauge is what the registry knows of a server now.
type Gauge struct {
	Server   string
	Up       bool
	Tools    int // served
	Held     int // definitions that wait for acceptance
	Queue    int // calls that wait for others to end
	InFlight int // requests that it has not answered
	Sessions int // processes that serve one client session alone
	Faults   map[string]uint64
	Leaks    map[string]uint64 // secrets that were replaced in what it said, by name
}

// What the operator's socket tells of servers' calls.
type (
	ServerStats = operator.ServerStats
	Period      = operator.Period
)

// Gauges has f called for each scrape and each Stats. It must be safe for concurrent use and quick.
func (t *Telemetry) Gauges(f func() []Gauge) {
	if t != nil {
		t.gauges.Store(&f)
	}
}

// pull returns the registry's view, the first of each server.
func (t *Telemetry) pull() map[string]Gauge {
	all := map[string]Gauge{}
	if f := t.gauges.Load(); f != nil {
		for _, g := range (*f)() {
			if _, twice := all[g.Server]; !twice && len(all) < maxServers {
				all[g.Server] = g
			}
		}
	}
	return all
}

// Stats returns all servers that were called or that the registry knows, by name.
func (t *Telemetry) Stats() []ServerStats {
	if t == nil {
		return nil
	}
	gauges, counted := t.pull(), *t.servers.Load()
	names := slices.AppendSeq(slices.Collect(maps.Keys(counted)), maps.Keys(gauges))
	slices.Sort(names)
	list := []ServerStats{}
	for _, name := range slices.Compact(names) {
		g := gauges[name]
		s := ServerStats{Server: name, Up: g.Up, Tools: g.Tools, Held: g.Held, Queue: g.Queue, Sessions: g.Sessions, Faults: maps.Clone(g.Faults)}
		if c := counted[name]; c != nil {
			t.measure(&s, c)
		}
		list = append(list, s)
	}
	return list
}

// measure reads a server's counters.
func (t *Telemetry) measure(to *ServerStats, s *server) {
	at := time.Since(t.born)
	to.InFlight = int(max(0, s.inFlight.Load()))
	to.Bytes = s.bytes.Load()
	if last := s.last.Load(); last > 0 {
		to.LastCall = t.born.Add(time.Duration(last)).Round(0).UTC()
	}
	most := time.Duration(s.longest.Load())
	recent, length := s.recent(at)
	var ended [outcomes]uint64
	for o, n := range recent.ended {
		ended[o] = uint64(n)
	}
	to.Minute = period(length, ended, &recent.latency, most)
	to.Minute.Max = recent.latency.longest(most).Seconds()
	var all distribution
	for i := range all {
		all[i] = uint32(min(s.latency.counts[i].Load(), 1<<32-1))
	}
	to.Total = period(at, s.totals(), &all, most)
	to.Total.Max = most.Seconds()
}

func period(length time.Duration, ended [outcomes]uint64, latency *distribution, most time.Duration) Period {
	p := Period{
		Seconds: length.Seconds(),
		OK:      ended[OK], ToolError: ended[ToolError], Refused: ended[Refused], Failed: ended[Failed], Cancelled: ended[Cancelled],
		P50: latency.quantile(0.50, most).Seconds(), P95: latency.quantile(0.95, most).Seconds(), P99: latency.quantile(0.99, most).Seconds(),
	}
	for _, n := range ended {
		p.Calls += n
	}
	return p
}

// StatsHandler answers with Stats in JSON, for the operator.
func (t *Telemetry) StatsHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "the method is GET", http.StatusMethodNotAllowed)
			return
		}
		b, err := json.Marshal(struct {
			Time    time.Time     `json:"time"`
			Servers []ServerStats `json:"servers"`
		}{time.Now().UTC(), t.Stats()})
		if err != nil {
			http.Error(w, "encoding the statistics", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(b) // the client may have hung up
	})
}
