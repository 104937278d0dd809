// Package consent keeps what people have approved of plans of flows: a run's plan as it was shown in, each step's one
// covered call out.
package consent

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate/fold"
	"github.com/pfar/pfar/units/operator"
)

// Yes is what was decided about the plan of a run before its first call. The zero value covers nothing.
type Yes struct {
	Plan     string                `json:"plan"`               // its digest
	Call     string                `json:"call,omitempty"`     // id of the plan's record in the audit
	Approval string                `json:"approval,omitempty"` // its id; "": nobody was asked
	By       operator.Approver     `json:"by"`
	Steps    map[string]fold.Shown `json:"steps,omitempty"` // that a person has approved, by their ids
}

// Store keeps them on the disk, so that a restart loses none. It is safe for concurrent use.
type Store struct {
	DB  *state.DB
	Now func() time.Time

	// Recent has what was read last; nil: each Get reads the disk. Nobody else writes what it has.
	Recent *Recent
}

// Recent are a few decisions in memory: a run with many steps asks for its own before each. The zero value is empty.
type Recent struct {
	mu sync.Mutex
	of map[string]Yes // by run
}

// Bounds of Recent. What is larger is read from the disk.
const (
	mostRecent  = 256
	largeRecent = 8 << 10 // bytes of JSON
)

func (r *Recent) get(run string) (y Yes, ok bool) {
	if r == nil {
		return Yes{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	y, ok = r.of[run]
	return y, ok
}

func (r *Recent) put(run string, y Yes) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil || len(r.of) >= mostRecent {
		r.of = make(map[string]Yes)
	}
	r.of[run] = y
}

func (r *Recent) forget(run string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, run)
}

const (
	keptFor  = 30 * 24 * time.Hour // longer than a run goes on without a call
	mostKept = 1 << 14             // of all runs
	// MaxYes bounds one, in bytes of JSON.
	MaxYes = 2 << 20
)

var (
	// ErrNone is of a run whose plan nobody has decided about.
	ErrNone = errors.New("nothing was decided about the plan of this run")
	// ErrUsed is of a step that a yes has covered once already.
	ErrUsed = errors.New("the approval of the plan has covered this step once already")
)

// Put writes down what was decided about a run's plan. What was decided before is void.
func (s Store) Put(run string, y Yes) error {
	b, err := json.Marshal(y)
	if err == nil && len(b) > MaxYes {
		err = fmt.Errorf("the plan has %d bytes, at most %d are kept", len(b), MaxYes)
	}
	if err != nil {
		return fmt.Errorf("writing down what was decided about the plan of the run %s: %w", run, err)
	}
	now := s.Now()
	s.Recent.forget(run)
	err = s.DB.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM consents WHERE run = ? OR made < ? OR run NOT IN "+
			"(SELECT run FROM consents ORDER BY made DESC LIMIT ?)", run, now.Add(-keptFor).UnixNano(), mostKept-1)
		if err == nil {
			_, err = tx.Exec("INSERT INTO consents (run, yes, made) VALUES (?, ?, ?)", run, string(b), now.UnixNano())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing down what was decided about the plan of the run %s: %w", run, err)
	}
	return nil
}

// Get returns what was decided about a run's plan. An error is ErrNone or one of the disk; either way nothing is
// covered.
func (s Store) Get(run string) (Yes, error) {
	if y, ok := s.Recent.get(run); ok {
		return y, nil
	}
	var text string
	err := s.DB.QueryRow("SELECT yes FROM consents WHERE run = ?", run).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return Yes{}, ErrNone
	}
	var y Yes
	if err == nil {
		err = json.Unmarshal([]byte(text), &y)
	}
	if err != nil {
		return Yes{}, fmt.Errorf("reading what was decided about the plan of the run %s: %w", run, err)
	}
	if len(text) <= largeRecent {
		s.Recent.put(run, y)
	}
	return y, nil
}

// Use counts a call of a step that the yes covers, before the call goes out. It is on the disk when Use returns. An
// error is ErrUsed, ErrNone or one of the disk: the call is not covered.
func (s Store) Use(run, step, call string) error {
	err := s.DB.Do(func(tx *sql.Tx) error {
		var n int
		err := tx.QueryRow("SELECT count(*) FROM consents WHERE run = ?", run).Scan(&n)
		if err == nil && n == 0 {
			return ErrNone
		}
		if err == nil {
			err = tx.QueryRow("SELECT count(*) FROM consent_uses WHERE run = ? AND step = ?", run, step).Scan(&n)
		}
		if err == nil && n > 0 {
			return ErrUsed
		}
		if err == nil {
			_, err = tx.Exec("INSERT INTO consent_uses (run, step, call, at) VALUES (?, ?, ?, ?)",
				run, step, call, s.Now().UnixNano())
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrUsed) && !errors.Is(err, ErrNone) {
		return fmt.Errorf("writing down that the approval of a plan is used: %w", err)
	}
	return err
}

// Forget forgets a run.
func (s Store) Forget(run string) error {
	s.Recent.forget(run)
	return s.DB.Do(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM consents WHERE run = ?", run)
		return err
	})
}
