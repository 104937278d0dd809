package runs

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// planned is a plan from lines. "a b c" has these steps, each of which leads to the next; "a timeout> c" is an edge,
// and "a -" takes away where a leads. A step whose name begins with w writes; "a=x" sets x in the store for it, and
// "a<x" has it read x. Each is a node of pfar's own, whose output has the step's name; that of "a!" is a tool.
func planned(lines ...string) *flow.Plan {
	p := &flow.Plan{Flow: flow.Flow{Name: "test"}, Digest: "digest"}
	place := func(id string) int {
		i := slices.IndexFunc(p.Steps, func(s flow.Planned) bool { return s.ID == id })
		if i < 0 {
			panic("there is no step " + id)
		}
		return i
	}
	for i, word := range strings.Fields(lines[0]) {
		word, tool := strings.CutSuffix(word, "!")
		word, read, reads := strings.Cut(word, "<")
		word, set, sets := strings.Cut(word, "=")
		s := flow.Planned{
			Step: flow.Step{ID: word, Node: word}, Node: &flow.Node{ID: "server." + word}, Next: map[string]int{},
		}
		s.Node.Outputs = []flow.Port{{Name: word}}
		if tool {
			s.Node.Server = "server"
		}
		if reads {
			s.Node.Inputs = []flow.Port{{Name: read, Required: true}}
		}
		if sets {
			s.Set = map[string]json.RawMessage{set: json.RawMessage(`"set"`)}
			s.Node.Inputs = []flow.Port{{Name: set, Required: true}}
		}
		if p.Steps = append(p.Steps, s); i > 0 {
			p.Steps[i-1].Next[flow.Default] = i
		}
	}
	for _, line := range lines[1:] {
		f := strings.Fields(line)
		from := p.Steps[place(f[0])]
		if f[1] == "-" {
			delete(from.Next, flow.Default)
			continue
		}
		from.Next[strings.TrimSuffix(f[1], ">")] = place(f[2])
	}
	for _, s := range p.Steps {
		p.Flow.Steps = append(p.Flow.Steps, s.Step)
	}
	return p
}

// script is a caller that answers by a function, and writes down what it was asked.
type script struct {
	answer func(ctx context.Context, c Call) (Result, error)

	mu      sync.Mutex
	held    []string // client/session and step of calls whose result was held
	calls   []Call
	waiting map[string]func() // by approval
	stopped []string
	early   map[string]bool // approvals that were answered before anybody waited for them
}

func said(answer func(ctx context.Context, c Call) (Result, error)) *script {
	return &script{answer: answer, waiting: make(map[string]func()), early: make(map[string]bool)}
}

// good is what a node answers with success.
func good(value string) Result {
	return Result{ID: "call", Verdict: gate.Allow, Value: json.RawMessage(value), Label: gate.Start, Sent: true}
}

// bad is what a node answers with a failure.
func bad(c failure.Class, sent bool) Result {
	return Result{
		ID: "call", Verdict: gate.Allow, Label: gate.Start, Failed: failure.Failure{Class: c}, Error: "it failed", Sent: sent,
	}
}

func (s *script) Call(ctx context.Context, c Call) (Result, error) {
	if err := c.Begun(); err != nil {
		return Result{Error: err.Error()}, nil
	}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	s.mu.Unlock()
	return s.answer(ctx, c)
}

func (s *script) Held(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c.Client+"/"+c.Session+" "+c.Plan.Steps[c.Step].ID)
}

func (s *script) Writes(client string, n *flow.Node) bool { return strings.HasPrefix(n.ID, "server.w") }

func (s *script) Answered(approval string, then func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.early[approval] {
		go then()
		return func() {}
	}
	s.waiting[approval] = then
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, approval)
		s.stopped = append(s.stopped, approval)
	}
}

// yes answers an approval, and reports whether anybody waits for it.
func (s *script) yes(approval string) bool {
	s.mu.Lock()
	then := s.waiting[approval]
	delete(s.waiting, approval)
	s.early[approval] = then == nil
	s.mu.Unlock()
	if then != nil {
		then()
	}
	return then != nil
}

// called are the ids of the steps that were called, in their order.
func (s *script) called() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, c := range s.calls {
		ids = append(ids, c.Plan.Steps[c.Step].ID)
	}
	return strings.Join(ids, " ")
}

// clock stands still unless it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// bed is a Runner with what is around it.
type bed struct {
	*Runner
	db    *state.DB
	clock *clock
	*script
}

func (s *script) bed(t testing.TB, dir string, l Limits, change ...func(*Parts)) *bed {
	t.Helper()
	b, err := s.open(dir, l, change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.end)
	return b
}

func (s *script) open(dir string, l Limits, change ...func(*Parts)) (*bed, error) {
	db, err := state.Open(dir)
	if err != nil {
		return nil, err
	}
	b := &bed{db: db, clock: newClock(), script: s}
	p := Parts{DB: db, Caller: s, Limits: l, Now: b.clock.Now, Log: logTo(io.Discard)}
	for _, c := range change {
		c(&p)
	}
	b.Runner, err = Open(p)
	return b, err
}

// end ends it as a gateway ends. Calls that are on their way are given up.
func (b *bed) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.Runner.Close(ctx)
	b.movers.Wait()
	b.db.Close()
}

// me is whoever the runs of tests belong to.
var me = Who{Client: "claude", Session: "default"}

func (b *bed) begin(t testing.TB, p *flow.Plan) string {
	t.Helper()
	id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: p, Label: gate.Start})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// until follows a run until it is so.
func (b *bed) until(t testing.TB, id string, so func(flows.Status) bool) flows.Status {
	t.Helper()
	w, err := b.Watch(me, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for {
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatalf("run %s: %v", id, err)
		}
		if so(s) {
			return s
		}
	}
}

// rests reports whether a run does not go on by itself.
func rests(s flows.Status) bool { return s.State != flows.Running }

// ends follows a run until it is over.
func (b *bed) ends(t testing.TB, id string) flows.Status {
	t.Helper()
	b.until(t, id, func(s flows.Status) bool { return over(s.State) })
	return b.rest(t, id)
}

// rest follows a run until it does not go on by itself, and returns it with its trace.
func (b *bed) rest(t testing.TB, id string) flows.Status {
	t.Helper()
	b.until(t, id, rests)
	s, err := b.Show(me, id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// grep returns the file below a directory that contains a text, "" for none.
func grep(t *testing.T, dir, text string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) == 0 {
		t.Fatalf("%q has %d files, %v", dir, len(list), err)
	}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			return e.Name()
		}
	}
	return ""
}
