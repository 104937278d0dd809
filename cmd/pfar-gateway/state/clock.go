package state

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot is the time that no one sets (CLOCK_BOOTTIME, clock_gettime(2)): it neither jumps nor stands still while the
// machine sleeps.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // there is no Linux without
	}
	return time.Duration(ts.Nano())
}
