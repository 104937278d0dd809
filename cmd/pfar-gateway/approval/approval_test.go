package approval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/operator"
)

// bench is a store whose clocks a test sets.
type bench struct {
	*Store
	dir      string
	db       *state.DB
	sessions *label.Sessions
	elapsed  atomic.Int64 // of the clock that nobody sets
	wall     atomic.Int64 // that somebody has set the other clock forward
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{dir: t.TempDir()}
	b.start(t)
	t.Cleanup(func() { b.db.Close() })
	return b
}

// start opens what is on the disk, as a gateway does when it is started.
func (b *bench) start(t *testing.T) {
	t.Helper()
	var err error
	if b.db, err = state.Open(b.dir); err != nil {
		t.Fatal(err)
	}
	if b.sessions, err = label.Open(b.db); err != nil {
		t.Fatal(err)
	}
	b.sessions.Declare([]string{"laptop", "phone", "third"})
	limits := DefaultLimits()
	limits.Wait = 20 * time.Millisecond
	limits.Burst = 1000
	if b.Store, err = Open(b.db, b.sessions, limits); err != nil {
		t.Fatal(err)
	}
	b.clock = func() time.Duration { return state.SinceBoot() + time.Duration(b.elapsed.Load()) }
	b.now = func() time.Time { return time.Now().Add(time.Duration(b.wall.Load())) }
}

func (b *bench) restart(t *testing.T) {
	t.Helper()
	if err := b.db.Close(); err != nil {
		t.Fatal(err)
	}
	b.start(t)
}

var ann = Approver{UID: 0, Name: "root", Channel: "test"}

// mail is a call that waits for a person.
func mail() Request {
	return Request{
		Client: "laptop", Session: label.Default, Server: "mail", Name: "send", Method: "tools/call",
		Arguments: json.RawMessage(`{"to":"a@example.com","subject":"Notes","body":"x"}`),
		Facts:     gate.Facts{Output: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Clean}, Audience: gate.Internal, Effect: gate.Irreversible},
		Decision: gate.Decision{
			Verdict: gate.Ask, Rule: "strict.hcl: raw, fits, irreversible", Profile: "strict", Reason: "it cannot be undone",
			Data: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw},
		},
		Pin: "pin1", Policy: "policy1",
	}
}

func with(change func(*Request)) Request {
	r := mail()
	change(&r)
	return r
}

// ask sends a call, as its client does.
func (b *bench) ask(t *testing.T, r Request) Outcome {
	t.Helper()
	o, err := b.Ask(t.Context(), r, func() (Request, error) { return r, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// pending sends a call that is to wait.
func (b *bench) pending(t *testing.T, r Request) Shown {
	t.Helper()
	o := b.ask(t, r)
	if o.State != Pending {
		t.Fatalf("%+v", o)
	}
	shown, err := b.Show(o.ID)
	if err != nil {
		t.Fatal(err)
	}
	return shown
}

func (b *bench) approved(t *testing.T, shown Shown) {
	t.Helper()
	if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); err != nil {
		t.Fatal(err)
	}
}

// changes are all the ways in which a call can be another one.
var changes = map[string]func(*Request){
	"client": func(r *Request) { r.Client = "phone" },
	"proof":  func(r *Request) { r.Proof = "token 2222" },
	"server": func(r *Request) { r.Server = "mail2" },
	"tool":   func(r *Request) { r.Name = "send_all" },
	"method": func(r *Request) { r.Method = "prompts/get" },
	"value":  func(r *Request) { r.Arguments = []byte(`{"to":"b@example.com","subject":"Notes","body":"x"}`) },
	"more": func(r *Request) {
		r.Arguments = []byte(`{"to":"a@example.com","subject":"Notes","body":"x","bcc":"b@c"}`)
	},
	"less":       func(r *Request) { r.Arguments = []byte(`{"to":"a@example.com","subject":"Notes"}`) },
	"none":       func(r *Request) { r.Arguments = nil },
	"empty":      func(r *Request) { r.Arguments = []byte(`{}`) },
	"number":     func(r *Request) { r.Arguments = []byte(`{"to":"a@example.com","subject":"Notes","body":1}`) },
	"worse":      func(r *Request) { r.Decision.Data.Confidentiality = gate.Sensitive },
	"better":     func(r *Request) { r.Decision.Data.Integrity = gate.Extracted },
	"row":        func(r *Request) { r.Decision.Rule = "strict.hcl: raw, trifecta" },
	"once":       func(r *Request) { r.Decision.Once = true },
	"profile":    func(r *Request) { r.Decision.Profile = "balanced" },
	"pin":        func(r *Request) { r.Pin = "pin2" },
	"policy":     func(r *Request) { r.Policy = "policy2" },
	"finding":    func(r *Request) { r.Findings = []string{"odd"} },
	"effect":     func(r *Request) { r.Facts.Effect = gate.Reversible },
	"provenance": func(r *Request) { r.Facts.From.Effect = "hint" },
}

// TestAnotherCallIsNotApproved: an approval is of one call, whatever is like it.
func TestAnotherCallIsNotApproved(t *testing.T) {
	for name, change := range changes {
		b := newBench(t)
		b.approved(t, b.pending(t, mail()))
		if o := b.ask(t, with(change)); o.State != Pending {
			t.Errorf("%s: %+v", name, o)
		}
		if o := b.ask(t, mail()); o.State != Approved || o.By == nil || o.By.Name != "root" {
			t.Errorf("%s, and then the call itself: %+v", name, o)
		}
	}
	b := newBench(t)
	handle := label.Handle()
	err := b.sessions.New("laptop", handle)
	if err != nil {
		t.Fatal(err)
	}
	b.approved(t, b.pending(t, mail()))
	if o := b.ask(t, with(func(r *Request) { r.Session = handle })); o.State != Pending {
		t.Errorf("another session: %+v", o)
	}
}

// TestChangesDuringTheWait: what is approved is what was shown, not what has become of it since.
func TestChangesDuringTheWait(t *testing.T) {
	for name, change := range changes {
		b := newBench(t)
		b.limits.Wait = 2 * time.Minute
		done := make(chan Outcome)
		go func() {
			o, _ := b.Ask(t.Context(), mail(), func() (Request, error) { return with(change), nil }, nil)
			done <- o
		}()
		b.approved(t, b.wait(t))
		if o := <-done; o.State != Denied || !strings.Contains(o.Reason, "has changed") && name != "provenance" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	b := newBench(t)
	b.approved(t, b.pending(t, mail()))
	failed := errors.New("no policy")
	fails := func() (Request, error) { return Request{}, failed }
	if o, err := b.Ask(t.Context(), mail(), fails, nil); o.State != Denied || !errors.Is(err, failed) {
		t.Errorf("%+v, %v", o, err)
	}
}

// wait returns the call that waits, as soon as one does.
func (b *bench) wait(t *testing.T) Shown {
	t.Helper()
	now, changes, stop := b.Watch()
	defer stop()
	if len(now) > 0 {
		return now[0]
	}
	select {
	case e := <-changes:
		return e.Approval
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing waits")
	}
	panic("unreachable")
}

// TestOneExecution: however many send the same call at once, one of them runs it.
func TestOneExecution(t *testing.T) {
	for round := range 5 {
		b := newBench(t)
		b.limits.Wait = 2 * time.Minute
		const many = 100
		var ran, denied atomic.Int32
		var all, asked sync.WaitGroup
		asked.Add(many)
		for range many {
			all.Go(func() {
				asked.Done()
				o, err := b.Ask(context.Background(), mail(), func() (Request, error) { return mail(), nil }, nil)
				switch {
				case err != nil:
					t.Error(err)
				case o.State == Approved:
					ran.Add(1)
				case o.State == Denied:
					denied.Add(1)
				}
			})
		}
		asked.Wait()
		shown := b.wait(t)
		if n := len(b.List()); n != 1 {
			t.Errorf("%d approvals of one call", n)
		}
		var yes atomic.Int32
		for range many { // so do as many say yes
			all.Go(func() {
				err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann)
				if err == nil {
					yes.Add(1)
				} else if !errors.Is(err, ErrRefused) && !errors.Is(err, ErrUnknown) {
					t.Error(err)
				}
			})
		}
		// A call that comes after the one has run is a new one, and waits: here it is denied.
		for ran.Load()+denied.Load() < many {
			for _, late := range b.List() {
				if late.ID != shown.ID {
					_ = b.Answer(late.ID, Answer{}, ann)
				}
			}
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if ran.Load() != 1 || yes.Load() != 1 {
			t.Errorf("round %d: it ran %d times, was approved %d times, denied %d", round, ran.Load(), yes.Load(), denied.Load())
		}
	}
}

// TestReplay: an approval is used once.
func TestReplay(t *testing.T) {
	b := newBench(t)
	shown := b.pending(t, mail())
	b.approved(t, shown)
	if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "already, by root") {
		t.Errorf("twice: %v", err)
	}
	if o := b.ask(t, mail()); o.State != Approved {
		t.Fatalf("%+v", o)
	}
	o := b.ask(t, mail())
	if o.State != Pending || o.ID == shown.ID {
		t.Errorf("again: %+v", o)
	}
	if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); !errors.Is(err, ErrUnknown) {
		t.Errorf("after it was used: %v", err)
	}
}

// TestAnswersRefused: an answer needs the digest of the call as it was shown, and the whole id.
func TestAnswersRefused(t *testing.T) {
	b := newBench(t)
	shown := b.pending(t, mail())
	other := b.pending(t, with(func(r *Request) { r.Client = "phone" }))
	for _, c := range []struct {
		id, digest string
		is         error
	}{
		{shown.ID, "", ErrRefused}, {shown.ID, shown.Digest[:16], ErrRefused}, {shown.ID, other.Digest, ErrRefused}, {shown.ID, strings.ToUpper(shown.Digest), ErrRefused},
		{shown.ID[:6], shown.Digest, ErrUnknown}, {"", shown.Digest, ErrUnknown}, {operator.NewID(), shown.Digest, ErrUnknown},
	} {
		if err := b.Answer(c.id, Answer{Approve: true, Digest: c.digest}, ann); !errors.Is(err, c.is) {
			t.Errorf("%q %q: %v", c.id, c.digest, err)
		}
	}
	if o := b.ask(t, mail()); o.State != Pending || o.ID != shown.ID {
		t.Errorf("%+v", o)
	}
	b.sessions.Declare([]string{"phone"})
	if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); !errors.Is(err, ErrRefused) {
		t.Errorf("of a client that is gone: %v", err)
	}
}

func TestDenied(t *testing.T) {
	b := newBench(t)
	shown := b.pending(t, mail())
	if err := b.Answer(shown.ID, Answer{Reason: "not today"}, ann); err != nil {
		t.Fatal(err)
	}
	for range 3 { // it is not asked again, for a while
		if o := b.ask(t, mail()); o.State != Denied || !strings.Contains(o.Reason, "not today") || len(b.List()) != 0 {
			t.Errorf("%+v", o)
		}
	}
	if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); !errors.Is(err, ErrRefused) {
		t.Errorf("approved after that: %v", err)
	}
	b.elapsed.Add(int64(b.limits.Life))
	if o := b.ask(t, mail()); o.State != Pending || o.ID == shown.ID {
		t.Errorf("after a while: %+v", o)
	}
}

// TestExpiry is by a clock that nobody sets, and each of the two waits has its end.
func TestExpiry(t *testing.T) {
	for _, wall := range []time.Duration{0, -24 * time.Hour, 24 * time.Hour} {
		b := newBench(t)
		shown := b.pending(t, mail())
		b.wall.Store(int64(wall))
		b.elapsed.Add(int64(b.limits.Life - time.Minute))
		if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); err != nil {
			t.Errorf("the clock was set by %s: %v", wall, err)
		}
		b.elapsed.Add(int64(b.limits.Life - time.Minute))
		if o := b.ask(t, mail()); o.State != Approved {
			t.Errorf("the clock was set by %s: %+v", wall, o)
		}
		for _, approve := range []bool{false, true} {
			shown = b.pending(t, mail())
			if approve {
				b.approved(t, shown)
			}
			b.elapsed.Add(int64(b.limits.Life))
			b.wall.Store(-int64(48 * time.Hour))
			if err := b.Answer(shown.ID, Answer{Approve: true, Digest: shown.Digest}, ann); err == nil {
				t.Error("approved after it has expired")
			}
			if o := b.ask(t, mail()); o.State != Pending || o.ID == shown.ID {
				t.Errorf("after it has expired: %+v", o)
			}
		}
	}
}

// TestTimers: an end comes without anybody looking, also to those who wait and watch.
func TestTimers(t *testing.T) {
	b := newBench(t)
	b.limits.Life, b.limits.Wait = 50*time.Millisecond, 2*time.Minute
	_, changes, stop := b.Watch()
	defer stop()
	if o := b.ask(t, mail()); o.State != Denied || o.Reason != "nobody answered in time" {
		t.Errorf("%+v", o)
	}
	for _, want := range []string{"pending", "expired"} {
		if e := <-changes; e.Kind != want {
			t.Errorf("%+v, want %s", e, want)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byID)+len(b.byBinding)+b.bytes[0] != 0 {
		t.Errorf("left: %v %v %v", b.byID, b.byBinding, b.bytes)
	}
}

// TestRestartDenies: a restart denies every open request, approved or not, so that no call runs twice.
func TestRestartDenies(t *testing.T) {
	b := newBench(t)
	waiting, yes := b.pending(t, mail()), b.pending(t, with(changes["value"]))
	b.approved(t, yes)
	b.restart(t)
	for _, id := range []Shown{waiting, yes} {
		if err := b.Answer(id.ID, Answer{Approve: true, Digest: id.Digest}, ann); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}
	}
	if o := b.ask(t, with(changes["value"])); o.State != Pending {
		t.Errorf("%+v", o)
	}
	list, err := b.History(10)
	if err != nil || len(list) != 3 || list[1].State != "denied" || list[2].State != "denied" || list[1].Reason != "pfar was started again" || list[1].By == nil {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestFreeze: who is denied too often in a row is asked about no more, until a person says so.
func TestFreeze(t *testing.T) {
	b := newBench(t)
	deny := func(n int) {
		for i := range n {
			o := b.ask(t, with(func(r *Request) { r.Arguments = fmt.Appendf(nil, `{"n":%d%d}`, n, i) }))
			if err := b.Answer(o.ID, Answer{}, ann); err != nil {
				t.Fatal(err)
			}
		}
	}
	deny(4)
	b.approved(t, b.pending(t, mail()))
	if o := b.ask(t, mail()); o.State != Approved {
		t.Fatal(o)
	}
	b.approved(t, b.pending(t, with(changes["more"]))) // and is not used
	other := b.pending(t, with(changes["value"]))
	deny(5)
	for _, r := range []Request{mail(), with(changes["value"]), with(changes["more"])} {
		same := func() (Request, error) { return r, nil }
		if o, err := b.Ask(t.Context(), r, same, nil); !errors.Is(err, label.ErrFrozen) || o.State != Denied {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if err := b.Answer(other.ID, Answer{Approve: true, Digest: other.Digest}, ann); !errors.Is(err, ErrRefused) {
		t.Errorf("approved although it is frozen: %v", err)
	}
	if o := b.ask(t, with(changes["client"])); o.State != Pending {
		t.Errorf("another client: %+v", o)
	}
	b.restart(t)
	if _, err := b.sessions.Label("laptop", label.Default); !errors.Is(err, label.ErrFrozen) {
		t.Errorf("after a restart: %v", err)
	}
	if err := b.sessions.Thaw("laptop", label.Default); err != nil {
		t.Fatal(err)
	}
	if o := b.ask(t, mail()); o.State != Pending {
		t.Errorf("thawed: %+v", o)
	}
}

// TestReleased: nobody holds up a gateway that stops.
func TestReleased(t *testing.T) {
	b := newBench(t)
	b.limits.Wait = time.Hour
	done := make(chan Outcome)
	go func() {
		o, _ := b.Ask(t.Context(), mail(), func() (Request, error) { return mail(), nil }, nil)
		done <- o
	}()
	for len(b.List()) == 0 {
		time.Sleep(time.Millisecond)
	}
	b.Release()
	if o := <-done; o.State != Pending || o.ID == "" {
		t.Errorf("%+v", o)
	}
	if o := b.ask(t, with(func(r *Request) { r.Name = "other" })); o.State != Pending {
		t.Errorf("%+v", o)
	}
}

// TestLast: what cannot be sent again is waited for as long as it is open, and not for as long as one call's answer.
func TestLast(t *testing.T) {
	b := newBench(t)
	b.limits.Wait, b.limits.Life = time.Millisecond, time.Hour
	last := with(func(r *Request) { r.Last = true })
	again := func() (Request, error) { return last, nil }
	outcome := make(chan Outcome, 1)
	ask := func(ctx context.Context) {
		o, _ := b.Ask(ctx, last, again, nil)
		outcome <- o
	}
	go ask(t.Context())
	shown := b.wait(t)
	select {
	case o := <-outcome:
		t.Fatalf("it waits no more: %+v", o)
	case <-time.After(50 * time.Millisecond):
	}
	b.approved(t, shown)
	if o := <-outcome; o.State != Approved || o.ID != shown.ID {
		t.Errorf("%+v", o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go ask(ctx)
	b.wait(t)
	cancel()
	if o := <-outcome; o.State != Denied {
		t.Errorf("nobody waits any more: %+v", o)
	}
	if left := b.List(); len(left) != 0 {
		t.Errorf("the operator is asked for nothing: %+v", left)
	}
	if o := b.ask(t, mail()); o.State != Pending { // one that can be sent again waits for its own time
		t.Errorf("%+v", o)
	}
	b.limits.Life = 20 * time.Millisecond
	other := with(func(r *Request) { r.Last, r.Name = true, "other" })
	same := func() (Request, error) { return other, nil }
	if o, err := b.Ask(t.Context(), other, same, nil); err != nil || o.State == Approved || o.State == Pending {
		t.Errorf("after its time: %+v, %v", o, err)
	}
}
