package approval

import (
	"fmt"
	"time"
)

// Answer is what a person says to a call that waits.
type Answer struct {
	Approve bool
	Digest  string // of what the person was shown; an approval needs it
	Reason  string // of a denial, for the client; may be ""
}

// Answer answers the call of an id. With ErrUnknown or ErrRefused nothing has changed.
func (s *Store) Answer(id string, a Answer, by Approver) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil {
		return fmt.Errorf("%w: %s", ErrUnknown, id)
	}
	if e.open() {
		s.expire(e)
	}
	switch {
	case e.state == Expired:
		return fmt.Errorf("%w: %s has expired", ErrRefused, id)
	case e.state != Pending && e.by != nil:
		return fmt.Errorf("%w: %s has been %s already, by %s", ErrRefused, id, e.state, e.by.Name)
	case e.state != Pending:
		return fmt.Errorf("%w: %s is %s: %s", ErrRefused, id, e.state, e.reason)
	case !a.Approve:
		return s.deny(e, a, by)
	}
	return s.approve(e, a, by)
}

func (s *Store) approve(e *entry, a Answer, by Approver) error {
	if a.Digest != e.binding.String() {
		return fmt.Errorf("%w: %s is another call than the one that was shown", ErrRefused, e.id)
	}
	if _, err := s.sessions.Label(e.Client, e.Session); err != nil {
		return fmt.Errorf("%w: %s/%s: %w", ErrRefused, e.Client, e.Session, err)
	}
	if err := s.write(e, Pending, Approved, "", &by); err != nil {
		return fmt.Errorf("writing down the approval of %s: %w", e.id, err)
	}
	e.by = &by
	s.become(e, Approved, "")
	if _, err := s.sessions.Answered(e.Client, e.Session, true); err != nil {
		return fmt.Errorf("%s is approved, but: %w", e.id, err)
	}
	return nil
}

// deny denies one call, and all others of its session that wait if that freezes it.
func (s *Store) deny(e *entry, a Answer, by Approver) error {
	reason := "the operator denied it"
	if a.Reason != "" {
		reason += ": " + a.Reason
	}
	err := s.write(e, Pending, Denied, reason, &by)
	e.by = &by
	s.become(e, Denied, reason) // also if it cannot be written down: on the disk it waits, and a restart denies it
	if err != nil {
		return fmt.Errorf("%s is denied, but writing that down: %w", e.id, err)
	}
	frozen, err := s.sessions.Answered(e.Client, e.Session, false)
	if err != nil {
		return fmt.Errorf("%s is denied, but: %w", e.id, err)
	}
	if frozen {
		s.froze(e.Client, e.Session)
	}
	return nil
}

// Froze denies what is open of a session that something else than an answer has frozen.
func (s *Store) Froze(client, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.froze(client, session)
}

func (s *Store) froze(client, session string) {
	s.denyAll(func(o *entry) bool { return o.Client == client && o.Session == session },
		"its session is frozen, for too many of its calls were denied in a row")
}

// denyAll denies what is open of some. The lock is held.
func (s *Store) denyAll(of func(*entry) bool, reason string) {
	for _, e := range s.byID {
		if e.open() && of(e) {
			_ = s.write(e, e.state, Denied, reason, nil) // in memory it is denied, and by a restart on the disk
			s.become(e, Denied, reason)
		}
	}
}

// Forget denies what is open of a session that the operator resets or ends: it was asked with another label.
func (s *Store) Forget(client, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denyAll(func(e *entry) bool { return e.Client == client && e.Session == session }, "its session was reset or has ended")
}

// Dismiss denies what is open of clients who may not be here any more, or may not call that any more. Whoever is let in
// again is asked about anew.
func (s *Store) Dismiss(gone func(r *Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	s.denyAll(func(e *entry) bool {
		if !gone(&e.Request) {
			return false
		}
		all = append(all, e)
		return true
	}, "its client may not call it any more")
	for _, e := range all {
		s.forget(e)
	}
}

// History is the last n of all, the newest first.
func (s *Store) History(n int) ([]Record, error) {
	rows, err := s.db.Query("SELECT id, client, session, server, tool, asked, state, reason, answered, uid, name, "+
		"channel FROM approvals ORDER BY asked DESC LIMIT ?", n)
	if err != nil {
		return nil, fmt.Errorf("reading the approvals: %w", err)
	}
	defer rows.Close()
	list := []Record{}
	for rows.Next() {
		var r Record
		var by Approver
		var asked, answered int64
		if err := rows.Scan(&r.ID, &r.Client, &r.Session, &r.Server, &r.Name, &asked, &r.State, &r.Reason, &answered, &by.UID,
			&by.Name, &by.Channel); err != nil {
			return nil, fmt.Errorf("reading the approvals: %w", err)
		}
		r.Asked = time.Unix(0, asked).UTC()
		if answered != 0 {
			r.Answered = time.Unix(0, answered).UTC()
		}
		if by.UID >= 0 {
			r.By = &by
		}
		list = append(list, r)
	}
	return list, rows.Err()
}
