package bridge

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/attach"
)

// What one bridge may have pfard do, which may have been taken over.
const (
	maxAsking         = 1024 // questions at once; those beyond it are refused
	refusalsPerSecond = 5    // that are shown; of those in between the newest
	refusalsAtOnce    = 20
)

// Hearer takes what a bridge says.
type Hearer struct {
	Allow   func(attach.Allow) error // answers a question; nil: nothing is allowed
	Refused func(egress.Refusal)     // is called for each refusal
	Newest  func(egress.Refusal)     // is called for the newest refusal, so often as a person can read
}

var errNothingAllowed = errors.New("no firewall is asked here")

// Hear takes what a welcomed bridge says until it hangs up.
func (k *Talk) Hear(conn *attach.Conn, h Hearer) {
	asking := make(chan struct{}, maxAsking)
	newest := make(chan egress.Refusal, 1)
	defer close(newest)
	go showNewest(newest, h.Newest)
	for {
		m, files, err := conn.Receive()
		attach.CloseAll(files)
		if err != nil {
			return
		}
		switch {
		case m.Wired || m.Unwired:
			k.wire.Answered(m.Wired)
		case m.Allow != nil && h.Allow == nil:
			conn.Answer(m.Allow.ID, errNothingAllowed)
		case m.Allow != nil:
			select {
			case asking <- struct{}{}:
				go func() {
					defer func() { <-asking }()
					conn.Answer(m.Allow.ID, h.Allow(*m.Allow))
				}()
			default:
				conn.Answer(m.Allow.ID, fmt.Errorf("more than %d questions at once", maxAsking))
			}
		case m.Refused != nil && m.Refused.Reason != "":
			h.Refused(*m.Refused)
			select {
			case <-newest:
			default:
			}
			newest <- *m.Refused
		}
	}
}

// showNewest passes on refusals, at their pace, until the channel is closed and empty.
func showNewest(newest <-chan egress.Refusal, show func(egress.Refusal)) {
	pace := rate.NewLimiter(refusalsPerSecond, refusalsAtOnce)
	for {
		_ = pace.Wait(context.Background())
		r, ok := <-newest
		if !ok {
			return
		}
		show(r)
	}
}
