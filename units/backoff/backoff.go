// Package backoff gives the delay before the next try after some failures in a row: pure.
package backoff

import "time"

// Steps are the times from a failure to the next try. The last one repeats.
type Steps []time.Duration

// After returns the time to wait after so many failures, and 0 after none.
func (s Steps) After(failures int) time.Duration {
	if failures <= 0 || len(s) == 0 {
		return 0
	}
	return s[min(failures, len(s))-1]
}

// Crashes are the steps for a server's program, which is given up soon.
func Crashes() Steps { return Steps{time.Second, 5 * time.Second, 30 * time.Second} }

// Offline are the steps for what is never given up: a remote server, or processes for client sessions.
func Offline() Steps { return append(Crashes(), time.Minute, 5*time.Minute) }
