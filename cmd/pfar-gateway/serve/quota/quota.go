// Package quota bounds how many records somebody may cause.
package quota

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// AtOnce is how many records there may be at once. A server puts one question at the beginning of each session, and
// some more.
const AtOnce = 64

// told is how long a count of what was left out waits for more.
const told = time.Minute

// Quota bounds the records of each declared server or client, or of each kind of log entry.
type Quota struct {
	Every  time.Duration               // between two records, after the first AtOnce
	Record func(of string, more int64) // how many were left out

	mu sync.Mutex
	of map[string]*pace // there are no more than are declared
}

type pace struct {
	rate *rate.Limiter
	more int64 // and not recorded yet
}

// Allow reports whether there may be one more record of somebody. If not, it is counted.
func (q *Quota) Allow(of string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.of[of]
	if p == nil {
		if q.of == nil {
			q.of = make(map[string]*pace)
		}
		p = &pace{rate: rate.NewLimiter(rate.Every(q.Every), AtOnce)}
		q.of[of] = p
	}
	if p.rate.Allow() {
		return true
	}
	if p.more++; p.more == 1 {
		time.AfterFunc(told, q.Flush)
	}
	return false
}

// Flush records how many were left out.
func (q *Quota) Flush() {
	more := make(map[string]int64)
	q.mu.Lock()
	for of, p := range q.of {
		if p.more > 0 {
			more[of], p.more = p.more, 0
		}
	}
	q.mu.Unlock()
	for of, n := range more {
		q.Record(of, n)
	}
}
