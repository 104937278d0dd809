package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// load is how a route is used in one round: so many calls, so many of them at once, each on a connection of its own,
// and in so many turns.
type load struct {
	calls, inFlight, turns int
}

// sample is what one round took.
type sample struct {
	p50, p99 time.Duration
	rate     float64 // calls a second
}

// tally is what a round has taken so far.
type tally struct {
	every   []time.Duration
	elapsed time.Duration
}

func (t *tally) sample() (sample, error) {
	if len(t.every) == 0 {
		return sample{}, errNoCalls
	}
	return sample{quantile(t.every, 0.5), quantile(t.every, 0.99), float64(len(t.every)) / t.elapsed.Seconds()}, nil
}

// errNoCalls guards a round against measuring nothing.
var errNoCalls = errors.New("no call was made")

// fleetOfClients are connections on routes, which stay from round to round.
type fleetOfClients struct {
	clients []*client
	next    atomic.Int64 // number of the last call
}

// connect opens n connections on a route.
func connect(r route, n int) (*fleetOfClients, error) {
	f := &fleetOfClients{}
	for range n {
		if err := f.add(r); err != nil {
			f.close()
			return nil, err
		}
	}
	return f, nil
}

func (f *fleetOfClients) add(r route) error {
	c, err := r.open()
	if err == nil {
		f.clients = append(f.clients, c)
	}
	return err
}

func (f *fleetOfClients) close() {
	for _, c := range f.clients {
		c.close()
	}
}

// run makes the calls and nothing else.
func (f *fleetOfClients) run(calls int) (sample, error) {
	var t tally
	if err := f.turn(calls, &t); err != nil {
		return sample{}, err
	}
	return t.sample()
}

// turn makes the calls, as many at once as there are connections, and stops at the first that is not answered as it
// should be.
func (f *fleetOfClients) turn(calls int, t *tally) error {
	var (
		left   atomic.Int64
		failed atomic.Pointer[error]
		took   = make([][]time.Duration, len(f.clients))
		all    sync.WaitGroup
	)
	left.Store(int64(calls))
	begin := time.Now()
	for i, c := range f.clients {
		all.Go(func() {
			mine := make([]time.Duration, 0, 2*calls/len(f.clients)+1)
			for left.Add(-1) >= 0 && failed.Load() == nil {
				start := time.Now()
				if err := c.call(int(f.next.Add(1))); err != nil {
					failed.CompareAndSwap(nil, &err)
					break
				}
				mine = append(mine, time.Since(start))
			}
			took[i] = mine
		})
	}
	all.Wait()
	t.elapsed += time.Since(begin)
	if err := failed.Load(); err != nil {
		return *err
	}
	for _, mine := range took {
		t.every = append(t.every, mine...)
	}
	return nil
}

// interleave has every route do the same in turn, again and again, so that what else the machine does hits all of them.
// The samples of one round stand at one index. Short turns matter where a call is short: on which cores the processes
// of a route happen to sit changes how long its calls take by half, and stays as it is for as long as they are not
// disturbed.
func interleave(routes []route, l load, rounds int, around func(name string, run func() error) error) (map[string][]sample, error) {
	fleets := map[string]*fleetOfClients{}
	for _, r := range routes {
		f, err := connect(r, l.inFlight)
		if err != nil {
			return nil, err
		}
		defer f.close()
		fleets[r.name] = f
		if _, err := f.run(l.calls); err != nil { // fills the caches
			return nil, err
		}
	}
	samples := map[string][]sample{}
	for round := range rounds {
		tallies := make([]tally, len(routes))
		for turn := range l.turns {
			for i := range routes {
				at := (i + round + turn) % len(routes) // nobody always comes after the same neighbour
				name := routes[at].name
				if err := around(name, func() error { return fleets[name].turn(l.calls/l.turns, &tallies[at]) }); err != nil {
					return nil, err
				}
			}
		}
		for i := range tallies {
			s, err := tallies[i].sample()
			if err != nil {
				return nil, err
			}
			samples[routes[i].name] = append(samples[routes[i].name], s)
		}
	}
	return samples, nil
}

// plainly runs a round without watching anything.
func plainly(_ string, run func() error) error { return run() }

// measure is the number of a sample that is compared. What one in a hundred calls exceeds is shown beside it, and not
// held to anything: on a busy machine it is the machine's.
type measure struct {
	name    string
	of      func(sample) float64
	unit    func(float64) string
	limit   float64 // of the ratio; 0: none
	atLeast bool    // more is better
}

func p50(limit float64) measure {
	return measure{"p50, p99", func(s sample) float64 { return float64(s.p50) }, durationUnit, limit, false}
}

func perSecond(limit float64) measure {
	return measure{"calls/s, p99", func(s sample) float64 { return s.rate }, func(v float64) string { return fmt.Sprintf("%.0f/s", v) }, limit, true}
}

func durationUnit(v float64) string { return microseconds(time.Duration(v)) }

// compared makes a line of the table: the medians, and the median of the rounds' ratios with their quartiles, which say
// how much the machine was disturbed.
func compared(what string, plain, in []sample, m measure) result {
	var ratios []float64
	for i := range plain {
		ratios = append(ratios, m.of(in[i])/m.of(plain[i]))
	}
	ratio := middle(ratios, 0.5)
	r := result{
		What: what + ": " + m.name, Plain: m.shown(plain), In: m.shown(in),
		Added: fmt.Sprintf("x %.2f (%.2f to %.2f)", ratio, middle(ratios, 0.25), middle(ratios, 0.75)),
	}
	if m.limit > 0 {
		r.Limited, r.Limit, r.Within = true, fmt.Sprintf("x %.2f", m.limit), ratio <= m.limit
		if m.atLeast {
			r.Within = ratio >= m.limit
		}
	}
	return r
}

// shown are the medians of the rounds.
func (m measure) shown(samples []sample) string {
	var values, tails []float64
	for _, s := range samples {
		values, tails = append(values, m.of(s)), append(tails, float64(s.p99))
	}
	return m.unit(middle(values, 0.5)) + ", " + durationUnit(middle(tails, 0.5))
}

func middle(list []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[min(int(float64(len(sorted))*q), len(sorted)-1)]
}
