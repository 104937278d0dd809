package approval

import (
	"errors"
	"fmt"
)

// Runs asks about calls of runs of flows. Nobody waits with such a call: a run keeps no goroutine while a person
// decides, which may take days.
type Runs struct{ *Store }

var errLife = errors.New("a run has to say how long its call may wait")

// Ask is Store.Ask for a call of a run, and returns at once. Pending: the run comes back with the same request (After).
// A request has its own Life, which RunLimits bound.
func (s Runs) Ask(r Request, again func() (Request, error)) (Outcome, error) {
	if r.Life <= 0 {
		return Outcome{Reason: errLife.Error()}, errLife
	}
	r.Life = min(r.Life, s.limits.Runs.Life)
	canonical, binding, err := s.read(&r)
	if err != nil {
		return Outcome{Reason: err.Error()}, err
	}
	e, no, err := s.enter(r, canonical, binding)
	if err != nil || no.why != "" {
		return Outcome{Reason: no.why}, err
	}
	return s.claim(e, again)
}

// After has then called, in a goroutine of its own, when the call of an id does not wait any more: at once if it does
// not now. stop has it not called, unless it is on its way.
func (s Runs) After(id string, then func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.byID[id]
	if e == nil || e.state != Pending || s.expire(e) {
		go then()
		return func() {}
	}
	if e.after == nil {
		e.after = make(map[*func()]struct{})
	}
	e.after[&then] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(e.after, &then)
	}
}

// Withdraw denies the call of an id, if it still waits: nobody wants to make it any more, for its run was cancelled, or
// asks otherwise. A call that has been answered is not denied: its run may be about to make it.
func (s Runs) Withdraw(id, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byID[id]; e != nil && e.state == Pending {
		s.denyAll(func(o *entry) bool { return o == e }, reason)
		s.forget(e)
	}
}

// Over denies what is open of a run that is over, whether it has been answered or not: no other run may use it.
func (s Runs) Over(run string) {
	if run == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*entry
	s.denyAll(func(e *entry) bool {
		if e.Run != run {
			return false
		}
		all = append(all, e)
		return true
	}, "its run is over")
	for _, e := range all {
		s.forget(e)
	}
}

// fullOfRuns says why nobody is asked about one more call of a run. all and ofClient are how many such calls wait.
func fullOfRuns(s *Store, r *Request, size, all, ofClient int) refusal {
	most := s.limits.Runs
	switch {
	case ofClient >= most.OfOne:
		return refusal{why: fmt.Sprintf("too many runs of this client wait for an approval already (%d)", ofClient)}
	case all >= most.Open, s.bytes[1]+size > most.Bytes:
		return refusal{why: fmt.Sprintf("too many runs wait for an approval already (%d)", all)}
	case bytesOfRuns(s, r.Client)+size > most.Bytes/shares:
		const text = "what the runs of this client ask would have more than %d bytes"
		return refusal{why: fmt.Sprintf(text, most.Bytes/shares)}
	}
	return refusal{}
}

// shares is how many clients' runs can ask as much as one client's may, in bytes.
const shares = 4

// bytesOfRuns is what the runs of a client ask that wait.
func bytesOfRuns(s *Store, client string) (n int) {
	for _, e := range s.byID {
		if e.open() && kept(&e.Request) == 1 && e.Client == client {
			n += len(e.canonical)
		}
	}
	return n
}
