package setups

import (
	"fmt"
	"time"

	"github.com/pfar/pfar/units/control"
)

// past is a flow that has ended.
type past struct {
	control.Flow
	at time.Time // when it ended
}

// lately is how long a flow that has ended counts, for messages that a person wrote before reading so.
const lately = time.Minute

// Lately returns the last flow of a principal, if it has ended within the last minute; "": none has.
func Lately(f *Flows, principal string) (id string) {
	now := f.Clock.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, has := f.ended[principal]; has && now.Sub(last.at) < lately {
		return last.ID
	}
	return ""
}

// yields reports whether the flow of an order gives way to a user's.
func (o Order) yields() bool { return o.Client || o.Chat != "" }

// ofChat refuses an answer by chat to a flow of another chat or of a client.
func ofChat(f *Flows, a control.FlowAnswer) error {
	if a.Chat == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.of[a.ID]; r != nil && (r.order.Client || r.order.Chat != "" && r.order.Chat != a.Chat) {
		return fmt.Errorf("%w: somebody else has begun the set-up of %q", control.ErrDenied, r.order.Flow.Server)
	}
	return nil
}
