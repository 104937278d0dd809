package call

import (
	"errors"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/reply"
	"github.com/pfar/pfar/policies/failure"
)

// Bounds of a request that is sent again (retries in its server's declaration).
const (
	firstPause   = time.Second      // before the second time; twice as long before each further one
	longestPause = 30 * time.Second // a service that wants to be left alone for longer is not asked again
	lastTry      = 2 * time.Minute  // after the first, no further one begins
)

// attempt sends the request, and again as often as the declaration of its server lets it fail.
func (c *Call) attempt() (reply.Reply, error) {
	begun := c.Clock.Now()
	for nth := 1; ; nth++ {
		re, t, err := c.once()
		f, ok := errors.AsType[*failure.Error](err)
		if !ok {
			return re, err
		}
		told := *f
		told.Err, told.Writes, told.Tries = err, !t.Reads, c.tries
		if !c.again(t, &told, nth, begun) {
			return re, &told
		}
	}
}

func (c *Call) retries() enforce.Retries { return enforce.Retries{Point: c.Gate} }

// repeats records that the next process of a server gets a request that the one before has left unanswered.
func (c *Call) repeats(gone *protocol.Gone) bool {
	if !gone.Sent { // it is the first to get it
		c.tries--
		return true
	}
	return c.retries().Record(c.Pass, failure.Failure{Class: failure.Died, Tries: c.tries}) == nil
}

// again waits until a request that has failed may be sent again, and reports whether it may. It must be certain that it
// only reads: then it does no harm if it has been carried out. What one yes was for is sent once, and so is what the
// client was asked something about.
func (c *Call) again(t Target, f *failure.Error, nth int, begun time.Time) bool {
	if t.Upstream == nil || nth > t.Upstream.Server().Retries || !f.Class.Passing() ||
		c.Pass == nil || c.Pass.Approved() || c.rounds > 0 || !c.retries().May(c.Pass) {
		return false
	}
	pause := max(firstPause<<(nth-1), time.Duration(f.After)*time.Second)
	if pause > longestPause || c.Clock.Now().Add(pause).Sub(begun) > lastTry {
		return false
	}
	select {
	case <-c.Clock.After(pause):
	case <-c.Ctx.Done():
		return false
	}
	r, _ := c.shown()
	if err := c.retries().Decide(c.Pass, r, f.Failure); err != nil {
		c.Log.Info("a call that failed is not sent again", "call", c.Pass.Call(), "reason", err.Error())
		return false
	}
	return true
}
