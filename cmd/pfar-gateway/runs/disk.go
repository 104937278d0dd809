package runs

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// disk keeps the runs. All that it writes has passed clean before.
type disk struct {
	db     *state.DB
	clean  func([]byte) error // nil: nothing is held back
	commit func(name string)  // tests hear of a change before and after it is on the disk; nil: nobody does
	limits Limits
}

// errGone is of a run that is over meanwhile, or forgotten.
var errGone = errors.New("the run is over")

// ErrHeld is of a text that Parts.Clean keeps from the disk.
var ErrHeld = errors.New("it contains a value that pfar does not write to the disk")

// These are the states of runs that are not over, and of those that are. Each is the condition of an index.
const (
	isOpen = " state IN ('running', 'waiting', 'unknown') "
	isOver = " state IN ('done', 'failed', 'cancelled') "
)

// do carries out changes, all or none.
func (d *disk) do(name string, changes func(*sql.Tx) error) error {
	return d.change(name, d.db.Do, changes)
}

// change carries out changes by one of the two ways of the database.
func (d *disk) change(name string, do func(func(*sql.Tx) error) error, changes func(*sql.Tx) error) error {
	d.heard("before " + name)
	if err := do(changes); err != nil {
		return err
	}
	d.heard("after " + name)
	return nil
}

func (d *disk) heard(name string) {
	if d.commit != nil {
		d.commit(name)
	}
}

// pass reports whether texts may be written to the disk.
func (d *disk) pass(texts ...[]byte) error {
	if d.clean == nil {
		return nil
	}
	for _, text := range texts {
		if err := d.clean(text); err != nil {
			return fmt.Errorf("%w: %w", ErrHeld, err)
		}
	}
	return nil
}

// encode writes a plan as it is on the disk.
func encode(p *flow.Plan) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// decode reads a plan from the disk, and makes sure that no place in it leads out of it.
func decode(raw []byte) (*flow.Plan, error) {
	var p flow.Plan
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Node == nil {
			return nil, fmt.Errorf("the step %q has no node", s.ID)
		}
		for action, next := range s.Next {
			if next < 0 || next >= len(p.Steps) {
				return nil, fmt.Errorf("the action %q of the step %q leads to step %d of %d", action, s.ID, next, len(p.Steps))
			}
		}
	}
	return &p, nil
}

// create writes a new run. It returns ErrFull if there are too many, or if they take too much.
func (d *disk) create(r *run, plan []byte, now int64) error {
	texts := [][]byte{plan, []byte(r.client), []byte(r.session)}
	for name, value := range r.store {
		texts = append(texts, []byte(name), value)
	}
	if err := d.pass(texts...); err != nil {
		return err
	}
	size := len(plan) + size(r.store)
	return d.do("create", func(tx *sql.Tx) error {
		if err := d.room(tx, r.client, size); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO runs (id, client, session, proof, flow, plan, state, at, label, bytes, begun)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.id, r.client, r.session, r.proof, r.plan.Flow.Name, plan, r.state, r.plan.Steps[r.step].ID, pack(r.label),
			size, now)
		if err != nil {
			return err
		}
		if _, err = tx.Exec("INSERT INTO run_epochs (run, epoch) VALUES (?, ?)", r.id, r.epoch); err != nil {
			return err
		}
		return put(tx, r.id, r.store)
	})
}

// room looks for the place that one more run takes.
func (d *disk) room(tx *sql.Tx, client string, size int) error {
	var all, ofClient int
	err := tx.QueryRow("SELECT COUNT(*), COUNT(*) FILTER (WHERE client = ?) FROM runs WHERE"+isOpen, client).
		Scan(&all, &ofClient)
	switch {
	case err != nil:
		return err
	case ofClient >= d.limits.Open.Client:
		return fmt.Errorf("%w: %d runs of this client are not over; cancel one of them", ErrFull, ofClient)
	case all >= d.limits.Open.All:
		return fmt.Errorf("%w: %d runs of all clients are not over; cancel one of them", ErrFull, all)
	}
	return d.space(tx, client, size)
}

// space looks for the bytes that a run wants to have more than before.
func (d *disk) space(tx *sql.Tx, client string, more int) error {
	if more <= 0 {
		return nil
	}
	var all, ofClient int
	err := tx.QueryRow("SELECT COALESCE(SUM(bytes), 0), COALESCE(SUM(bytes) FILTER (WHERE client = ?), 0) FROM runs WHERE"+
		isOpen, client).Scan(&all, &ofClient)
	switch {
	case err != nil:
		return err
	case ofClient+more > d.limits.Disk.Client:
		return fmt.Errorf("%w: this client's unfinished runs would have %d bytes; the limit is %d", ErrFull,
			ofClient+more, d.limits.Disk.Client)
	case all+more > d.limits.Disk.All:
		return fmt.Errorf("%w: all clients' unfinished runs would have %d bytes; the limit is %d", ErrFull,
			all+more, d.limits.Disk.All)
	}
	return nil
}

// put writes values of a store, and takes those away that are nil.
func put(tx *sql.Tx, id string, values map[string]json.RawMessage) error {
	for name, value := range values {
		if value == nil {
			if _, err := tx.Exec("DELETE FROM run_values WHERE run = ? AND name = ?", id, name); err != nil {
				return err
			}
			continue
		}
		_, err := tx.Exec("INSERT OR REPLACE INTO run_values (run, name, value) VALUES (?, ?, ?)", id, name,
			[]byte(value))
		if err != nil {
			return err
		}
	}
	return nil
}

// load reads a run that is not over.
func (d *disk) load(id string) (*run, error) {
	r := &run{id: id, store: make(map[string]json.RawMessage)}
	err := d.db.Do(func(tx *sql.Tx) error {
		var plan []byte
		var label, bytes int
		err := tx.QueryRow(`SELECT client, session, proof, plan, state, reason, approval, step, turn, sent, asks, restarts,
			since, label, steps, bytes, COALESCE((SELECT epoch FROM run_epochs WHERE run = id), 0)
			FROM runs WHERE id = ? AND`+isOpen, id).Scan(&r.client, &r.session, &r.proof, &plan, &r.state,
			&r.reason, &r.approval, &r.step, &r.turn, &r.sent, &r.asks, &r.restarts, &r.since, &label, &r.traced,
			&bytes, &r.epoch)
		if errors.Is(err, sql.ErrNoRows) {
			return errGone
		}
		if err != nil {
			return err
		}
		if r.label = unpack(label); !r.label.Known() {
			return fmt.Errorf("the run has the unknown label %d", label)
		}
		r.planned, r.saved = len(plan), bytes
		if r.plan, err = decode(plan); err != nil {
			return fmt.Errorf("reading its plan: %w", err)
		}
		if r.step < 0 || r.step >= len(r.plan.Steps) {
			return fmt.Errorf("the run is at step %d of %d", r.step, len(r.plan.Steps))
		}
		return get(tx, r)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func get(tx *sql.Tx, r *run) error {
	rows, err := tx.Query("SELECT name, value FROM run_values WHERE run = ?", r.id)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var value []byte
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		r.store[name] = value
	}
	return rows.Err()
}

// one makes sure that a change has found its run.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errGone
}

// commence writes that a run calls the step that it is at, and what calls before have made of it.
func (d *disk) commence(r *run, sent bool, now int64) error {
	return d.do("commence", func(tx *sql.Tx) error {
		if len(r.unsaved.steps) > 0 {
			o := r.stands()
			if err := d.stand(tx, r, o, now); err != nil {
				return err
			}
			if err := d.trace(tx, r, r.unsaved.steps, o.label); err != nil {
				return err
			}
		}
		return one(tx.Exec(`UPDATE runs SET state = 'running', reason = '', approval = '', sent = ? WHERE id = ?
			AND state IN ('running', 'waiting')`, sent, r.id))
	})
}

// passed is the step of the trace that an outcome has, in JSON, if the whole outcome may be written to the disk; nil:
// it has none.
func (d *disk) passed(o outcome) ([]byte, error) {
	texts := [][]byte{[]byte(o.reason), []byte(o.approval), o.result}
	for name, value := range o.values {
		texts = append(texts, []byte(name), value)
	}
	if o.trace == nil {
		return nil, d.pass(texts...)
	}
	step, err := json.Marshal(o.trace)
	if err == nil {
		err = d.pass(append(texts, step)...)
	}
	return step, err
}

// settle writes what a call, and those before that the disk lacks, have made of a run. It returns errGone, and has
// written the trace alone, if the run is over meanwhile.
func (d *disk) settle(r *run, o outcome, now int64) error {
	step, err := d.passed(o)
	if err != nil {
		return err
	}
	steps := r.unsaved.steps
	if step != nil {
		steps = append(slices.Clone(steps), step)
	}
	do := d.db.Do
	if o.state == flows.Running {
		do = d.db.DoLater // without the change the call is made again, or is one whose outcome is not known
	}
	gone := false
	err = d.change("settle", do, func(tx *sql.Tx) error {
		err := d.stand(tx, r, o, now)
		if gone = errors.Is(err, errGone); gone {
			err = nil
		}
		if err != nil || len(steps) == 0 {
			return err
		}
		err = d.trace(tx, r, steps, o.label)
		if errors.Is(err, errGone) { // it is forgotten
			return nil
		}
		return err
	})
	if err == nil && gone {
		return errGone
	}
	return err
}

// trace writes the steps that a run has made and the disk lacks, also if the run is over meanwhile: they were called.
func (d *disk) trace(tx *sql.Tx, r *run, steps [][]byte, l gate.Label) error {
	before := r.traced - len(r.unsaved.steps)
	n := before + len(steps)
	if err := one(tx.Exec("UPDATE runs SET steps = ?, label = ?, sent = 0 WHERE id = ?", n, pack(l), r.id)); err != nil {
		return err
	}
	for i, step := range steps {
		_, err := tx.Exec("INSERT INTO run_steps (run, n, step) VALUES (?, ?, ?)", r.id, before+1+i, step)
		if err != nil {
			return err
		}
	}
	if n <= d.limits.Trace {
		return nil
	}
	_, err := tx.Exec("DELETE FROM run_steps WHERE run = ? AND n <= ?", r.id, n-d.limits.Trace)
	return err
}

// stand writes how a run stands after a call, and where.
func (d *disk) stand(tx *sql.Tx, r *run, o outcome, now int64) error {
	if over(o.state) {
		return d.finish(tx, r.id, o.standing, o.result, now)
	}
	bytes := r.bytes(o)
	if err := d.space(tx, r.client, bytes-r.saved); err != nil {
		return err
	}
	err := one(tx.Exec(`UPDATE runs SET state = ?, reason = ?, approval = ?, at = ?, step = ?, turn = ?, sent = ?,
		asks = ?, restarts = ?, since = ?, bytes = ? WHERE id = ? AND state = 'running'`, o.state, o.reason, o.approval,
		r.plan.Steps[o.step].ID, o.step, o.turn, o.sent, o.asks, o.restarts, o.since, bytes, r.id))
	if err == nil {
		err = put(tx, r.id, r.unsaved.values)
	}
	if err != nil {
		return err
	}
	return put(tx, r.id, o.values)
}

// finish writes that a run is over. Its plan and store are forgotten, and the oldest runs that are over, if there are
// too many. That its call may be on its way stays.
func (d *disk) finish(tx *sql.Tx, id string, s standing, result []byte, now int64) error {
	var client string
	err := tx.QueryRow(`UPDATE runs SET state = ?, reason = ?, approval = '', at = '', plan = x'', ended = ?, result = ?,
		bytes = ? + COALESCE((SELECT SUM(LENGTH(step)) FROM run_steps WHERE run = id), 0)
		WHERE id = ? AND`+isOpen+`RETURNING client`, s.state, s.reason, now, result, len(result)+len(s.reason),
		id).Scan(&client)
	if errors.Is(err, sql.ErrNoRows) {
		return errGone
	}
	if err != nil {
		return err
	}
	if _, err := tx.Exec("DELETE FROM run_values WHERE run = ?", id); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE client = ? AND"+isOver+
		"ORDER BY ended DESC, id DESC LIMIT -1 OFFSET ?)", client, d.limits.Kept.Client)
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE"+isOver+
		"ORDER BY ended DESC, id DESC LIMIT -1 OFFSET ?)", d.limits.Kept.All)
	if err != nil {
		return err
	}
	return d.shrink(tx, id, client)
}

// shrink forgets the oldest runs that are over, if their results and traces have too many bytes: those of a client, and
// then those of all. The one that has just ended stays, whose client is about to be told of it.
func (d *disk) shrink(tx *sql.Tx, ended, client string) error {
	const before = `DELETE FROM runs WHERE id <> ? AND id IN (SELECT id FROM (
		SELECT id, SUM(bytes) OVER (ORDER BY ended DESC, id DESC) AS total FROM runs WHERE `
	const behind = isOver + ") WHERE total > ?)"
	_, err := tx.Exec(before+"client = ? AND"+behind, ended, client, d.limits.Past.Client)
	if err == nil {
		_, err = tx.Exec(before+behind, ended, d.limits.Past.All)
	}
	return err
}

// end writes that a run is over that no call has ended.
func (d *disk) end(id string, s standing, now int64) error {
	if err := d.pass([]byte(s.reason)); err != nil {
		return err
	}
	return d.do("end", func(tx *sql.Tx) error { return d.finish(tx, id, s, nil, now) })
}

// explain writes why a run that is over is so.
func (d *disk) explain(id, reason string) error {
	return d.do("explain", func(tx *sql.Tx) error {
		_, err := tx.Exec("UPDATE runs SET reason = ?, sent = 0 WHERE id = ? AND"+isOver, reason, id)
		return err
	})
}

// goOn writes at which step a run goes on whose last call has an unknown outcome.
func (d *disk) goOn(r *run, step int) error {
	return d.do("go on", func(tx *sql.Tx) error {
		return one(tx.Exec(`UPDATE runs SET state = 'running', reason = '', at = ?, step = ?, turn = ?, sent = 0, asks = 0,
			restarts = 0, since = 0 WHERE id = ? AND state = 'unknown'`, r.plan.Steps[step].ID, step, r.turn+1, r.id))
	})
}

// doubt writes that whether a run's call has done what it was to do is not known.
func (d *disk) doubt(id, reason string, now int64) error {
	return d.do("doubt", func(tx *sql.Tx) error {
		return one(tx.Exec("UPDATE runs SET state = ?, reason = ?, since = ? WHERE id = ? AND state = 'running'",
			flows.Unknown, reason, now, id))
	})
}

// restart counts that a gateway has ended while a run was at its call.
func (d *disk) restart(id string) (n int, err error) {
	err = d.do("restart", func(tx *sql.Tx) error {
		return tx.QueryRow("UPDATE runs SET restarts = restarts + 1 WHERE id = ? RETURNING restarts", id).Scan(&n)
	})
	return n, err
}
