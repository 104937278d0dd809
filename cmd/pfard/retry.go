package main

import (
	"fmt"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
)

// pauses is how long pfard waits before it starts a server again that its crashes have disabled, or installs a package
// again: what was missing, such as a registry or a network, may be there by then.
func pauses() backoff.Steps { return backoff.Steps{10 * time.Minute, time.Hour, 6 * time.Hour} }

// retry is what comes after failures. The zero value is nothing.
type retry struct {
	tries int           // since it was last seen to work, or somebody had it started
	pause time.Duration // before the next one
	timer interface {   // of the next one; nil: none
		Stop() bool
	}
}

// retries are what comes after failures of a server.
type retries struct {
	retry   retry // of its crashes
	opening opening
}

// opening is why a server's sessions get no process for a while, if the timer runs: the last one that was begun has not
// come to serve. Each call of a client would begin another.
type opening struct {
	retry
	wait units.Wait // of that one
	why  string     // how it has ended
}

func (o *opening) anew() {
	o.end()
	o.tries = 0
}

// words are for people, behind the state of a server.
func (o *opening) words() string {
	return fmt.Sprintf("sessions get no process of their own for %s, since the last one has not come to serve: %s",
		pauseWords(o.pause), o.why)
}

// anew forgets the failures: somebody has the server started, or has changed its file.
func (r *retries) anew() {
	r.retry.tries = 0
	r.opening.anew()
}

// begin has the loop call start after a pause, which is the next of the steps each time. It does not if end is called
// before.
func (r *retry) begin(
	in inbox, after func(time.Duration, func()) interface{ Stop() bool }, steps backoff.Steps, start func(),
) {
	r.tries++
	r.pause = steps.After(r.tries)
	var timer interface{ Stop() bool }
	timer = after(r.pause, func() {
		in.post(func() {
			if r.timer == timer {
				r.timer = nil
				start()
			}
		})
	})
	r.timer = timer
}

func (r *retry) end() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// pauseWords is a pause as people say it.
func pauseWords(pause time.Duration) string {
	switch {
	case pause < time.Minute:
		return fmt.Sprintf("%d s", pause/time.Second)
	case pause < time.Hour:
		return fmt.Sprintf("%d min", pause/time.Minute)
	}
	return fmt.Sprintf("%d h", pause/time.Hour)
}
