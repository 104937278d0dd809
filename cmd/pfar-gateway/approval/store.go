// Package approval has humans decide about calls: a call and what the gate found of it in, one execution of exactly
// that call out, or none.
//
// Whoever waits for an answer is told an id and sends the same call again. What was said holds for one call of one
// client's session with the same arguments, label, pin and policy; it is used up on the disk before the call goes out;
// a restart denies everything that is open; and only the operator's side can answer.
package approval

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/units/operator"
)

// Limits bound what clients may ask of people.
type Limits struct {
	Wait      time.Duration // until a call is answered with its id instead of its result
	Life      time.Duration // that a call waits, and then that an approval of it may be used
	Open      int           // that wait at once
	OfOne     int           // of them of one client, and of one server; of one client's calls to one server half of that
	Waiters   int           // sendings of one call that are answered late
	Burst     int           // new ones of one client at once
	Every     time.Duration // until there may be one more
	Arguments int           // bytes of one
	Bytes     int           // of all that wait
	History   int           // that are over and still known
	Runs      RunLimits
}

// RunLimits bound what runs of flows ask of people. They have bounds of their own, so that what waits for days takes no
// place from calls whose clients wait.
type RunLimits struct {
	Life  time.Duration // that one waits at most
	Open  int           // that wait at once
	OfOne int           // of them of one client
	Bytes int           // of arguments of all of them
}

// DefaultLimits are what a person can look at.
func DefaultLimits() Limits {
	return Limits{
		Wait: 50 * time.Second, Life: 300 * time.Second, Open: 128, OfOne: 32, Waiters: 128, Burst: 16, Every: 3 * time.Second,
		Arguments: 1 << 20, Bytes: 16 << 20, History: 1000,
		Runs: RunLimits{Life: 7 * 24 * time.Hour, Open: 256, OfOne: 16, Bytes: 16 << 20},
	}
}

// What the operator's socket tells of a call.
type (
	State    = operator.State
	Approver = operator.Approver
	Request  = operator.Request
	Shown    = operator.Shown
	Event    = operator.Event
	Record   = operator.Past
)

// States of a call.
const (
	Denied   = operator.Denied
	Pending  = operator.Pending
	Approved = operator.Approved
	Used     = operator.Used
	Expired  = operator.Expired
)

var (
	// ErrUnknown is of an id that is not among those that wait.
	ErrUnknown = errors.New("no call of this id waits for an approval")
	// ErrRefused is of an answer that comes too late or is to something else.
	ErrRefused = errors.New("refused")
)

// entry is one call that waits, or has been answered and not yet been forgotten.
type entry struct {
	Request
	id        string
	canonical []byte
	binding   Digest
	asked     time.Time
	deadline  time.Duration // of the store's clock
	state     State
	reason    string
	by        *Approver
	done      chan struct{} // closed when it is answered or has expired
	waiters   int           // that are in Ask
	shown     bool          // its client has been given the link
	timer     *time.Timer
	after     map[*func()]struct{} // called when it does not wait any more
}

// open reports whether something can still become of it.
func (e *entry) open() bool { return e.state == Pending || e.state == Approved }

// Console is where operators at other machines see the calls that wait.
type Console interface {
	// Link returns the link that opens the call of an id; "": there is none. It does not block.
	Link(id string) string
}

// Store is all that wait.
type Store struct {
	Console Console // set before the first call comes; nil: there is none

	db       *state.DB
	sessions *label.Sessions
	limits   Limits
	clock    func() time.Duration // since some moment; it neither jumps nor stands still while the machine sleeps
	now      func() time.Time     // for people
	ending   chan struct{}        // closed when nobody is to wait any more

	mu        sync.Mutex
	byID      map[string]*entry
	byBinding map[Digest]*entry
	bytes     [2]int // of arguments of all that are open, and of runs of flows (kept)
	rates     map[string]*rate.Limiter
	inLine    map[string]int // calls of each client that nobody can be asked about yet
	room      chan struct{}  // closed, and another made, when there is room for one of those
	watchers  map[chan Event]struct{}
}

// Open reads the approvals from the disk and denies those that were open: nobody knows whether their calls ran. A call
// whose approval outlived a crash could run twice.
func Open(db *state.DB, sessions *label.Sessions, limits Limits) (*Store, error) {
	s := &Store{
		db: db, sessions: sessions, limits: limits, clock: state.SinceBoot, now: time.Now,
		ending: make(chan struct{}), byID: make(map[string]*entry), byBinding: make(map[Digest]*entry),
		rates: make(map[string]*rate.Limiter), inLine: make(map[string]int), room: make(chan struct{}), watchers: make(map[chan Event]struct{}),
	}
	err := db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE approvals SET state = 'denied', reason = 'pfar was started again', answered = ? WHERE "+
			"state IN ('pending', 'approved')", s.now().UnixNano())
		if err == nil {
			_, err = tx.Exec(prune, limits.History)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("denying what was open: %w", err)
	}
	return s, nil
}

// prune forgets what is over, but for the last ones.
const prune = `DELETE FROM approvals WHERE state NOT IN ('pending', 'approved')
	AND asked <= (SELECT asked FROM approvals ORDER BY asked DESC LIMIT 1 OFFSET ?)`

// write changes one entry on the disk, from a state that it must have there.
func (s *Store) write(e *entry, from, to State, reason string, by *Approver) error {
	who := Approver{UID: -1}
	if by != nil {
		who = *by
	}
	return s.db.Do(func(tx *sql.Tx) error {
		set := "UPDATE approvals SET state = ?, reason = ?, answered = ?, uid = ?, name = ?, channel = ? WHERE id = ? AND state = ?"
		args := []any{to.String(), reason, s.now().UnixNano(), who.UID, who.Name, who.Channel, e.id, from.String()}
		if from == Approved { // who approved stays
			set, args = "UPDATE approvals SET state = ?, reason = ? WHERE id = ? AND state = ?", []any{to.String(), reason, e.id, from.String()}
		}
		result, err := tx.Exec(set, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("the approval %s is not %s on the disk (%w)", e.id, from, errors.Join(err, ErrRefused))
		}
		return nil
	})
}

// become changes an entry in memory after the disk, and tells those who wait and those who watch. The lock is held.
func (s *Store) become(e *entry, to State, reason string) {
	was := e.state
	if was == Pending {
		defer e.answered()
	}
	e.state, e.reason = to, reason
	switch {
	case to == Approved:
		e.deadline = s.clock() + cmp.Or(e.Life, s.limits.Life)
		s.arm(e)
	case to == Denied: // the same call is not asked about again for a while
		e.deadline = s.clock() + s.limits.Life
		s.arm(e)
		s.release(e)
	default:
		s.release(e)
		s.forget(e)
	}
	s.tell(Event{Kind: to.String(), Approval: s.shown(e)})
}

// answered tells those who wait with an entry. The lock of the store is held.
func (e *entry) answered() {
	close(e.done)
	for then := range e.after {
		go (*then)()
	}
	e.after = nil
}

// kept is where bytes of an entry are counted.
func kept(r *Request) int {
	if r.Life > 0 {
		return 1
	}
	return 0
}

// release gives back what an open entry takes.
func (s *Store) release(e *entry) {
	s.bytes[kept(&e.Request)] -= len(e.canonical)
	e.canonical, e.Arguments = nil, nil
	close(s.room)
	s.room = make(chan struct{})
}

func (s *Store) forget(e *entry) {
	e.timer.Stop()
	delete(s.byID, e.id)
	if s.byBinding[e.binding] == e {
		delete(s.byBinding, e.binding)
	}
}

// arm has an entry looked at when it is due. Timers keep another time than the store's clock does: what they find
// decides.
func (s *Store) arm(e *entry) {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(max(e.deadline-s.clock(), time.Millisecond), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.byID[e.id] != e {
			return
		}
		if !s.expire(e) {
			s.arm(e)
		}
	})
}

// expire ends what is over, and reports whether it is. The lock is held.
func (s *Store) expire(e *entry) bool {
	if s.clock() < e.deadline {
		return false
	}
	if e.state == Denied {
		s.forget(e)
		return true
	}
	// On the disk it may stay open: here it is not, and a restart denies it.
	_ = s.write(e, e.state, Expired, "", nil)
	s.become(e, Expired, map[State]string{Pending: "nobody answered in time", Approved: "it was approved, and not sent " +
		"again in time"}[e.state])
	return true
}
