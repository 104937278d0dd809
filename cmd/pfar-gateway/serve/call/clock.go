package call

import "time"

// Clock is the time by which requests are sent again.
type Clock interface {
	Now() time.Time
	After(time.Duration) <-chan time.Time
}

// machine is the machine's clock.
type machine struct{}

func (machine) Now() time.Time                         { return time.Now() }
func (machine) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Machine returns the machine's clock.
func Machine() Clock { return machine{} }
