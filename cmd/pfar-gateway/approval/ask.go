package approval

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/units/operator"
)

// Outcome is what becomes of a call now. The zero value denies it.
type Outcome struct {
	State  State     `json:"state"` // Denied, Pending or Approved
	ID     string    `json:"id,omitempty"`
	Reason string    `json:"reason,omitempty"` // of a denial, for the client
	Link   string    `json:"link,omitempty"`   // opens a pending call at the remote console; "": there is none
	By     *Approver `json:"by,omitempty"`
}

// Ask has a human decide about a call and waits for the answer, for so long; if the call cannot be sent again, for all
// its life. Approved means: run it now; nobody else may run it on this approval, and it is written down that it is
// used. Pending means: tell the client the id; it sends the same call again, and that asks again here. With an error
// the call is denied as well.
//
// again makes the request once more after the wait. If the pin, the policy or the session's label has changed
// meanwhile, the two requests differ, and the call is not approved.
//
// held shows the client the link of a call that waits. Of all sendings of one call only one shows it, and only if there
// is a link; another one tries if that one could not. nil: the client can be shown nothing.
func (s *Store) Ask(
	ctx context.Context, r Request, again func() (Request, error), held func(Held) Showing,
) (Outcome, error) {
	canonical, binding, err := s.read(&r)
	if err != nil {
		return Outcome{Reason: err.Error()}, err
	}
	wait := s.limits.Wait
	if r.Last { // until done is closed
		wait = 2 * s.limits.Life
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	e, no, err := s.enter(r, canonical, binding)
	if no.later && len(canonical) <= s.limits.Bytes/s.limits.Open && s.lines(r.Client) {
		e, no, err = s.line(ctx, timer.C, r.Client, again)
	}
	if err != nil || no.why != "" {
		return Outcome{Reason: no.why}, err
	}
	if s.joined(e) {
		if !shows(s, e, held) {
			await(ctx, s, e, timer.C)
		}
		s.left(e)
	}
	if err := ctx.Err(); err != nil { // even if it has been approved: what nobody waits for is not used up
		if r.Last {
			s.abandon(e)
		}
		return Outcome{Reason: "the client does not wait any more", ID: e.id}, err
	}
	return s.claim(e, again)
}

// Held is a call that waits, for its client to be shown.
type Held struct {
	ID, Link string
	Done     <-chan struct{} // closed when it does not wait any more
}

// Showing is what became of showing a client the link of a call. The call waits on, whatever it is.
type Showing uint8

const (
	NotShown Showing = iota // the link did not reach the client, and its next sending of the call shows it
	Stays                   // the client was shown it, and waits for the answer
	Leaves                  // the client comes back for it
)

// shows has a call's client be shown the link, if it has not been yet. It reports whether the client comes back.
func shows(s *Store, e *entry, held func(Held) Showing) bool {
	if held == nil {
		return false
	}
	s.mu.Lock()
	h := Held{ID: e.id, Link: linkOf(s, e.id), Done: e.done}
	first := e.state == Pending && !e.shown && h.Link != ""
	e.shown = e.shown || first // so that no other sending shows it meanwhile
	s.mu.Unlock()
	if !first {
		return false
	}
	showing := held(h)
	if showing == NotShown {
		s.mu.Lock()
		e.shown = false
		s.mu.Unlock()
	}
	return showing == Leaves
}

// await returns when a call is answered or expires, or is not to be waited for any longer.
func await(ctx context.Context, s *Store, e *entry, late <-chan time.Time) {
	select {
	case <-e.done:
	case <-s.ending:
	case <-late:
	case <-ctx.Done():
	}
}

// Release lets those who wait for an answer go on without, as no one will answer any more: pfar is stopping. It is
// called once.
func (s *Store) Release() { close(s.ending) }

// joined counts one who waits, unless there are too many.
func (s *Store) joined(e *entry) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.waiters >= s.limits.Waiters {
		return false
	}
	e.waiters++
	return true
}

func (s *Store) left(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.waiters--
}

// abandon denies what nobody waits for any more, nor sends again.
func (s *Store) abandon(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.waiters > 0 || !e.open() {
		return
	}
	s.denyAll(func(o *entry) bool { return o == e }, "nobody waits for it any more")
	s.forget(e)
}

// read checks a request and what it is bound to.
func (s *Store) read(r *Request) ([]byte, Digest, error) {
	if err := complete(r); err != nil {
		return nil, Digest{}, err
	}
	if _, err := s.sessions.Label(r.Client, r.Session); err != nil {
		return nil, Digest{}, err
	}
	return bind(r)
}

// enter finds the entry of a call, or makes one. The refusal says why there is none.
func (s *Store) enter(r Request, canonical []byte, binding Digest) (*entry, refusal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byBinding[binding]; e != nil && !s.expire(e) {
		if e.state == Denied {
			why := fmt.Sprintf("%s; the operator is not asked about the same call again before %s have passed", e.reason, s.limits.Life)
			return nil, refusal{why: why}, nil
		}
		return e, refusal{}, nil
	}
	if no := s.full(&r, len(canonical)); no.why != "" {
		return nil, no, nil
	}
	e := &entry{
		Request: r, id: operator.NewID(), canonical: canonical, binding: binding, asked: s.now(),
		deadline: s.clock() + cmp.Or(r.Life, s.limits.Life), state: Pending, done: make(chan struct{}),
	}
	e.Arguments = canonical
	err := s.db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO approvals (id, binding, client, session, server, tool, asked, state) VALUES (?, ?, "+
			"?, ?, ?, ?, ?, 'pending')",
			e.id, binding[:], r.Client, r.Session, r.Server, r.Name, e.asked.UnixNano())
		if err == nil {
			_, err = tx.Exec(prune, s.limits.History)
		}
		return err
	})
	if err != nil {
		return nil, refusal{}, fmt.Errorf("writing down what is to be approved: %w", err)
	}
	s.byID[e.id], s.byBinding[binding] = e, e
	s.bytes[kept(&r)] += len(canonical)
	s.arm(e)
	s.tell(Event{Kind: Pending.String(), Approval: s.shown(e)})
	return e, refusal{}, nil
}

// refusal says why nobody is asked about a call; the zero value: somebody is.
type refusal struct {
	why   string
	later bool          // there may be room as soon as another call is answered
	after time.Duration // or when this has passed; 0: it does not help
}

// full says why nobody is asked about one more call.
func (s *Store) full(r *Request, size int) refusal {
	all, ofClient, ofServer, ofBoth := 0, 0, 0, 0
	for _, e := range s.byID {
		if !e.open() || kept(&e.Request) != kept(r) {
			continue
		}
		all++
		if e.Client == r.Client {
			ofClient++
		}
		if e.Server == r.Server {
			ofServer++
		}
		if e.Client == r.Client && e.Server == r.Server {
			ofBoth++
		}
	}
	later := func(format string, args ...any) refusal {
		return refusal{why: fmt.Sprintf(format, args...) + "; send it again when some are answered", later: true}
	}
	switch {
	case size > s.limits.Arguments:
		return refusal{why: fmt.Sprintf("its arguments are too long to be shown to anybody: %d bytes, of at most %d", size, s.limits.Arguments)}
	case r.Life > 0:
		if no := fullOfRuns(s, r, size, all, ofClient); no.why != "" {
			return no
		}
	case all >= s.limits.Open, s.bytes[0]+size > s.limits.Bytes:
		return later("too many calls wait for an approval already (%d)", all)
	case ofClient >= s.limits.OfOne:
		return later("too many calls of this client wait for an approval already (%d)", ofClient)
	case ofBoth >= s.limits.OfOne/2: // the rest is for other clients
		return later("too many calls of this client to the server %q wait for an approval already (%d)", r.Server, ofBoth)
	case ofServer >= s.limits.OfOne:
		return later("too many calls of the server %q wait for an approval already (%d)", r.Server, ofServer)
	}
	turn := s.rate(r.Client, r.Life > 0).Reserve()
	if after := turn.Delay(); after > 0 {
		turn.Cancel()
		return refusal{why: "this client asks for too many approvals; wait a little", later: true, after: after}
	}
	return refusal{}
}

// lines gives a call of a client's a place in the line of those that nobody can be asked about yet. It reports false if
// that is full: of one client as many wait there as can be asked about.
func (s *Store) lines(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := 0
	for _, n := range s.inLine {
		all += n
	}
	if all >= s.limits.Open || s.inLine[client] >= s.limits.OfOne {
		return false
	}
	s.inLine[client]++
	return true
}

// line waits until somebody can be asked, and asks about the call as it is by then: its session may have seen more, or
// be frozen.
func (s *Store) line(ctx context.Context, expired <-chan time.Time, client string, again func() (Request, error)) (*entry, refusal, error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inLine[client]--; s.inLine[client] == 0 {
			delete(s.inLine, client)
		}
	}()
	for {
		s.mu.Lock()
		room := s.room
		s.mu.Unlock()
		now, err := again()
		if err != nil {
			return nil, refusal{why: err.Error()}, err
		}
		canonical, binding, err := s.read(&now)
		if err != nil {
			return nil, refusal{why: err.Error()}, err
		}
		e, no, err := s.enter(now, canonical, binding)
		if err != nil || !no.later {
			return e, no, err
		}
		var after <-chan time.Time
		if no.after > 0 {
			after = time.After(no.after)
		}
		select {
		case <-room:
		case <-after:
		case <-expired:
			return nil, no, nil
		case <-s.ending:
			return nil, no, nil
		case <-ctx.Done():
			return nil, refusal{why: "the client does not wait any more"}, ctx.Err()
		}
	}
}

func (s *Store) rate(client string, run bool) *rate.Limiter {
	if run {
		client += " runs" // no client's name has a blank
	}
	l := s.rates[client]
	if l == nil {
		l = rate.NewLimiter(rate.Every(s.limits.Every), s.limits.Burst)
		s.rates[client] = l
	}
	return l
}

// claim uses an approval up, for the one who comes first.
func (s *Store) claim(e *entry, again func() (Request, error)) (Outcome, error) {
	now, err := again()
	if err != nil {
		return Outcome{ID: e.id, Reason: err.Error()}, err
	}
	_, binding, err := s.read(&now)
	if err != nil {
		return Outcome{ID: e.id, Reason: err.Error()}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.open() {
		s.expire(e)
	}
	switch e.state {
	case Pending:
		return Outcome{State: Pending, ID: e.id, Link: linkOf(s, e.id)}, nil
	case Approved:
	case Used:
		return Outcome{ID: e.id, Reason: "it was approved once, and has run for another sending of the same call"}, nil
	default:
		return Outcome{ID: e.id, Reason: e.reason, By: e.by}, nil
	}
	if binding != e.binding {
		return Outcome{ID: e.id, Reason: "its tool, the policy or what its session has seen has changed since it was " +
			"shown; send it again, and the operator is asked again"}, nil
	}
	err = s.write(e, Approved, Used, e.reason, nil)
	// Whatever has come of that: it is not used again.
	s.become(e, Used, e.reason)
	if err != nil {
		return Outcome{ID: e.id, Reason: "it cannot be written down that the approval is used"},
			fmt.Errorf("using the approval %s: %w", e.id, err)
	}
	return Outcome{State: Approved, ID: e.id, By: e.by}, nil
}
