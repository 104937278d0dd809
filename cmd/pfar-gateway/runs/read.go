package runs

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pfar/pfar/units/flows"
)

// head is a run as a list has it.
type head struct {
	id, client, session string
	proof               string
	state               flows.State
	sent                bool
	since               int64
}

// heads lists runs.
func (d *disk) heads(where string, args ...any) ([]head, error) {
	rows, err := d.db.Query("SELECT id, client, session, proof, state, sent, since FROM runs WHERE "+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []head
	for rows.Next() {
		var h head
		if err := rows.Scan(&h.id, &h.client, &h.session, &h.proof, &h.state, &h.sent, &h.since); err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, rows.Err()
}

// find returns a run that somebody may see. Of one that he may not, it says the same as of one that there is not.
func (d *disk) find(who Who, id string) (head, error) {
	list, err := d.heads("id = ?", id)
	if err != nil {
		return head{}, fmt.Errorf("reading run %q: %w", id, err)
	}
	if len(list) != 1 || !who.sees(list[0].client, list[0].session) {
		return head{}, fmt.Errorf("%w: %q", ErrUnknown, id)
	}
	return list[0], nil
}

// columns are those that statusOf reads, but for the result.
const columns = `id, flow, client, session, state, reason, approval, begun, label, steps, at, `

// statusOf reads a run from a row of columns, without its trace. steps is how many that has had.
func statusOf(row interface{ Scan(...any) error }) (s flows.Status, steps int, err error) {
	var begun int64
	var label int
	err = row.Scan(&s.ID, &s.Flow, &s.Client, &s.Session, &s.State, &s.Reason, &s.Approval, &begun, &label, &steps, &s.At,
		(*[]byte)(&s.Result))
	s.Begun, s.Label = instant(begun), unpack(label)
	return s, steps, err
}

// status reads a run with the steps of its trace that follow the first ones, and says how many there are.
func (d *disk) status(id string, after int) (s flows.Status, steps int, err error) {
	err = d.db.Do(func(tx *sql.Tx) error {
		s, steps, err = statusOf(tx.QueryRow("SELECT "+columns+"result FROM runs WHERE id = ?", id))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: %q", ErrUnknown, id)
		}
		if err != nil {
			return err
		}
		s.Trace, err = traceOf(tx, id, after)
		s.Dropped = max(0, steps-after-len(s.Trace))
		return err
	})
	return s, steps, err
}

func traceOf(tx *sql.Tx, id string, after int) ([]flows.Step, error) {
	rows, err := tx.Query("SELECT step FROM run_steps WHERE run = ? AND n > ? ORDER BY n", id, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var trace []flows.Step
	for rows.Next() {
		var raw []byte
		var s flows.Step
		if err := rows.Scan(&raw); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		trace = append(trace, s)
	}
	return trace, rows.Err()
}

// epoch reads that of a run's session when it began; 0: it is not known.
func (d *disk) epoch(id string) (epoch int64, err error) {
	err = d.db.QueryRow("SELECT epoch FROM run_epochs WHERE run = ?", id).Scan(&epoch)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return epoch, err
}

// list reads the runs that somebody may see, without traces, the newest first. Results, which may be large, are not
// even read.
func (d *disk) list(who Who) ([]flows.Status, error) {
	rows, err := d.db.Query("SELECT "+columns+
		"NULL FROM runs WHERE ? OR (client = ? AND session = ?) ORDER BY begun DESC, id DESC", who.Operator, who.Client,
		who.Session)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	list := []flows.Status{}
	for rows.Next() {
		s, steps, err := statusOf(rows)
		if err != nil {
			return nil, err
		}
		if s.Dropped = steps; who.sees(s.Client, s.Session) {
			list = append(list, s)
		}
	}
	return list, rows.Err()
}

// clients lists those that have runs that are not over.
func (d *disk) clients() (list []string, err error) {
	rows, err := d.db.Query("SELECT DISTINCT client FROM runs WHERE" + isOpen + "ORDER BY client")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var client string
		if err := rows.Scan(&client); err != nil {
			return nil, err
		}
		list = append(list, client)
	}
	return list, rows.Err()
}

// expired lists the runs that have waited for longer than they may.
func (d *disk) expired(now time.Time) ([]head, error) {
	return d.heads(isOpen+"AND state <> 'running' AND since < ?", now.Add(-d.limits.Wait).UnixNano())
}
