package registry

import (
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
)

// entry is what is known of a server of one name.
type entry struct {
	upstream *Upstream // the newest, or what stands for a server that sleeps
	served   *served   // nil unless it is up or sleeps
	down     bool      // it was up or starting
	redeclared
	apart int // of its resources and templates, those that the aggregate does not show
	state State
	sleep
}

// kinds returns what of the lists goes away with the server.
func (e *entry) kinds() Kinds {
	if e.served == nil {
		return 0
	}
	return e.served.listing.changes(new(Listing))
}

// redeclared is the last change of a server's declaration while it ran. It is newer than a handover that was begun
// before.
type redeclared struct {
	at     int64 // handover.Message.At
	server handover.Server
}

// update gives a handover that was begun before the change what the owner says now.
func (d redeclared) update(u *Upstream) {
	if d.at > u.handed {
		u.amend(d.server)
	}
}

// sleep is what is known of a server that calls start.
type sleep struct {
	sleeps  *handover.Server // its declaration, if pfard says that it sleeps
	tried   bool             // it has been started to learn what it offers
	waking  *waking          // the newest
	laying  chan struct{}    // closed when pfard has answered whether it puts it to sleep; nil: it is not asked
	returns bool             // pfard is starting it again: requests wait for it
	stays   bool             // pfard has said that it is down until somebody starts it
	renews  bool             // pfard wants to start it again when no request is under way
	outage
}

// outage is what is known of a server that pfard tries again and again to reach, or not before a person has signed in.
type outage struct {
	offline bool
	failed  failure.Class // of the last try, with offline; "": pfard does not know
	login   bool          // a person is to sign in

	asksLater bool          // its service has set the time of the next try, with offline: calls start none
	next      time.Time     // when it is tried, with offline
	trying    chan struct{} // closed when it has been tried for a request; nil: it is not
}

// waitsForLogin takes pfard's word on whether a person is to sign in. Until there is one the server's own counts.
func (e *entry) waitsForLogin(login bool) {
	if e.login != login {
		e.login, e.state.Login = login, login
	}
}

// waking is the way from the first call that wants a server to its being up, or not. It belongs to the registry's lock,
// but for done, and err after that is closed.
type waking struct {
	learns bool // nobody waits for it: it is to learn what the server offers
	over   bool
	err    error
	done   chan struct{}
}

func (w *waking) pending() bool { return w != nil && !w.over }

func (w *waking) finish(err error) {
	if w.pending() {
		w.over, w.err = true, err
		close(w.done)
	}
}

// rests reports whether what is served is of a server that sleeps, or did so until it was woken.
func (e *entry) rests() bool { return e.served != nil && e.served.upstream.isAsleep() }
