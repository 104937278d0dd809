package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/pfar/pfar/units/health"
)

// checkRunner runs pfar doctor and returns its output. There may be both an output and an error.
type checkRunner interface {
	runChecks(ctx context.Context) ([]byte, error)
}

// checkup is the checks of this machine, which consoles show. pfar doctor runs them, as pfard itself may see and do too
// little: one run at a time, and one a minute at most.
type checkup struct {
	runs   checkRunner
	glance time.Duration // how long whoever asks waits for a run

	mu    sync.Mutex
	last  health.Checks // of before the run that is under way
	under chan struct{} // closed when that has ended; nil: there is none
}

const (
	checksGlance = 3 * time.Second // less than viewTime
	checksTime   = 3 * time.Minute // that a run may take; pfar-doctor.service has it, too
	checksKept   = time.Minute
	maxChecks    = 128 << 10 // bytes
)

func newCheckup(runs checkRunner) *checkup { return &checkup{runs: runs, glance: checksGlance} }

// now returns what was found last. If that is old, it begins a run, and waits for it a little. Nobody else waits, as
// each who waits keeps a console from other files.
func (c *checkup) now(ctx context.Context) health.Checks {
	if under := c.begin(); under != nil {
		wait := time.NewTimer(c.glance)
		defer wait.Stop()
		select {
		case <-under:
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under != nil {
		return health.Checks{Running: true}
	}
	return c.last
}

// begin begins a run and returns it; nil: one is under way, or what was found last is not old.
func (c *checkup) begin() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.under != nil || !c.last.At.IsZero() && time.Since(c.last.At) < checksKept {
		return nil
	}
	c.under = make(chan struct{})
	go c.run(c.under)
	return c.under
}

func (c *checkup) run(under chan struct{}) {
	late := fmt.Errorf("the checks have not ended within %s", checksTime)
	ctx, cancel := context.WithTimeoutCause(context.Background(), checksTime, late)
	defer cancel()
	text, err := c.runs.runChecks(ctx)
	var found health.Checks
	if unread := json.Unmarshal(text, &found.Findings); unread != nil {
		if err == nil {
			err = unread
		}
		if ctx.Err() != nil {
			err = late
		}
		found = health.Checks{Error: printable(err.Error())}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found.At = time.Now()
	c.last, c.under = found, nil
	close(under)
}
