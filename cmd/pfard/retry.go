package main

import (
	"fmt"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
)

// pauses are the delays before pfard restarts a server that its crashes have disabled, or installs a package again.
// Meanwhile a registry or a network that was missing may have come back.
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

// opening delays the processes of a server's sessions while its timer runs, because the last one failed. Without a
// delay, each call of a client would start another one.
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
	return fmt.Sprintf("no session gets a process of its own for %s after the last one failed: %s",
		pauseWords(o.pause), o.why)
}

// anew forgets the failures: somebody has the server started, or has changed its file.
func (r *retries) anew() {
	r.retry.tries = 0
	r.opening.anew()
}

// begin has the loop call start after the next pause of steps, unless end is called first.
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
