package approval

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
	"github.com/pfar/pfar/policies/gate"
)

// Remember says what is approved from now on beside the call itself: the same tool with the same arguments, for so
// long; but for those that Match loosens, where nobody but the owner and who the owner trusts can have chosen them (see
// loosens).
type Remember struct {
	For   time.Duration
	Match []Match
}

// loosens says why a rule for calls like this one may not let arguments differ; "" if it may. What strangers may have
// chosen is approved as it was shown, and what more people see than may see it, too: with another text goes other data.
func loosens(q *Request) string {
	switch {
	case q.Decision.Data.Integrity != gate.Clean:
		return "after strangers' text came in, only exactly the same arguments are remembered"
	case q.Decision.Data.Confidentiality > q.Facts.Audience:
		return "where data goes to who else may not see it, only exactly the same arguments are remembered"
	}
	return ""
}

// rule is one in memory.
type rule struct {
	Rule
	until time.Duration // of the store's clock
}

// newRule makes a rule of a call that waits, or says why it cannot be remembered.
func (s *Store) newRule(e *entry, m Remember, by Approver) (*rule, error) {
	switch {
	case e.Decision.Once:
		return nil, errors.New("a call that could carry private data out after strangers' text came in is approved once, never remembered")
	case len(e.Findings) > 0:
		return nil, errors.New("a call of which an inspector says something is not remembered")
	case m.For < time.Minute || m.For > s.limits.Remember:
		return nil, fmt.Errorf("what is remembered is so for one minute to %s, not %s", s.limits.Remember, m.For)
	case len(m.Match) > 32:
		return nil, errors.New("more than 32 arguments are matched")
	case len(m.Match) > 0 && loosens(&e.Request) != "":
		return nil, errors.New(loosens(&e.Request))
	}
	for i := range m.Match {
		if err := checkGlob(m.Match[i].Glob); err != nil {
			return nil, fmt.Errorf("reading the pattern %q: %w", m.Match[i].Glob, err)
		}
	}
	rest, err := template(e.canonical, m.Match)
	if err != nil {
		return nil, err
	}
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	if len(s.rules) >= s.limits.Rules {
		return nil, fmt.Errorf("there are %d remembered approvals already: forget some", len(s.rules))
	}
	now := s.now().UTC()
	return &rule{Rule{
		ID: newID(), Client: e.Client, Proof: e.Proof, Server: e.Server, Name: e.Name, Method: e.Method, Rest: rest, Match: m.Match, Label: e.Decision.Data,
		Row: e.Decision.Rule, Profile: e.Decision.Profile, Facts: e.Facts, Pin: e.Pin, Policy: e.Policy, By: by, Created: now, Expires: now.Add(m.For),
	}, s.clock() + m.For}, nil
}

// template replaces what is matched in canonical arguments by null, and returns the digest of the rest. It is an error
// if there is no text at a path, or not one that its pattern fits.
func template(canonical []byte, match []Match) (string, error) {
	edits := make([]jsonrpc.Edit, 0, len(match))
	for _, m := range match {
		start, end, err := locate(canonical, m.Path)
		if err != nil {
			return "", err
		}
		text, err := jsonrpc.String(canonical[start:end])
		if err != nil {
			return "", fmt.Errorf("the argument at %q is no text", m.Path)
		}
		if !fits(m.Glob, text) {
			return "", fmt.Errorf("the pattern %q does not fit what is at %q", m.Glob, m.Path)
		}
		edits = append(edits, jsonrpc.Edit{Start: start, End: end, Text: []byte("null")})
	}
	slices.SortFunc(edits, func(a, b jsonrpc.Edit) int { return a.Start - b.Start })
	for i := 1; i < len(edits); i++ {
		if edits[i].Start < edits[i-1].End {
			return "", errors.New("an argument is matched twice")
		}
	}
	sum := sha256.Sum256(jsonrpc.Splice(make([]byte, 0, len(canonical)), canonical, edits...))
	return hex.EncodeToString(sum[:]), nil
}

// covers reports whether a rule approves a call.
func (r *rule) covers(q *Request, canonical []byte) bool {
	if r.Client != q.Client || r.Proof != q.Proof || r.Server != q.Server || r.Name != q.Name || r.Method != q.Method {
		return false
	}
	if r.Row != q.Decision.Rule || r.Profile != q.Decision.Profile || r.Facts != q.Facts || r.Pin != q.Pin || r.Policy != q.Policy || !q.Decision.Data.Below(r.Label) {
		return false
	}
	if len(r.Match) > 0 && loosens(q) != "" {
		return false
	}
	rest, err := template(canonical, r.Match)
	return err == nil && rest == r.Rest
}

// inForce reports whether a rule's time has neither come to its end nor not yet begun: a clock that is set back must
// not make it longer.
func (s *Store) inForce(r *rule) bool {
	now := s.now()
	return s.clock() < r.until && now.Before(r.Expires) && !now.Before(r.Created)
}

// remembered finds a rule that approves a call; nil if none does. Rules of the same tool that a change has made void
// are forgotten.
func (s *Store) remembered(q *Request, canonical []byte) *Rule {
	if q.Decision.Once || len(q.Findings) > 0 {
		return nil
	}
	var found *Rule
	var void []string
	s.rulesMu.RLock()
	for _, r := range s.rules {
		of := r.Server == q.Server && r.Name == q.Name && r.Method == q.Method
		switch {
		case !s.inForce(r), of && (r.Pin != q.Pin || r.Client == q.Client && r.Policy != q.Policy):
			void = append(void, r.ID)
		case r.covers(q, canonical):
			found = &r.Rule
		}
	}
	s.rulesMu.RUnlock()
	for _, id := range void {
		_ = s.ForgetRule(id) // it does not approve as long as it is void
	}
	return found
}

// Rules is all that is remembered, by client, server and tool.
func (s *Store) Rules() []Rule {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	list := []Rule{}
	for _, r := range s.rules {
		if s.inForce(r) {
			list = append(list, r.Rule)
		}
	}
	slices.SortFunc(list, func(a, b Rule) int { return a.Created.Compare(b.Created) })
	return list
}

// ErrNoRule is of an id that is not among what is remembered.
var ErrNoRule = errors.New("no approval of this id is remembered")

// ForgetRule forgets one.
func (s *Store) ForgetRule(id string) error {
	s.rulesMu.Lock()
	_, ok := s.rules[id]
	delete(s.rules, id) // at once, whatever the disk says
	s.rulesMu.Unlock()
	if !ok {
		return ErrNoRule
	}
	err := s.db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM rules WHERE id = ?", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting what is remembered on the disk, where the next start would find it: %w", err)
	}
	return nil
}

// Policy says which policy decides from now on: what was remembered under another is void.
func (s *Store) Policy(digest string) error {
	s.rulesMu.RLock()
	var void []string
	for id, r := range s.rules {
		if r.Policy != digest {
			void = append(void, id)
		}
	}
	s.rulesMu.RUnlock()
	var all error
	for _, id := range void {
		all = errors.Join(all, s.ForgetRule(id))
	}
	return all
}

func (s *Store) learn(r *rule) {
	s.rulesMu.Lock()
	defer s.rulesMu.Unlock()
	s.rules[r.ID] = r
}

func (r *rule) insert(tx *sql.Tx) error {
	b, err := json.Marshal(r.Rule)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO rules (id, client, server, tool, rule, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)",
		r.ID, r.Client, r.Server, r.Name, string(b), r.Created.UnixNano(), r.Expires.UnixNano())
	return err
}

func (s *Store) readRules() error {
	err := s.db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM rules WHERE expires <= ?", s.now().UnixNano())
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting what has expired: %w", err)
	}
	var text []byte
	err = s.db.Each("SELECT rule FROM rules", []any{&text}, func() error {
		r := new(rule)
		if err := json.Unmarshal(text, &r.Rule); err != nil {
			return err
		}
		r.until = s.clock() + min(r.Expires.Sub(s.now()), r.Expires.Sub(r.Created))
		s.rules[r.ID] = r
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading what is remembered: %w", err)
	}
	return nil
}
