package main

import (
	"fmt"
	"time"

	"github.com/pfar/pfar/units/control"
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

// retryCrashed takes it that a server's state is another than before. One that crashes have disabled is started again
// in time; what cannot start on this host is not.
func (d *daemon) retryCrashed(s *server) {
	switch {
	case s.status.State == control.Running:
		s.endRetry()
		s.retry.tries = 0
	case s.status.State != control.Failed:
		s.endRetry()
	case s.status.Crashes > 0 && s.retry.timer == nil:
		pause := pauses[min(s.retry.tries, len(pauses)-1)]
		s.retry.tries++
		s.retry.timer = d.after(pause, func() {
			d.post(func() { d.startCrashed(s) })
		})
		s.retry.words = "pfar starts it again " + pauseWords(pause) + " after that"
	}
}

func (s *server) endRetry() {
	if s.retry.timer != nil {
		s.retry.timer.Stop()
		s.retry.timer = nil
	}
}

// startCrashed starts a server that is still as its crashes have left it.
func (d *daemon) startCrashed(s *server) {
	s.retry.timer = nil
	if d.servers[s.name] != s || s.status.State != control.Failed || s.want == nil || !s.runs() || s.busy {
		return
	}
	d.log.Info("starting a server again that its crashes had disabled", "server", s.name)
	s.again = s.started != nil
	d.converge(s)
	d.tell()
}

// pauseWords is a pause as people say it.
func pauseWords(pause time.Duration) string {
	if pause < time.Hour {
		return fmt.Sprintf("%d min", pause/time.Minute)
	}
	return fmt.Sprintf("%d h", pause/time.Hour)
}
