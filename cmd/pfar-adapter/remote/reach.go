package remote

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// reach knows for how long a server that has answered cannot be reached any more. The adapter ends then, as a program
// does that cannot go on: the server's tools leave the lists, and its launcher tries again.
type reach struct {
	least int           // failures in a row
	after time.Duration // from the first to the last of them
	gone  func(why *fault.Fault)

	mu     sync.Mutex
	met    bool // the gateway has had an answer
	away   bool // gone has been called, and nothing heard since
	failed int
	since  time.Time
}

// meet says that the gateway has had an answer: from then on it does not notice by itself.
func (r *reach) meet() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.met = true
}

func (r *reach) hasMet() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.met
}

// note takes what became of a request.
func (r *reach) note(ctx context.Context, response *http.Response, err error) {
	var why *fault.Fault
	switch {
	case err != nil && ctx.Err() != nil: // nobody waited for it
		return
	case err != nil:
		why = fault.Of(err)
		if why.Status != 0 || why.Class == fault.Timeout && !why.Unsent || why.Class == fault.Schema { // it was reached
			why = nil
		}
	case response.StatusCode >= http.StatusBadGateway && response.StatusCode <= http.StatusGatewayTimeout:
		why = fault.OfResponse(response.StatusCode, response.Header, nil, "", time.Now())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		r.failed, r.away = 0, false
		return
	}
	if r.failed == 0 {
		r.since = time.Now()
	}
	if r.failed++; r.met && r.failed >= r.least && time.Since(r.since) >= r.after && !r.away {
		r.away = true
		go r.gone(why)
	}
}

func (r *reach) isAway() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}
