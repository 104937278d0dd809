package grant

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/provenance"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// told is what a test says of the words of calls.
type told struct{ why string }

func (r *told) Carries(string, string, *provenance.Words, gate.Confidentiality) string { return r.why }

func (r *told) Forget(string, string) {}

// bench is a store whose clocks a test sets.
type bench struct {
	*Store
	t       *testing.T
	dir     string
	told    told
	elapsed atomic.Int64 // of the clock that nobody sets
	wall    atomic.Int64 // that somebody has set the other clock forward
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	b.start()
	t.Cleanup(func() { b.db.Close() })
	return b
}

// start opens what is on the disk, as a gateway does when it is started.
func (b *bench) start() {
	b.t.Helper()
	db, err := state.Open(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	b.Store = &Store{
		db: db, reads: &b.told, all: make(map[string]*held),
		clock: func() time.Duration { return state.SinceBoot() + time.Duration(b.elapsed.Load()) },
		now:   func() time.Time { return time.Now().Add(time.Duration(b.wall.Load())) },
	}
	if err := b.take(); err != nil {
		b.t.Fatal(err)
	}
}

// stop ends a gateway, in order or by a kill.
func (b *bench) stop(orderly bool) {
	b.t.Helper()
	if orderly {
		if err := b.Close(); err != nil {
			b.t.Fatal(err)
		}
	}
	if err := b.db.Close(); err != nil {
		b.t.Fatal(err)
	}
}

var ann = operator.Approver{UID: 0, Name: "root", Channel: "test"}

// search is a call that only reads, and tells everybody what it looks for, in a session that has read private data.
func search() operator.Request {
	f := gate.Facts{
		Output: gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}, Audience: gate.Public, Effect: gate.None,
		From: gate.From{
			Confidentiality: "service: brave-search", Integrity: "service: brave-search",
			Audience: "service: brave-search", Effect: "service: brave-search",
		},
	}
	row := "strict.hcl: clean, sensitive to lower, none"
	return operator.Request{
		Client: "laptop", Session: "default", Proof: "token 1111", Server: "brave", Name: "search",
		Method: "tools/call", Arguments: json.RawMessage(`{"q":"golang"}`),
		Facts: f, Unshown: operator.Unshown{Plain: f}, Pin: "pin1", Policy: "policy1",
		Decision: gate.Decision{
			Verdict: gate.Ask, Rule: row, Fired: []string{row}, Profile: "strict",
			Data: gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean},
		},
	}
}

func with(change func(*operator.Request)) *operator.Request {
	r := search()
	change(&r)
	return &r
}

func same(*operator.Request) {}

// given is a bench with a grant for the like of search.
func given(t *testing.T, terms operator.GrantTerms) *bench {
	b := newBench(t)
	b.give(terms)
	return b
}

func (b *bench) give(terms operator.GrantTerms) string {
	b.t.Helper()
	d, err := b.Draft(with(same), terms, ann)
	if err == nil {
		err = b.Add(d)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return d.ID
}

// use uses a grant for a call with the words of its arguments.
func (b *bench) use(q *operator.Request) *Lease { return b.Use(q, provenance.WordsOf(q.Arguments)) }

func (b *bench) covers(q *operator.Request) bool { return b.use(q) != nil }

// of sets both facts.
func of(change func(*gate.Facts)) func(*operator.Request) {
	return func(r *operator.Request) { change(&r.Facts); change(&r.Plain) }
}

// never are calls that no grant covers, by which reason.
var never = map[string]struct {
	change func(*operator.Request)
	why    string
}{
	"the trifecta":    {func(r *operator.Request) { r.Decision.Once = true }, "you see each such call"},
	"findings":        {func(r *operator.Request) { r.Findings = []string{"odd"} }, "an inspector found something"},
	"denied":          {func(r *operator.Request) { r.Decision.Verdict = gate.Deny }, "does not ask"},
	"allowed":         {func(r *operator.Request) { r.Decision.Verdict = gate.Allow }, "does not ask"},
	"a prompt":        {func(r *operator.Request) { r.Method = "prompts/get" }, "only calls of tools"},
	"a resource":      {func(r *operator.Request) { r.Method = "resources/read" }, "only calls of tools"},
	"an answer":       {func(r *operator.Request) { r.Plain = gate.Facts{} }, "only calls of tools"},
	"a long text":     {func(r *operator.Request) { r.Arguments = text(maxText) }, "a text in its arguments has 258 bytes"},
	"a long number":   {func(r *operator.Request) { r.Arguments = []byte(strings.Repeat("7", maxText+1)) }, "a text in its arguments has 257"},
	"a long name":     {func(r *operator.Request) { r.Arguments = []byte(`{"` + strings.Repeat("n", maxText) + `":1}`) }, "a text in its arguments has 258"},
	"many texts":      {func(r *operator.Request) { r.Arguments = []byte("[" + strings.Repeat(`"a",`, maxArguments/4) + "1]") }, "its arguments have 1027"},
	"white space":     {func(r *operator.Request) { r.Arguments = []byte(strings.Repeat(" ", maxArguments) + "1") }, "its arguments have 1025"},
	"no JSON":         {func(r *operator.Request) { r.Arguments = []byte(`{"q":`) }, "not JSON"},
	"no arguments":    {func(r *operator.Request) { r.Arguments = nil }, "not JSON"},
	"private words":   {nil, "it has read that"},
	"unknown reading": {nil, "it has read that"},
}

func text(n int) []byte { return []byte(`"` + strings.Repeat("x", n) + `"`) }

// TestRefused: what must not be granted is not, whatever the terms, and no grant that there is covers it.
func TestRefused(t *testing.T) {
	b := given(t, operator.GrantTerms{})
	b.give(operator.GrantTerms{Public: true})
	for name, c := range never {
		r := search()
		if b.told.why = ""; c.change != nil {
			c.change(&r)
		} else {
			b.told.why = c.why
		}
		for _, public := range []bool{false, true} {
			if d, err := b.Draft(&r, operator.GrantTerms{Public: public}, ann); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
		}
		if b.covers(&r) {
			t.Errorf("%s is covered", name)
		}
		for _, o := range b.Offers(&r) {
			if !strings.Contains(o.Why, c.why) {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
	b.told.why = ""
	for name, terms := range map[string]operator.GrantTerms{
		"no time": {Seconds: -1}, "a moment": {Seconds: 59}, "a day": {Seconds: 24 * 60 * 60},
		"for ever": {Seconds: 1 << 62}, "no calls": {Calls: -1}, "many calls": {Calls: 201},
		"less than no bytes": {Bytes: -1}, "many bytes": {Bytes: 64<<10 + 1},
	} {
		if d, err := b.Draft(with(same), terms, ann); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if (&grant{}).other(with(same)) == "" {
		t.Error("the zero value covers a call")
	}
	for _, o := range b.Offers(with(same)) {
		if o.Why != "" || o.Calls != 20 || o.Bytes != 4096 || o.Seconds != 1800 {
			t.Errorf("%+v", o)
		}
	}
}

// TestPublicReads: a grant for reads of public sources covers tools of any server, and nothing that writes, that is not
// public, or that nobody but the server says so of.
func TestPublicReads(t *testing.T) {
	other := func(r *operator.Request) { r.Server, r.Name, r.Pin = "docs", "find", "pin9" }
	for name, c := range map[string]struct {
		change func(*operator.Request)
		covers bool
	}{
		"another tool":     {same, true},
		"it writes":        {of(func(f *gate.Facts) { f.Effect = gate.Reversible }), false},
		"by a hint":        {of(func(f *gate.Facts) { f.From.Effect = "hint" }), false},
		"nobody says so":   {of(func(f *gate.Facts) { f.From.Effect = "unknown" }), false},
		"output by a hint": {of(func(f *gate.Facts) { f.From.Confidentiality = "hint" }), false},
		"private output":   {of(func(f *gate.Facts) { f.Output.Confidentiality = gate.Internal }), false},
		"stained output":   {func(r *operator.Request) { r.Facts.Output.Confidentiality = gate.Internal }, false},
		"another client":   {func(r *operator.Request) { r.Client = "phone" }, false},
		"another session":  {func(r *operator.Request) { r.Session = "x" }, false},
	} {
		b := given(t, operator.GrantTerms{Public: true})
		r := with(other)
		c.change(r)
		if got := b.covers(r); got != c.covers {
			t.Errorf("%s: %v", name, got)
		}
		if r.Client, r.Session = "laptop", "default"; !c.covers && publicRead(r) {
			continue
		}
		if _, err := b.Draft(r, operator.GrantTerms{Public: true}, ann); (err == nil) != c.covers {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestScope: a grant is for what it names, and for nothing that is like it. Another call leaves it as it is.
func TestScope(t *testing.T) {
	for name, change := range map[string]func(*operator.Request){
		"client":  func(r *operator.Request) { r.Client = "phone" },
		"session": func(r *operator.Request) { r.Session = "other" },
		"server":  func(r *operator.Request) { r.Server = "brave2" },
		"tool":    func(r *operator.Request) { r.Name = "search_all" },
		"worse":   func(r *operator.Request) { r.Decision.Data.Integrity = gate.Extracted },
		"secret":  func(r *operator.Request) { r.Decision.Data.Confidentiality = gate.Regulated },
		"row":     func(r *operator.Request) { r.Decision.Rule = "other" },
		"more":    func(r *operator.Request) { r.Decision.Fired = append(r.Decision.Fired, "my.hcl:1: ask search") },
		"less":    func(r *operator.Request) { r.Decision.Fired = nil },
	} {
		b := given(t, operator.GrantTerms{})
		if b.covers(with(change)) {
			t.Errorf("another %s is covered", name)
		}
		if list := b.List(); len(list) != 1 || list[0].Used != 0 || !b.covers(with(same)) {
			t.Errorf("another %s ends it: %+v", name, list)
		}
	}
	b := given(t, operator.GrantTerms{})
	for _, arguments := range []string{`{"q":"other words"}`, `{}`, `{"n":1}`, `[]`} {
		l := b.use(with(func(r *operator.Request) { r.Arguments = []byte(arguments) }))
		if l == nil || l.By != ann || !l.Live() {
			t.Errorf("%s: %+v", arguments, l)
		}
	}
	if !b.covers(with(func(r *operator.Request) { r.Facts.Output.Integrity = gate.Raw })) { // by a stain
		t.Error("a stain ends it")
	}
}

// TestWordsOfTheCall: without the words of the very call nothing is known of them, and no grant covers it.
func TestWordsOfTheCall(t *testing.T) {
	b := given(t, operator.GrantTerms{})
	q := search()
	for name, words := range map[string]*provenance.Words{
		"none": nil, "zero": {}, "of nothing": provenance.WordsOf(nil),
		"another call's": provenance.WordsOf([]byte(`{"q":"x"}`)),
	} {
		if b.Use(&q, words) != nil {
			t.Errorf("%s: it is covered", name)
		}
	}
	if list := b.List(); len(list) != 1 || list[0].Used != 0 {
		t.Errorf("a use is counted: %+v", list)
	}
	if b.use(&q) == nil {
		t.Error("with its words it is not covered")
	}
}

// TestVoid: what changes of that which a grant is bound to ends it for good.
func TestVoid(t *testing.T) {
	for name, change := range map[string]func(*operator.Request){
		"proof":     func(r *operator.Request) { r.Proof = "token 2222" },
		"pin":       func(r *operator.Request) { r.Pin = "pin2" },
		"policy":    func(r *operator.Request) { r.Policy = "policy2" },
		"profile":   func(r *operator.Request) { r.Decision.Profile = "balanced" },
		"effect":    of(func(f *gate.Facts) { f.Effect = gate.Reversible }),
		"audience":  of(func(f *gate.Facts) { f.Audience = gate.Internal }),
		"output":    of(func(f *gate.Facts) { f.Output.Integrity = gate.Clean }),
		"whose say": of(func(f *gate.Facts) { f.From.Effect = "owner" }),
	} {
		b := given(t, operator.GrantTerms{})
		if b.covers(with(change)) || b.covers(with(same)) || len(b.List()) != 0 {
			t.Errorf("%s: %+v", name, b.List())
		}
	}
	b := given(t, operator.GrantTerms{})
	if b.Policy("policy1"); len(b.List()) != 1 {
		t.Error("the same policy ends it")
	}
	if b.Policy("policy2"); len(b.List()) != 0 {
		t.Error("another policy does not end it")
	}
}

// TestEnds: by either clock, whatever is done to the other; by its session's end; by being revoked, which also holds for
// calls that it has let through and that have not gone out.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		elapsed, wall time.Duration
		holds         bool
	}{
		{0, 0, true}, {29 * time.Minute, 29 * time.Minute, true}, {30 * time.Minute, 0, false},
		{0, 30 * time.Minute, false}, {30 * time.Minute, -24 * time.Hour, false}, {0, -time.Hour, false},
	} {
		b := given(t, operator.GrantTerms{})
		l := b.use(with(same))
		b.elapsed.Store(int64(c.elapsed))
		b.wall.Store(int64(c.wall))
		if l.Live() != c.holds || b.covers(with(same)) != c.holds {
			t.Errorf("after %s, the clock set by %s", c.elapsed, c.wall)
		}
	}
	for name, end := range map[string]func(*bench, string){
		"revoked":     func(b *bench, id string) { _ = b.Revoke(id) },
		"all revoked": func(b *bench, _ string) { b.RevokeAll() },
		"its session": func(b *bench, _ string) { b.Forget("laptop", "default") },
		"its client":  func(b *bench, _ string) { b.Dismiss(func(r *operator.Request) bool { return r.Client == "laptop" }) },
	} {
		b := newBench(t)
		id := b.give(operator.GrantTerms{})
		l := b.use(with(same))
		if end(b, id); l.Live() || b.covers(with(same)) || len(b.List()) != 0 {
			t.Errorf("%s: it goes on", name)
		}
		if err := b.Revoke(id); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := given(t, operator.GrantTerms{})
	b.Forget("laptop", "other")
	b.Dismiss(func(r *operator.Request) bool {
		return r.Client != "laptop" || r.Decision.Profile != "strict" || r.Method != "tools/call"
	})
	if !b.covers(with(same)) {
		t.Error("another session's end ends it")
	}
}

// TestBounds: calls at the same time never have more calls or bytes together than was granted, also of two grants.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		terms  []operator.GrantTerms
		length int // of each call's arguments
		want   int
	}{
		{[]operator.GrantTerms{{Calls: 7}}, 10, 7}, {[]operator.GrantTerms{{Bytes: 105}}, 10, 10},
		{[]operator.GrantTerms{{Bytes: 9}}, 10, 0},
		{[]operator.GrantTerms{{Calls: 3}, {Calls: 4, Public: true}}, 10, 7},
		{[]operator.GrantTerms{{Bytes: 15}, {Bytes: 15}}, 10, 2}, {[]operator.GrantTerms{{Calls: 200}}, 1000, 4},
	} {
		b := newBench(t)
		calls, bytes := 0, int64(0)
		for _, terms := range c.terms {
			b.give(terms)
		}
		for _, g := range b.List() {
			calls, bytes = calls+g.Calls, bytes+g.Bytes
		}
		var ran atomic.Int64
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for range 20 {
					arguments := fmt.Sprintf(`[%*s]`, c.length-2, "1")
					if b.covers(with(func(r *operator.Request) { r.Arguments = []byte(arguments) })) {
						ran.Add(1)
					}
				}
			})
		}
		all.Wait()
		if n := int(ran.Load()); n != c.want || n > calls || int64(n*c.length) > bytes {
			t.Errorf("%+v: %d calls of %d bytes, want %d", c.terms, n, c.length, c.want)
		}
		for _, g := range b.List() {
			calls, bytes = calls-g.Calls-g.Used, bytes-g.Bytes-g.UsedBytes
		}
		if calls != 0 || bytes != 0 {
			t.Errorf("%+v: %d calls and %d bytes are lost", c.terms, calls, bytes)
		}
	}
	b := newBench(t)
	for range maxGrants {
		b.give(operator.GrantTerms{Calls: 1})
	}
	d, err := b.Draft(with(same), operator.GrantTerms{}, ann)
	if err != nil || !errors.Is(b.Add(d), ErrRefused) {
		t.Errorf("one more than there is room for: %v", err)
	}
	b.covers(with(same)) // what is used up makes room
	if err := b.Add(d); err != nil {
		t.Error(err)
	}
}

// TestRestart: an orderly stop keeps what is left. A kill, a clock that is set back meanwhile, and what an older pfar
// remembered leave nothing.
func TestRestart(t *testing.T) {
	for _, c := range []struct {
		orderly       bool
		elapsed, wall time.Duration
		left          int
	}{
		{true, 0, 0, 2}, {false, 0, 0, 0}, {true, 0, 29 * time.Minute, 2}, {true, 0, 30 * time.Minute, 0},
		{true, 0, -time.Minute, 0}, {true, -1000 * time.Hour, 0, 2},
	} {
		b := given(t, operator.GrantTerms{Calls: 3, Bytes: 50})
		b.covers(with(same))
		b.stop(c.orderly)
		b.elapsed.Store(int64(c.elapsed)) // another boot
		b.wall.Store(int64(c.wall))
		b.start()
		n := 0
		for b.covers(with(same)) {
			n++
		}
		if n != c.left {
			t.Errorf("%+v: %d calls", c, n)
		}
		b.stop(false)
		b.start()
		if list := b.List(); len(list) != 0 {
			t.Errorf("%+v: killed after that, %+v", c, list)
		}
	}
	b := newBench(t)
	_, err := b.db.Exec(`INSERT INTO rules VALUES ('a', 'laptop', 'brave', 'search', '{"id":"a","client":"laptop","server":"brave","name":"search","created":"2020-01-01T00:00:00Z","expires":"2099-01-01T00:00:00Z"}', 0, 1),
		('b', '', '', '', 'no JSON', 0, 1)`)
	if err != nil {
		t.Fatal(err)
	}
	b.stop(false)
	b.start()
	if list := b.List(); len(list) != 0 || b.covers(with(same)) {
		t.Errorf("%+v", list)
	}
}
