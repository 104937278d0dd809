package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestDefaults: no limit is off by default, and none that is given is changed.
func TestDefaults(t *testing.T) {
	var each func(path string, v reflect.Value)
	each = func(path string, v reflect.Value) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				each(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		} else if v.Int() <= 0 {
			t.Errorf("%s is %d", path, v.Int())
		}
	}
	each("Limits", reflect.ValueOf(Limits{}.complete()))
	each("Limits", reflect.ValueOf(Limits{Trace: -1, Wait: -1}.complete()))
	given := Limits{
		Bound{1, 2}, Bound{3, 4}, Bound{5, 6}, Bound{7, 8}, Bound{9, 10}, 11, 12, 13, 14, 15, 16, 17, 18, 19,
	}
	if got := given.complete(); got != given {
		t.Errorf("%+v is %+v", given, got)
	}
	for n, want := range map[int]int{0: flow.DefaultMost, -1: flow.DefaultMost, 3: 3, flow.MaxMost + 1: flow.MaxMost} {
		if got := most(&flow.Flow{Most: n}); got != want {
			t.Errorf("most of %d is %d", n, got)
		}
	}
}

// as begins a run of a client.
func (b *bed) as(client string, p *flow.Plan, store map[string]json.RawMessage) (string, error) {
	return b.Begin(New{Client: client, Session: me.Session, Plan: p, Store: store, Label: gate.Start})
}

// TestTooMany: there are only so many runs that are not over, of a client and of all. One that is over makes place.
func TestTooMany(t *testing.T) {
	b := asks().bed(t, t.TempDir(), Limits{Open: Bound{All: 3, Client: 2}})
	b.Start()
	first := b.begin(t, planned("a"))
	b.begin(t, planned("a"))
	_, err := b.as(me.Client, planned("a"), nil)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "2 runs of this client") {
		t.Errorf("a third run of one client: %v", err)
	}
	if _, err := b.as("other", planned("a"), nil); err != nil {
		t.Error(err)
	}
	_, err = b.as("third", planned("a"), nil)
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "3 runs of all clients") {
		t.Errorf("a fourth run: %v", err)
	}
	if err := b.Cancel(me, first); err != nil {
		t.Fatal(err)
	}
	if _, err := b.as("third", planned("a"), nil); err != nil {
		t.Error(err)
	}
}

// TestKept: of the runs that are over, the last ones of each client are kept, and of all.
func TestKept(t *testing.T) {
	s := said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
	b := s.bed(t, t.TempDir(), Limits{Kept: Bound{All: 4, Client: 2}})
	b.Start()
	ids := make(map[string][]string)
	for _, client := range []string{"one", "one", "one", "two", "three", "three", "three"} {
		id, err := b.as(client, planned("a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		ids[client] = append(ids[client], id)
		b.movers.Wait()
		b.clock.move(1)
	}
	list, err := b.List(Who{Operator: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, s.ID)
	}
	want := []string{ids["three"][2], ids["three"][1], ids["two"][0], ids["one"][2]}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kept are %q, want %q", got, want)
	}
	for _, table := range []string{"run_values", "run_steps"} {
		n := 0
		err := b.db.QueryRow("SELECT COUNT(*) FROM " + table + " WHERE run NOT IN (SELECT id FROM runs)").Scan(&n)
		if err != nil || n != 0 {
			t.Errorf("%d rows of %s are of no run, %v", n, table, err)
		}
	}
	b.stored(t, 0)
}

// TestPastBytes: the results and traces of runs that are over have a bound in bytes, of each client and of all. The
// oldest give way, and the newest is kept, however large.
func TestPastBytes(t *testing.T) {
	const large = 4000
	result := func(n int) string { return `"` + strings.Repeat("x", n) + `"` }
	for name, tt := range map[string]struct {
		limit   Bound
		clients string // whose runs end, one after the other
		want    string // those that are kept, the newest first
	}{
		"of a client":              {Bound{All: 100 * large, Client: 3 * large}, "one one two one one", "one one two"},
		"of all":                   {Bound{All: 4 * large, Client: 3 * large}, "one two three four", "four three two"},
		"the newest is too large":  {Bound{All: large / 2, Client: large / 2}, "one two", "two"},
		"too large for its client": {Bound{All: 100 * large, Client: large / 2}, "one two one", "one two"},
	} {
		t.Run(name, func(t *testing.T) {
			s := said(func(context.Context, Call) (Result, error) { return good(result(large)), nil })
			b := s.bed(t, t.TempDir(), Limits{Past: tt.limit})
			b.Start()
			for _, client := range strings.Fields(tt.clients) {
				if _, err := b.as(client, planned("a"), nil); err != nil {
					t.Fatal(err)
				}
				b.movers.Wait()
				b.clock.move(1)
			}
			list, err := b.List(Who{Operator: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range list {
				got = append(got, s.Client)
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("kept are the runs of %q, want %q", got, tt.want)
			}
		})
	}
}

// TestPastTraces: the traces of runs that are over count, too.
func TestPastTraces(t *testing.T) {
	s := said(func(context.Context, Call) (Result, error) { return good(`1`), nil })
	b := s.bed(t, t.TempDir(), Limits{Past: Bound{All: 1000, Client: 1000}})
	b.Start()
	for range 3 {
		b.begin(t, planned("a b", "b default> a"))
		b.movers.Wait()
		b.clock.move(1)
	}
	if list, err := b.List(Who{Operator: true}); err != nil || len(list) != 1 || list[0].Dropped < 64 {
		t.Errorf("kept are %+v, %v", list, err)
	}
}

// stored fails unless the stores on the disk have so many values.
func (b *bed) stored(t *testing.T, want int) {
	t.Helper()
	n := 0
	if err := b.db.QueryRow("SELECT COUNT(*) FROM run_values").Scan(&n); err != nil || n != want {
		t.Errorf("the stores on the disk have %d values, want %d, %v", n, want, err)
	}
}

// TestTrace: of a long trace the last steps are kept.
func TestTrace(t *testing.T) {
	s := said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
	b := s.bed(t, t.TempDir(), Limits{Trace: 3})
	b.Start()
	plan := planned("a b", "b default> a")
	plan.Flow.Most = 10
	got := b.ends(t, b.begin(t, plan))
	if got.Dropped != 7 || len(got.Trace) != 3 || got.Trace[2].Step != "b" || got.Trace[1].Step != "a" {
		t.Errorf("%d dropped, kept are %+v", got.Dropped, got.Trace)
	}
}

// TestTooLarge: no plan, value, store, arguments or result is larger than it may be, and the runs of a client do not
// take more of the disk than they may.
func TestTooLarge(t *testing.T) {
	text := func(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }
	name := func(n string, v json.RawMessage) map[string]json.RawMessage { return map[string]json.RawMessage{n: v} }
	x := func(v json.RawMessage) map[string]json.RawMessage { return name("x", v) }
	l := Limits{Plan: 4000, Value: 1000, Store: 2500, Result: 500, Disk: Bound{All: 9000, Client: 6000}}
	grows := func(n int) *script {
		return said(func(_ context.Context, c Call) (Result, error) {
			if c.Plan.Steps[c.Step].ID == "wait" && !c.Asked {
				return Result{Waits: c.Run}, nil
			}
			return good(string(text(n))), nil
		})
	}
	t.Run("at the beginning", func(t *testing.T) {
		b := grows(2).bed(t, t.TempDir(), l)
		large := planned("a")
		large.Steps[0].Node.Description = strings.Repeat("x", 4000)
		three := map[string]json.RawMessage{"x": text(900), "y": text(900), "z": text(900)}
		for name, c := range map[string]struct {
			plan  *flow.Plan
			store map[string]json.RawMessage
			says  string
		}{
			"plan":      {large, nil, "the plan has"},
			"value":     {planned("a"), x(text(1001)), `"x" in the store has 1001 bytes; the limit is 1000`},
			"store":     {planned("a"), three, "the store has 2703 bytes; the limit is 2500"},
			"name":      {planned("a"), name(strings.Repeat("x", 1025), text(2)), "a name in the store has 1025 bytes"},
			"no value":  {planned("a"), x(nil), `"x" in the store is not JSON`},
			"no JSON":   {planned("a"), x(json.RawMessage("{")), `"x" in the store is not JSON`},
			"no step":   {&flow.Plan{}, nil, "the plan has no step"},
			"no plan":   {nil, nil, "the plan has no step"},
			"half plan": {&flow.Plan{Steps: []flow.Planned{{}}}, nil, "has no node"},
		} {
			if _, err := b.as(me.Client, c.plan, c.store); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned("a")})
		if err == nil || !strings.Contains(err.Error(), "is an unknown label") {
			t.Errorf("without a label: %v", err)
		}
		if _, err := b.Begin(New{Plan: planned("a"), Label: gate.Start}); err == nil {
			t.Error("a run of nobody begins")
		}
		if list, err := b.List(Who{Operator: true}); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
	for name, c := range map[string]struct {
		plan string
		size int
		says string
	}{
		"a value":   {"a b", 1001, `step "a": the result has 1001 bytes; the limit is 1000`},
		"a store":   {"a b c d", 900, `step "c": the store has 2703 bytes; the limit is 2500`},
		"a result":  {"a", 501, "the result has 501 bytes; pfar keeps at most 500"},
		"arguments": {"a b<a", 1000, `step "b": the arguments have 1006 bytes; the limit is 1000`},
	} {
		t.Run(name, func(t *testing.T) {
			s := grows(c.size)
			b := s.bed(t, t.TempDir(), l)
			b.Start()
			got := b.ends(t, b.begin(t, planned(c.plan)))
			if got.Reason != c.says || got.Result != nil || len(got.Trace) != len(s.calls) {
				t.Errorf("it is %s: %q, with %d of %d steps", got.State, got.Reason, len(got.Trace), len(s.calls))
			}
			b.stored(t, 0)
		})
	}
	t.Run("the disk", func(t *testing.T) {
		b := grows(900).bed(t, t.TempDir(), l)
		b.Start()
		var last string
		for i := range 10 { // each has some 200 bytes of plan, and comes to 900
			id, err := b.as(me.Client, planned("a wait"), nil)
			if err != nil {
				t.Fatal(err)
			}
			b.movers.Wait()
			got := b.rest(t, id)
			if got.State == flows.Failed {
				last = got.Reason
				if i < 3 {
					t.Errorf("run %d: %q", i, last)
				}
				break
			}
		}
		if !strings.Contains(last, `step "a": keeping its result: no room for the run: this client's unfinished runs`) {
			t.Errorf("the last one: %q", last)
		}
		var err error
		for i := range 10 {
			_, err = b.as(fmt.Sprint("other", i), planned("wait"), x(text(900)))
			if err != nil {
				break
			}
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "all clients' unfinished runs") {
			t.Errorf("others begin: %v", err)
		}
	})
}

// TestAtOnce: so many calls are made at the same time, of a client and of all, and clients take turns.
func TestAtOnce(t *testing.T) {
	begun, end := make(chan string, 6), make(chan struct{})
	s := said(func(_ context.Context, c Call) (Result, error) {
		begun <- c.Client
		<-end
		return good(`"value"`), nil
	})
	b := s.bed(t, t.TempDir(), Limits{Steps: Bound{All: 3, Client: 2}})
	for _, client := range []string{"one", "one", "one", "one", "two", "three"} {
		if _, err := b.as(client, planned("a"), nil); err != nil {
			t.Fatal(err)
		}
	}
	b.Start()
	at := make(map[string]int)
	for range 3 {
		at[<-begun]++
	}
	if at["one"] != 1 || at["two"] != 1 || at["three"] != 1 {
		t.Errorf("the first three calls are of %v", at)
	}
	if len(begun) != 0 {
		t.Errorf("%d more have begun", len(begun))
	}
	close(end)
	for range 3 {
		if client := <-begun; client != "one" {
			t.Errorf("then one of %s", client)
		}
	}
	b.movers.Wait()
	q := newQueue(Bound{All: 3, Client: 2})
	for range 4 {
		q.add("one", place{})
	}
	for i := range 4 {
		if _, _, ok := q.take(); ok != (i < 2) {
			t.Errorf("take %d of one client: %v", i, ok)
		}
	}
	q.free("one")
	if _, _, ok := q.take(); !ok {
		t.Error("one is free, and cannot be taken")
	}
}

// TestShare: a client whose runs take all calls for long keeps no other from its own.
func TestShare(t *testing.T) {
	q := newQueue(Bound{All: 2, Client: 2})
	for _, client := range []string{"one", "one", "one", "two", "two", "three"} {
		q.add(client, place{})
	}
	q.clients = []string{"one", "two", "three"}
	var order []string
	for client, _, ok := q.take(); ok; client, _, ok = q.take() {
		order = append(order, client)
	}
	if got := strings.Join(order, " "); got != "one two three" {
		t.Errorf("they go on: %s", got)
	}
	q.free("three")
	q.free("two")
	if client, _, ok := q.take(); client != "one" && client != "two" || !ok {
		t.Errorf("then %q, %v", client, ok)
	}
}

// TestClean: what must not be written to the disk is not, in whatever place it is, and stands in no error and no log.
func TestClean(t *testing.T) {
	const secret = "hunter2-secret"
	clean := func(text []byte) error {
		if bytes.Contains(text, []byte(secret)) {
			return errors.New("a secret of the vault")
		}
		return nil
	}
	var logged bytes.Buffer
	with := func(p *Parts) { p.Clean = clean; p.Log = logTo(&logged) }
	quoted := json.RawMessage(`"` + secret + `"`)
	t.Run("at the beginning", func(t *testing.T) {
		b := asks().bed(t, t.TempDir(), Limits{}, with)
		plan := planned("a")
		plan.Steps[0].Params = map[string]json.RawMessage{"x": quoted}
		for name, err := range map[string]error{
			"plan":  second(b.as(me.Client, plan, nil)),
			"value": second(b.as(me.Client, planned("a"), map[string]json.RawMessage{"x": quoted})),
			"name":  second(b.as(me.Client, planned("a"), map[string]json.RawMessage{secret: json.RawMessage(`1`)})),
		} {
			if err == nil || !strings.Contains(err.Error(), "a secret of the vault") || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if list, err := b.List(Who{Operator: true}); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
	for name, c := range map[string]struct {
		plan   string
		result Result
		err    error
	}{
		"a value":         {"a b", good(string(quoted)), nil},
		"the result":      {"a", good(string(quoted)), nil},
		"words":           {"a", Result{Error: secret, Sent: true}, nil},
		"an error":        {"a", Result{}, errors.New(secret)},
		"denied":          {"a", Result{Denied: true, Error: secret}, nil},
		"an approval":     {"a", Result{Waits: secret}, nil},
		"a call's id":     {"a", Result{ID: secret, Value: json.RawMessage(`1`)}, nil},
		"why it waits":    {"a", Result{Waits: "approval", Error: secret}, nil},
		"a write's value": {"wa b", good(string(quoted)), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := said(func(context.Context, Call) (Result, error) { return c.result, c.err })
			b := s.bed(t, dir, Limits{}, with)
			b.Start()
			got := b.ends(t, b.begin(t, planned(c.plan)))
			if got.State != flows.Failed || strings.Contains(fmt.Sprintf("%+v", got), secret) {
				t.Errorf("it is %+v", got)
			}
			if s.called() != strings.Fields(c.plan)[0] {
				t.Errorf("it calls %q", s.called())
			}
			if want := me.Client + "/" + me.Session + " " + s.called(); len(s.held) != 1 || s.held[0] != want {
				t.Errorf("the caller hears of %q, want %q", s.held, want)
			}
			if strings.Contains(got.Reason, "vault") {
				t.Errorf("it says why: %q", got.Reason)
			}
			b.end()
			if where := grep(t, dir, secret); where != "" || strings.Contains(logged.String(), secret) {
				t.Errorf("it is in %q, and the log says %q", where, logged.String())
			}
		})
	}
}

func second(_ string, err error) error { return err }

// TestListIsSmall: a list has no results, and does not even read them: a client can give an order for it many times a
// second. Whose runs are not over is found without a list.
func TestListIsSmall(t *testing.T) {
	const large = 1 << 20
	s := said(func(context.Context, Call) (Result, error) {
		return good(`"` + strings.Repeat("x", large-2) + `"`), nil
	})
	b := s.bed(t, t.TempDir(), Limits{})
	b.Start()
	const n = 8
	for range n {
		if got := b.ends(t, b.begin(t, planned("a"))); len(got.Result) != large {
			t.Fatalf("a result of %d bytes", len(got.Result))
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	list, err := b.List(me)
	runtime.ReadMemStats(&after)
	if err != nil || len(list) != n || list[0].Result != nil || list[0].Dropped != 1 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > large {
		t.Errorf("a list of %d runs took %d bytes", n, got)
	}
	if got, err := b.Clients(); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
