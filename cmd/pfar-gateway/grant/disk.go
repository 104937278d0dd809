package grant

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
)

// kept is a grant on the disk, while no gateway runs. The names that a pfar before grants knows in this table mean the
// same to it, and it approves nothing by one: it wants a digest of arguments, which no grant has.
type kept struct {
	grant
	Left   time.Duration `json:"left"`   // of its time, by the clock that no one sets
	Closed time.Time     `json:"closed"` // when it was written down
}

// Open takes over what the gateway before this one has left, and from then on the disk has none of it. What an older
// pfar remembered is forgotten: it had no bound on calls or bytes. If the disk keeps what was there, as a full one does,
// there is no grant: the next start would give again what is used up now.
func Open(db *state.DB, reads Reads) (*Store, error) {
	s := &Store{db: db, reads: reads, clock: state.SinceBoot, now: time.Now, all: make(map[string]*held)}
	return s, s.take()
}

func (s *Store) take() error {
	var text []byte
	rows := 0
	err := s.db.Each("SELECT rule FROM rules", []any{&text}, func() error {
		rows++
		var k kept
		if json.Unmarshal(text, &k) != nil || k.Left <= 0 || s.now().Before(k.Closed) {
			return nil
		}
		h := &held{grant: k.grant, until: s.clock() + k.Left}
		if s.inForce(h) {
			s.all[h.ID] = h
		}
		return nil
	})
	if err != nil {
		clear(s.all)
		return fmt.Errorf("reading what is granted: %w", err)
	}
	if rows == 0 {
		return nil
	}
	err = s.db.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM rules")
		return err
	})
	if err != nil {
		clear(s.all)
	}
	return nil
}

// Close writes down what is left, after the last call.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.db.Do(func(tx *sql.Tx) error {
		for _, h := range s.all {
			if !s.inForce(h) || h.Calls == 0 || h.Bytes == 0 {
				continue
			}
			b, err := json.Marshal(kept{h.grant, h.until - s.clock(), s.now().UTC()})
			if err == nil {
				const insert = "INSERT INTO rules (id, client, server, tool, rule, created, expires) VALUES (?, ?, ?, ?, ?, ?, ?)"
				_, err = tx.Exec(insert,
					h.ID, h.Client, h.Server, h.Name, string(b), h.Made.UnixNano(), h.Until.UnixNano())
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	clear(s.all)
	if err != nil {
		return fmt.Errorf("writing down what is granted: %w", err)
	}
	return nil
}
