package main

import (
	"fmt"
	"time"
)

// pauses is how long a server that its crashes have disabled rests until pfard starts it again: what it lacked, such as
// a registry or a network, may be there by then. The last one repeats.
var pauses = [...]time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour}

// retry is what comes after a server's crashes have disabled it. The zero value is nothing.
type retry struct {
	words string      // what is said of it, while there is a timer
	tries int         // since it was last seen to run, or somebody had it started
	timer interface { // of the next one; nil: none
		Stop() bool
	}
}

// begin has start called after a pause, which is longer each time.
func (r *retry) begin(after func(time.Duration, func()) interface{ Stop() bool }, start func()) {
	r.tries++
	pause := r.pause()
	r.timer = after(pause, start)
	r.words = "pfar starts it again " + pauseWords(pause) + " after that"
}

// pause is the one before the next start.
func (r *retry) pause() time.Duration { return pauses[min(max(r.tries-1, 0), len(pauses)-1)] }

func (r *retry) end() {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

// pauseWords is a pause as people say it.
func pauseWords(pause time.Duration) string {
	if pause < time.Hour {
		return fmt.Sprintf("%d min", pause/time.Minute)
	}
	return fmt.Sprintf("%d h", pause/time.Hour)
}
