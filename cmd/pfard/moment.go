package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// moment is a point in time by the clock that people set, and by the one that nobody can, which counts from the boot.
type moment struct {
	shown time.Time
	boot  time.Duration
}

func now() moment {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // which every kernel has that pfar runs on
	return moment{time.Now().Round(0), time.Duration(t.Nano())}
}

// after is the moment that was so long after the boot.
func after(boot time.Duration) moment {
	n := now()
	return moment{n.shown.Add(boot - n.boot), boot}
}

// time returns what the clock would have shown at m, had it been set already by whatever it has been since.
func (m moment) time(n moment) time.Time {
	const slack = time.Second // the clocks are not read at once, and one is slewed
	if set := n.shown.Sub(m.shown) - (n.boot - m.boot); set.Abs() > slack {
		return m.shown.Add(set)
	}
	return m.shown
}
