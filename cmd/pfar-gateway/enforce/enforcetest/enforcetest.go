// Package enforcetest makes a point that requests pass, with a database and a record of its own, for tests.
package enforcetest

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit/trail"
)

// shipped are the policies that are shipped, read once: that takes longer than most tests.
var shipped = sync.OnceValue(func() policies.Set { return policies.Load(nil, "") })

// New makes one that knows the shipped policies, and the clients of these names beside the built-in ones. It ends with
// the test.
func New(t testing.TB, clients ...string) *enforce.Point {
	t.Helper()
	return With(t, t.TempDir(), clients...)
}

// Impatient is New, but that calls which a person has to be asked about do not wait for the answer.
func Impatient(t testing.TB, clients ...string) *enforce.Point {
	t.Helper()
	limits := approval.DefaultLimits()
	limits.Wait = time.Millisecond
	return Limited(t, limits, clients...)
}

// Limited is New with limits of calls that wait for a person.
func Limited(t testing.TB, limits approval.Limits, clients ...string) *enforce.Point {
	t.Helper()
	return with(t, t.TempDir(), limits, clients)
}

// With is New in a directory that may have been used before.
func With(t testing.TB, dir string, clients ...string) *enforce.Point {
	t.Helper()
	return with(t, dir, approval.DefaultLimits(), clients)
}

// Consenting is With, and the store of what people have approved of plans in the same database.
func Consenting(t testing.TB, dir string, clients ...string) (*enforce.Point, consent.Store) {
	t.Helper()
	db := open(t, dir)
	return on(t, db, dir, approval.DefaultLimits(), clients), consent.Store{DB: db, Now: time.Now}
}

func with(t testing.TB, dir string, limits approval.Limits, clients []string) *enforce.Point {
	t.Helper()
	return on(t, open(t, dir), dir, limits, clients)
}

func open(t testing.TB, dir string) *state.DB {
	t.Helper()
	db, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func on(t testing.TB, db *state.DB, dir string, limits approval.Limits, clients []string) *enforce.Point {
	t.Helper()
	var err error
	p := &enforce.Point{Trail: NewTrail(t, dir), Log: slog.New(slog.DiscardHandler)}
	if p.Sessions, err = label.Open(db); err != nil {
		t.Fatal(err)
	}
	p.Sessions.Declare(append(clients, access.Default, access.Operator))
	if p.Approvals, err = approval.Open(db, p.Sessions, limits); err != nil {
		t.Fatal(err)
	}
	p.Reads = provenance.New(provenance.DefaultLimits)
	if p.Grants, err = grant.Open(db, p.Reads); err != nil {
		t.Fatal(err)
	}
	if shipped().Policy == nil {
		t.Fatal(shipped().Diags)
	}
	p.Learn(shipped().Policy, nil)
	return p
}

// NewTrail makes a record in a directory.
func NewTrail(t testing.TB, dir string) *trail.Log {
	t.Helper()
	d := trail.Dir{Path: dir + "/audit", Group: -1}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	f, _, err := d.Open("gateway", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l := trail.New(trail.Options{Writer: "gateway"})
	if err := l.Use(f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.End() })
	return l
}
