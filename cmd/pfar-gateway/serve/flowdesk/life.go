package flowdesk

import (
	"context"
	"time"
)

// life tells a server that ends by itself from one that ends because pfar does.
type life struct {
	pfard  func(context.Context) error // an error: pfard does not answer; nil: there is nobody to ask
	ending <-chan struct{}             // closed when this gateway ends
	end    func()                      // closes it, also if it is closed
}

func begun(pfard func(context.Context) error) life {
	ctx, end := context.WithCancel(context.Background())
	return life{pfard, ctx.Done(), end}
}

// Bounds of asking pfard whether it is there.
const (
	answerTime = 2 * time.Second // for one answer
	askedAfter = 50 * time.Millisecond
)

// goesOn reports whether pfar goes on, or ctx has ended. It is asked after a call has failed: a pfard that is killed
// takes its servers and the gateway with it, and the gateway may see the end of a server first. If pfard answers, the
// server has not ended by that. If it does not, goesOn waits until it does, or until this gateway is told to end.
func (l *life) goesOn(ctx context.Context) bool {
	for l.pfard != nil && !l.answers(ctx) {
		select {
		case <-ctx.Done():
			return true
		case <-l.ending:
			return false
		case <-time.After(askedAfter):
		}
	}
	return true
}

func (l *life) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return l.pfard(ctx) == nil
}
