package serve

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// What nothing is done for needs a record as well, and could fill the audit with them: beyond so much of it, only how
// much it was is recorded.
const (
	quotaAtOnce = 64 // of a server's questions one at the beginning of each session, and some
	quotaTold   = time.Minute

	unbiddenEvery = 5 * time.Second // questions of one server that no call is about, of two records each
	missedEvery   = time.Second     // requests of one client for what there is not
)

// quota bounds the records of each of those who are declared: servers, or clients; and the entries of the log for each
// kind of calls.
type quota struct {
	every  time.Duration
	record func(of string, more int64) // how much there was beyond it

	mu sync.Mutex
	of map[string]*pace // there are no more than are declared
}

type pace struct {
	rate *rate.Limiter
	more int64 // and not recorded yet
}

// allow reports whether there may be one more record of somebody. If not, it is counted.
func (q *quota) allow(of string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.of[of]
	if p == nil {
		if q.of == nil {
			q.of = make(map[string]*pace)
		}
		p = &pace{rate: rate.NewLimiter(rate.Every(q.every), quotaAtOnce)}
		q.of[of] = p
	}
	if p.rate.Allow() {
		return true
	}
	if p.more++; p.more == 1 {
		time.AfterFunc(quotaTold, q.flush)
	}
	return false
}

// flush records how much there was beyond it.
func (q *quota) flush() {
	more := make(map[string]int64)
	q.mu.Lock()
	for of, p := range q.of {
		if p.more > 0 {
			more[of], p.more = p.more, 0
		}
	}
	q.mu.Unlock()
	for of, n := range more {
		q.record(of, n)
	}
}
