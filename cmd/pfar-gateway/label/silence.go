package label

import (
	"time"

	"github.com/pfar/pfar/policies/gate"
)

// long is a silence after which a client may have begun another conversation. For as long, the operator is then offered
// a clean session for it.
const long = time.Hour

// Silences notice that a client comes back to a session after a long silence. The operator is offered to reset the
// session then; the client is told nothing, and nothing that it does resets it.
type Silences struct{ Sessions *Sessions }

// Called notes that a client makes a call in a session.
func (s Silences) Called(client, handle string) {
	if e := s.Sessions.find(client, handle); e != nil {
		e.called(s.Sessions.Now())
	}
}

// Of is how long a session was silent before its client came back to it, 0 if it has not, or not lately.
func (s Silences) Of(client, handle string) time.Duration {
	if e := s.Sessions.find(client, handle); e != nil {
		return e.silence(s.Sessions.Now())
	}
	return 0
}

func (e *session) called(now time.Time) {
	last := e.used.Swap(now.UnixNano())
	if silent := now.UnixNano() - last; silent >= int64(long) && unpack(e.label.Load()) != gate.Start {
		e.back.Store(&back{now, time.Duration(silent)})
	}
}

// back is a return to a session.
type back struct {
	at     time.Time
	silent time.Duration
}

func (e *session) silence(now time.Time) time.Duration {
	if b := e.back.Load(); b != nil && now.Sub(b.at) < long {
		return b.silent.Truncate(time.Second)
	}
	return 0
}
