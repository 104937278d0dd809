// Package label keeps what each session of a client may have seen, and which servers tainted sessions have written to:
// joined before a call goes out, on the disk before that if it rises, lowered by the operator alone.
package label

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
)

// Default is the handle of the session that every declared client has.
const Default = "default"

// What the operator's socket tells of sessions and servers.
type (
	Source  = operator.Source
	Session = operator.Session
	Stain   = operator.Stain
)

var (
	// ErrUnknown is of a session that nobody has made: nothing is called for it.
	ErrUnknown = errors.New("no such session")
	// ErrFrozen is of a session whose calls have been denied too often in a row.
	ErrFrozen = errors.New("the session is frozen")
	// ErrFull is of one more session than there may be.
	ErrFull = errors.New("too many sessions")
)

// maxSessions bounds all of them. One has some 300 bytes in memory.
const maxSessions = 1 << 16

// forgotten is after how long a session of a connection is taken for over that nobody has ended: the gateway was
// killed.
const forgotten = 7 * 24 * time.Hour

// maxDenials in a row freeze a session: somebody, or something, tries until it is let through.
const maxDenials = 5

// key of a session.
type key struct{ client, handle string }

// session is one in memory. What is read for each call is atomic; the rest changes under mu, together with the disk.
type session struct {
	label  atomic.Uint32
	frozen atomic.Pointer[string] // why; nil: it is not
	used   atomic.Int64           // nanoseconds since 1970
	back   atomic.Pointer[back]   // its client's last return after a long silence; nil: none since it was reset
	from   atomic.Pointer[[]gate.Source]
	rose   atomic.Pointer[[]Source] // what raised its label, one for each time it rose; six at most
	epoch  atomic.Int64             // nanoseconds since 1970 when it was made or last reset

	mu         sync.Mutex
	kept       bool // it is on the disk
	ended      bool
	connection bool // it ends with it
	created    int64
}

// Sessions are those of all clients, and the stains of servers.
type Sessions struct {
	db  *state.DB
	Now func() time.Time // tests have another one

	mu       sync.RWMutex
	sessions map[key]*session
	declared map[string]bool

	stainMu sync.RWMutex
	stains  map[origin]stain
	holds   map[string][]gate.Place // of servers
	cleared atomic.Int64            // when a stain last was; 0: none was
}

// Open reads what is on the disk.
func Open(db *state.DB) (*Sessions, error) {
	s := &Sessions{
		db: db, Now: time.Now, sessions: make(map[key]*session), declared: make(map[string]bool),
		stains: make(map[origin]stain), holds: make(map[string][]gate.Place),
	}
	err := db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM sessions WHERE connection = 1 AND used < ?", s.Now().Add(-forgotten).UnixNano())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("forgetting the sessions of old connections: %w", err)
	}
	if err := s.readSessions(); err != nil {
		return nil, fmt.Errorf("reading the sessions: %w", err)
	}
	if err := s.readStains(); err != nil {
		return nil, fmt.Errorf("reading the stains of servers: %w", err)
	}
	return s, nil
}

func (s *Sessions) readSessions() error {
	var k key
	var label uint32
	var connection bool
	var created, used, reset int64
	var frozen string
	err := s.db.Each("SELECT client, handle, label, connection, created, used, reset, frozen FROM sessions",
		[]any{&k.client, &k.handle, &label, &connection, &created, &used, &reset, &frozen}, func() error {
			if !unpack(label).Known() {
				return fmt.Errorf("%[2]q has the unknown label %[1]d", label, k.client+"/"+k.handle)
			}
			e := &session{kept: true, connection: connection, created: created}
			e.label.Store(label)
			e.used.Store(used)
			e.epoch.Store(max(created, reset))
			e.freeze(frozen)
			s.sessions[k] = e
			return nil
		})
	if err != nil {
		return err
	}
	return errors.Join(s.readServers(), s.readSources())
}

// pack is a label as one number.
func pack(l gate.Label) uint32 { return uint32(l.Confidentiality)<<4 | uint32(l.Integrity) }

func unpack(n uint32) gate.Label {
	return gate.Label{Confidentiality: gate.Confidentiality(n >> 4 & 15), Integrity: gate.Integrity(n & 15)}
}

// Declare says which clients there are. Each has its default session; those of a client that is no longer declared are
// not known, but keep their labels for the day when it is again.
func (s *Sessions) Declare(clients []string) {
	declared := make(map[string]bool, len(clients))
	for _, c := range clients {
		declared[c] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared = declared
	for _, c := range clients {
		if k := (key{c, Default}); s.sessions[k] == nil {
			s.sessions[k] = s.fresh()
		}
	}
}

// fresh is a session that has seen nothing.
func (s *Sessions) fresh() *session {
	e := &session{created: s.Now().UnixNano()}
	e.label.Store(pack(gate.Start))
	e.used.Store(e.created)
	e.epoch.Store(e.created)
	return e
}

// find returns a session of a declared client, nil if there is none.
func (s *Sessions) find(client, handle string) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.declared[client] {
		return nil
	}
	return s.sessions[key{client, handle}]
}

// Label is that of a session. An error is ErrUnknown or ErrFrozen with the reason, and the label then is the zero one,
// which denies.
func (s *Sessions) Label(client, handle string) (gate.Label, error) {
	e := s.find(client, handle)
	switch {
	case e == nil:
		return gate.Label{}, ErrUnknown
	case e.frozen.Load() != nil:
		return gate.Label{}, e.whyFrozen()
	}
	return unpack(e.label.Load()), nil
}

// Raise joins a label to a session's, for a call that is about to be sent: l is that of what comes back from the
// server, and of nothing else. If the session's label rises by it, or what that server has contributed, that is on the
// disk when Raise returns. With an error nothing has been joined, and the call must not be sent.
func (s *Sessions) Raise(client, handle string, l gate.Label, by Source) (before, after gate.Label, err error) {
	e := s.find(client, handle)
	switch {
	case e == nil:
		return before, after, ErrUnknown
	case e.frozen.Load() != nil:
		return before, after, e.whyFrozen()
	case !l.Known():
		return before, after, fmt.Errorf("%q is an unknown label", l)
	}
	now := by.At
	if now.IsZero() {
		now = s.Now()
	}
	e.used.Store(now.UnixNano())
	before = unpack(e.label.Load())
	if l.Below(before) && !slices.ContainsFunc(s.shares(by.Server, l),
		func(one gate.Source) bool { return !one.Label.Below(e.contributed(one.Server)) }) {
		return before, before, nil
	}
	return s.rise(key{client, handle}, e, l, by, now)
}

// rise writes a higher label down, and only then holds it.
func (s *Sessions) rise(k key, e *session, l gate.Label, by Source, now time.Time) (before, after gate.Label, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return before, after, ErrUnknown
	}
	before = unpack(e.label.Load())
	after = before.Join(l)
	var more []gate.Source // of which a server has contributed more than before
	for _, one := range s.shares(by.Server, l) {
		known := e.contributed(one.Server)
		if all := known.Join(one.Label); all != known {
			more = append(more, gate.Source{Server: one.Server, Label: all})
		}
	}
	if after == before && len(more) == 0 {
		return before, after, nil
	}
	source := Source{Server: short(by.Server), Tool: short(by.Tool), Call: short(by.Call), At: now.UTC(), Label: after}
	err = s.db.Do(func(tx *sql.Tx) error {
		if err := keep(tx, k, e, pack(after)); err != nil {
			return err
		}
		for _, one := range more {
			if _, err := tx.Exec("INSERT OR REPLACE INTO session_servers (client, handle, server, label) VALUES (?, ?, ?, ?)",
				k.client, k.handle, one.Server, pack(one.Label)); err != nil {
				return err
			}
		}
		if after == before {
			return nil
		}
		_, err := tx.Exec("INSERT OR IGNORE INTO session_sources (client, handle, label, server, tool, call, at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			k.client, k.handle, pack(after), source.Server, source.Tool, source.Call, now.UnixNano())
		return err
	})
	if err != nil {
		return before, before, fmt.Errorf("writing down that the session becomes %s: %w", after, err)
	}
	e.kept = true
	for _, one := range more {
		e.contribute(one.Server, one.Label)
	}
	if after != before {
		e.raised(source)
	}
	e.label.Store(pack(after))
	return before, after, nil
}

// keep writes a session. Its lock is held.
func keep(tx *sql.Tx, k key, e *session, label uint32) error {
	_, err := tx.Exec(`INSERT INTO sessions (client, handle, label, connection, created, used) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET label = excluded.label, used = excluded.used`, k.client, k.handle, label, e.connection, e.created, e.used.Load())
	return err
}

// short bounds a name that a server or client has chosen.
func short(s string) string {
	const longest = 256
	if len(s) <= longest {
		return s
	}
	return visible.Cut(s, longest) + "..."
}

// Handle makes the handle of a session that is to be: 130 random bits.
func Handle() string { return strings.ToLower(rand.Text()) }

// New makes another session of a declared client, for the operator, under a handle that nobody has used.
func (s *Sessions) New(client, handle string) error { return s.add(client, handle, false) }

// Connect makes the session of one connection, for a client whose declaration gives each its own. It ends with End.
func (s *Sessions) Connect(client string) (string, error) {
	handle := Handle()
	return handle, s.add(client, handle, true)
}

// Known reports whether there is such a session.
func (s *Sessions) Known(client, handle string) bool { return s.find(client, handle) != nil }

func (s *Sessions) add(client, handle string, connection bool) error {
	s.mu.RLock()
	declared, n, old := s.declared[client], len(s.sessions), s.sessions[key{client, handle}]
	s.mu.RUnlock()
	switch {
	case !declared:
		return fmt.Errorf("%w: the client %q is not declared", ErrUnknown, client)
	case old != nil: // it would lose what it has read
		return fmt.Errorf("the client %q has a session %q already", client, handle)
	case n >= maxSessions:
		return fmt.Errorf("%w: %d", ErrFull, n)
	}
	e := s.fresh()
	e.connection = connection
	// Nobody is to be served by a handle that a crash takes away: the connection may go on with the next gateway.
	if err := s.db.Do(func(tx *sql.Tx) error { return keep(tx, key{client, handle}, e, pack(gate.Start)) }); err != nil {
		return fmt.Errorf("writing the new session down: %w", err)
	}
	e.kept = true
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[key{client, handle}] = e
	return nil
}

// End forgets the session of a connection, or one that the operator has made. The default one does not end.
func (s *Sessions) End(client, handle string) error {
	if handle == Default {
		return errors.New("the default session does not end: reset it")
	}
	k := key{client, handle}
	s.mu.Lock()
	e := s.sessions[k]
	delete(s.sessions, k)
	s.mu.Unlock()
	if e == nil {
		return ErrUnknown
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	if !e.kept {
		return nil
	}
	return s.db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM sessions WHERE client = ? AND handle = ?", client, handle)
		return err
	})
}

// Reset lets a session begin anew, and thaws it. That is the operator's alone. Calls under way that raised its label
// raise it no more: end the client's conversation before.
func (s *Sessions) Reset(client, handle, by string) error {
	var at int64
	return s.change(client, handle, func(tx *sql.Tx, k key, e *session) error {
		at = max(s.Now().UnixNano(), e.epoch.Load()+1) // also if the clock was set back
		if err := keep(tx, k, e, pack(gate.Start)); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE sessions SET reset = ?, reset_by = ?, frozen = '', denials = 0 WHERE client = ? "+
			"AND handle = ?", at, by, client, handle)
		if err == nil {
			_, err = tx.Exec("DELETE FROM session_sources WHERE client = ? AND handle = ?", client, handle)
		}
		if err == nil {
			_, err = tx.Exec("DELETE FROM session_servers WHERE client = ? AND handle = ?", client, handle)
		}
		return err
	}, func(e *session) {
		e.epoch.Store(at)
		e.from.Store(nil)
		e.rose.Store(nil)
		e.back.Store(nil)
		e.label.Store(pack(gate.Start))
		e.freeze("")
	})
}

// change does something to a session on the disk, and then in memory.
func (s *Sessions) change(client, handle string, disk func(*sql.Tx, key, *session) error, memory func(*session)) error {
	s.mu.RLock()
	e := s.sessions[key{client, handle}]
	s.mu.RUnlock()
	if e == nil {
		return ErrUnknown
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return ErrUnknown
	}
	if err := s.db.Do(func(tx *sql.Tx) error { return disk(tx, key{client, handle}, e) }); err != nil {
		return fmt.Errorf("writing the session %s/%s down: %w", client, handle, err)
	}
	e.kept = true
	memory(e)
	return nil
}

// Answered counts what the operator says to a session's calls: so many denials in a row freeze it. It reports whether
// this one did.
func (s *Sessions) Answered(client, handle string, approved bool) (frozen bool, err error) {
	why := ""
	err = s.change(client, handle, func(tx *sql.Tx, k key, e *session) error {
		if err := keep(tx, k, e, e.label.Load()); err != nil {
			return err
		}
		if approved {
			_, err := tx.Exec("UPDATE sessions SET denials = 0 WHERE client = ? AND handle = ?", client, handle)
			return err
		}
		return tx.QueryRow(`UPDATE sessions SET denials = denials + 1, frozen = iif(denials + 1 >= ? AND frozen = '', ?, frozen)
			WHERE client = ? AND handle = ? RETURNING frozen`, maxDenials, fmt.Sprintf("%d of its calls were denied in a row", maxDenials),
			client, handle).Scan(&why)
	}, func(e *session) {
		if why != "" {
			e.freeze(why)
		}
	})
	return why != "", err
}

// freeze has nothing called for a session any more; "" lets it go on.
func (e *session) freeze(why string) {
	if why == "" {
		e.frozen.Store(nil)
		return
	}
	e.frozen.Store(&why)
}

// whyFrozen is ErrFrozen with the reason.
func (e *session) whyFrozen() error {
	if why := e.frozen.Load(); why != nil {
		return fmt.Errorf("%w: %s", ErrFrozen, *why)
	}
	return ErrFrozen // it was, a moment ago
}

// Thaw lets a frozen session go on, with the label that it has.
func (s *Sessions) Thaw(client, handle string) error {
	return s.change(client, handle, func(tx *sql.Tx, k key, e *session) error {
		if err := keep(tx, k, e, e.label.Load()); err != nil {
			return err
		}
		_, err := tx.Exec("UPDATE sessions SET frozen = '', denials = 0 WHERE client = ? AND handle = ?", client, handle)
		return err
	}, func(e *session) { e.freeze("") })
}

// Close writes down when each session was last used.
func (s *Sessions) Close() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.db.Do(func(tx *sql.Tx) error {
		for k, e := range s.sessions {
			if _, err := tx.Exec("UPDATE sessions SET used = ? WHERE client = ? AND handle = ?", e.used.Load(), k.client, k.handle); err != nil {
				return err
			}
		}
		return nil
	})
}
