package runs

import (
	"time"

	"github.com/pfar/pfar/policies/flow"
)

// Limits bound what runs take. A value that is not positive is the default.
type Limits struct {
	Steps    Bound         // calls at the same time; each client may make one, also beyond All
	Open     Bound         // runs that are not over
	Kept     Bound         // runs that are over; of more the oldest are forgotten
	Past     Bound         // bytes of the results and traces of runs that are over; as Kept
	Disk     Bound         // bytes of the plans and stores of runs that are not over
	Plan     int           // bytes of a plan in JSON
	Value    int           // bytes of a value in a store, and of a call's arguments
	Store    int           // bytes of a store, its names too
	Result   int           // bytes of a run's result that is kept
	Trace    int           // steps of a trace that are kept: the last ones
	Asks     int           // how often one call waits anew after an answer
	Restarts int           // how often a gateway may end while a run is at one call, before the run fails
	Wait     time.Duration // how long a call may wait for an answer, and a run for its owner

	// Late is for how long the disk may lack what calls that only read have made of a run: they are made again if the
	// gateway is killed then. Negative: it never lacks anything while the next call is decided about.
	Late time.Duration
}

// Bound is a limit for all clients and one for each.
type Bound struct{ All, Client int }

// longestReason bounds the words of why a run failed, in bytes.
const longestReason = 1024

func defaults() Limits {
	return Limits{
		Steps:    Bound{16, 4},
		Open:     Bound{2048, 1024},
		Kept:     Bound{1024, 128},
		Past:     Bound{128 << 20, 32 << 20},
		Disk:     Bound{512 << 20, 128 << 20},
		Plan:     1 << 20,
		Value:    2 << 20,
		Store:    8 << 20, // as much for each call at the same time in memory
		Result:   1 << 20,
		Trace:    256,
		Asks:     8,
		Restarts: 8,
		Wait:     7 * 24 * time.Hour,
		Late:     20 * time.Millisecond,
	}
}

// complete puts the default in the place of each value that is not positive.
func (l Limits) complete() Limits {
	d := defaults()
	for _, v := range []struct{ is, or *int }{
		{&l.Steps.All, &d.Steps.All}, {&l.Steps.Client, &d.Steps.Client},
		{&l.Open.All, &d.Open.All}, {&l.Open.Client, &d.Open.Client},
		{&l.Kept.All, &d.Kept.All}, {&l.Kept.Client, &d.Kept.Client},
		{&l.Past.All, &d.Past.All}, {&l.Past.Client, &d.Past.Client},
		{&l.Disk.All, &d.Disk.All}, {&l.Disk.Client, &d.Disk.Client},
		{&l.Plan, &d.Plan}, {&l.Value, &d.Value}, {&l.Store, &d.Store}, {&l.Result, &d.Result},
		{&l.Trace, &d.Trace}, {&l.Asks, &d.Asks}, {&l.Restarts, &d.Restarts},
	} {
		if *v.is <= 0 {
			*v.is = *v.or
		}
	}
	if l.Wait <= 0 {
		l.Wait = d.Wait
	}
	if l.Late == 0 {
		l.Late = d.Late
	}
	return l
}

// most is how many calls a run of a flow makes.
func most(f *flow.Flow) int {
	if f.Most <= 0 {
		return flow.DefaultMost
	}
	return min(f.Most, flow.MaxMost)
}
