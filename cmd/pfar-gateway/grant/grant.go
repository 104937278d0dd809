// Package grant lets calls run without a question that a person has allowed beforehand, within bounds: terms that a
// person gives with an approval in, a yes for each call that they cover out, until the time, the calls or the bytes are
// used up.
//
// A grant answers a question of the gate and nothing else: it is never asked about a call that the gate denies. Each
// call is counted before it goes out. While a gateway runs, its grants are in its memory alone, and an orderly stop
// writes down what is left of them: so whatever a kill cuts short, no call and no byte is given twice.
package grant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// Most are the widest bounds that a grant can have.
var Most = operator.GrantTerms{Seconds: 8 * 60 * 60, Calls: 200, Bytes: 64 << 10}

const (
	leastSeconds = 60
	maxGrants    = 256 // at once
)

var (
	// ErrUnknown is of an id that is not of a grant.
	ErrUnknown = errors.New("no grant has this id")
	// ErrRefused is of terms that cannot be granted.
	ErrRefused = errors.New("not granted")
)

// Reads knows what sessions have received.
type Reads interface {
	// Carries says why a call's words may hold something that the session has read and that is more secret than an
	// audience; "" if they do not. Without words it says why that cannot be known.
	Carries(client, session string, words *provenance.Words, audience gate.Confidentiality) string

	// Forget forgets what a session has read whose label begins anew.
	Forget(client, session string)
}

// Store is all grants.
type Store struct {
	db    *state.DB
	reads Reads
	clock func() time.Duration // since some moment; it neither jumps nor stands still while the machine sleeps
	now   func() time.Time     // for people

	mu  sync.Mutex
	all map[string]*held
}

// held is a grant and when it ends by the store's clock.
type held struct {
	grant
	until time.Duration
}

// Draft is a grant that a person is about to give.
type Draft struct{ held }

// Draft makes a grant of a call that waits, or says why there is none. A grant can be made only of a call that it would
// cover itself. It counts once it is added.
func (s *Store) Draft(q *operator.Request, t operator.GrantTerms, by operator.Approver) (*Draft, error) {
	if err := usual(&t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	now, length := s.now().UTC(), time.Duration(t.Seconds)*time.Second
	d := &Draft{held{until: s.clock() + length, grant: grant{
		Grant: operator.Grant{
			ID: operator.NewID(), Client: q.Client, Session: q.Session, Public: t.Public,
			Until: now.Add(length), Calls: t.Calls, Bytes: t.Bytes, Made: now, By: by,
		},
		bound:    boundTo(q, t.Public),
		question: question{Label: q.Decision.Data, Row: q.Decision.Rule, Fired: q.Decision.Fired},
	}}}
	if !t.Public {
		d.Server, d.Name = q.Server, q.Name
	}
	if why := s.unfit(&d.grant, q); why != "" {
		return nil, fmt.Errorf("%w: %s", ErrRefused, why)
	}
	return d, nil
}

// unfit says why a grant would not cover the call that it is made of.
func (s *Store) unfit(g *grant, q *operator.Request) string {
	if why := grantable(q); why != "" {
		return why
	}
	if g.Public && !publicRead(q) {
		return "it is not known to only read, and from where everybody can"
	}
	if why := g.other(q); why != "" {
		return why
	}
	return s.carries(q, nil)
}

// usual puts the usual bounds for what is not said, and refuses what is too wide.
func usual(t *operator.GrantTerms) error {
	t.Fill(operator.UsualGrant)
	switch {
	case t.Seconds < leastSeconds || t.Seconds > Most.Seconds:
		return fmt.Errorf("a grant is for %d to %d seconds, not %d", leastSeconds, Most.Seconds, t.Seconds)
	case t.Calls < 1 || t.Calls > Most.Calls:
		return fmt.Errorf("a grant is for 1 to %d calls, not %d", Most.Calls, t.Calls)
	case t.Bytes < 1 || t.Bytes > Most.Bytes:
		return fmt.Errorf("a grant is for 1 to %d bytes of arguments, not %d", Most.Bytes, t.Bytes)
	}
	return nil
}

// Offers are the grants that can be given with a call, and why others cannot: for its tool, and for reads of public
// sources.
func (s *Store) Offers(q *operator.Request) []operator.GrantOffer {
	var offers []operator.GrantOffer
	for _, public := range []bool{false, true} {
		o := operator.GrantOffer{GrantTerms: operator.UsualGrant}
		o.Public = public
		if _, err := s.Draft(q, o.GrantTerms, operator.Approver{}); err != nil {
			o.Why = strings.TrimPrefix(err.Error(), ErrRefused.Error()+": ")
		}
		offers = append(offers, o)
	}
	return offers
}

// Add has a grant count from now on. Those that are over make room for it.
func (s *Store) Add(d *Draft) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.all {
		if !s.inForce(h) || h.Calls == 0 || h.Bytes == 0 {
			delete(s.all, id)
		}
	}
	if len(s.all) >= maxGrants {
		return fmt.Errorf("%w: there are %d grants already; revoke some", ErrRefused, len(s.all))
	}
	h := d.held
	s.all[h.ID] = &h
	return nil
}

// inForce reports whether a grant's time has neither come to its end nor not yet begun: a clock that is set back must
// not make it longer.
func (s *Store) inForce(h *held) bool {
	now := s.now()
	return s.clock() < h.until && now.Before(h.Until) && !now.Before(h.Made)
}

// Lease is the yes for one call. It has been counted.
type Lease struct {
	ID    string
	By    operator.Approver
	store *Store
}

// Live reports whether the grant still stands: what was revoked meanwhile must not go out.
func (l *Lease) Live() bool {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	h := l.store.all[l.ID]
	return h != nil && l.store.inForce(h)
}

// Any reports whether anything is granted to anybody.
func (s *Store) Any() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// Use counts a call and returns the yes for it; nil if no grant covers it. Grants that a change has made void end.
// Without the words of the call's arguments none covers it.
func (s *Store) Use(q *operator.Request, words *provenance.Words) *Lease {
	about := s.about(q)
	if len(about) == 0 || grantable(q) != "" || !words.Are(q.Arguments) || s.carries(q, words) != "" {
		return nil
	}
	size := int64(len(q.Arguments))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range about {
		if s.all[h.ID] != h || h.other(q) != "" || h.Calls < 1 || h.Bytes < size || !s.inForce(h) {
			continue
		}
		h.Calls, h.Bytes = h.Calls-1, h.Bytes-size
		h.Used, h.UsedBytes, h.Last = h.Used+1, h.UsedBytes+size, s.now().UTC()
		return &Lease{ID: h.ID, By: h.By, store: s}
	}
	return nil
}

// about are the grants that are about a call, the oldest first. It ends those that are void by it.
func (s *Store) about(q *operator.Request) []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var about []*held
	for id, h := range s.all {
		switch {
		case !h.about(q):
		case h.void(q):
			delete(s.all, id)
		default:
			about = append(about, h)
		}
	}
	slices.SortFunc(about, older)
	return about
}

// older orders grants by when they were given.
func older(a, b *held) int {
	if c := a.Made.Compare(b.Made); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// carries says why a call may tell its audience what that may not see, "" if it does not. If the audience may see all
// that the session has read, nothing has to be known of it.
func (s *Store) carries(q *operator.Request, words *provenance.Words) string {
	if q.Decision.Data.Confidentiality <= q.Facts.Audience {
		return ""
	}
	if s.reads == nil {
		return "what the session has read is not known"
	}
	return s.reads.Carries(q.Client, q.Session, words, q.Facts.Audience)
}

// List is all that count, the oldest first.
func (s *Store) List() []operator.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []operator.Grant{}
	for _, h := range slices.SortedFunc(maps.Values(s.all), older) {
		if s.inForce(h) {
			list = append(list, h.Grant)
		}
	}
	return list
}

// Revoke ends one grant at once, also for calls that it has let through and that have not gone out.
func (s *Store) Revoke(id string) error {
	if s.end(func(h *held) bool { return h.ID == id }) == 0 {
		return ErrUnknown
	}
	return nil
}

// RevokeAll ends all.
func (s *Store) RevokeAll() { s.end(func(*held) bool { return true }) }

// Forget ends those of a session that the operator resets or ends.
func (s *Store) Forget(client, session string) {
	if s.end(func(h *held) bool { return h.Client == client && h.Session == session }); s != nil && s.reads != nil {
		s.reads.Forget(client, session)
	}
}

// Policy says which policy decides from now on: what was granted under another is void.
func (s *Store) Policy(digest string) { s.end(func(h *held) bool { return h.Policy != digest }) }

// Dismiss ends those of clients who may not be here any more, or may not call that any more.
func (s *Store) Dismiss(gone func(*operator.Request) bool) {
	s.end(func(h *held) bool {
		return gone(&operator.Request{
			Client: h.Client, Proof: h.Proof, Session: h.Session, Server: h.Server, Name: h.Name,
			Method: string(mcp.MethodToolsCall), Decision: gate.Decision{Profile: h.Profile},
		})
	})
}

// end ends some, and returns how many.
func (s *Store) end(of func(*held) bool) (ended int) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, h := range s.all {
		if of(h) {
			delete(s.all, id)
			ended++
		}
	}
	return ended
}
