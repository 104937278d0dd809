package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestCancelOnItsWay: the context of a call that is on its way is cancelled, what becomes of the call is in the trace,
// and no further call begins.
func TestCancelOnItsWay(t *testing.T) {
	done := good(`"value"`)
	done.Label = gate.Label{Confidentiality: gate.Secret, Integrity: gate.Raw}
	for name, c := range map[string]struct {
		plan   string
		result Result
		reason string
		steps  int
	}{
		"a read":                      {"a b", done, "cancelled", 1},
		"a write that was done":       {"wa b", done, "which was carried out", 1},
		"a write that broke off":      {"wa b", bad(failure.Timeout, true), "whether that was carried out is not known", 1},
		"a write that was not sent":   {"wa b", bad("", false), "cancelled while a call was on its way", 1},
		"a call that waits":           {"wa b", Result{Waits: "approval"}, "cancelled before its call was sent", 0},
		"a call that reads and waits": {"a b", Result{Waits: "approval"}, "cancelled", 0},
		"the last one":                {"wa", done, "which was carried out", 1},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{})
			s := said(func(ctx context.Context, _ Call) (Result, error) {
				close(begun)
				<-ctx.Done()
				return c.result, nil
			})
			dir := t.TempDir()
			b := s.bed(t, dir, Limits{})
			b.Start()
			id := b.begin(t, planned(c.plan))
			<-begun
			if err := b.Cancel(me, id); err != nil {
				t.Fatal(err)
			}
			if err := b.Cancel(me, id); !errors.Is(err, ErrState) {
				t.Errorf("cancelling it again: %v", err)
			}
			b.movers.Wait()
			got := b.rest(t, id)
			if got.State != flows.Cancelled || !strings.HasSuffix(got.Reason, c.reason) || len(got.Trace) != c.steps ||
				got.Result != nil {
				t.Errorf("it is %s: %q, with %d steps", got.State, got.Reason, len(got.Trace))
			}
			if c.steps == 1 && got.Label != c.result.Label {
				t.Errorf("its label is %s", got.Label)
			}
			if strings.Count(s.called(), " ") != 0 {
				t.Errorf("it calls %q", s.called())
			}
			if c.result.Waits != "" && !slices.Equal(s.stopped, []string{"approval"}) {
				t.Errorf("nobody needs its approval, and the caller was told %q", s.stopped)
			}
			b.end()
			b = s.bed(t, dir, Limits{})
			b.Start()
			again := b.rest(t, id)
			if again.Reason != got.Reason || again.State != got.State || strings.Contains(s.called(), " ") {
				t.Errorf("after a restart it is %s: %q, and calls %q", again.State, again.Reason, s.called())
			}
		})
	}
}

// TestCancelGivenUp: of a run that was cancelled, and whose gateway ended before its call did, the outcome is not
// known.
func TestCancelGivenUp(t *testing.T) {
	dir := t.TempDir()
	begun, end := make(chan struct{}), make(chan struct{})
	s := said(func(context.Context, Call) (Result, error) {
		close(begun)
		<-end
		return good(`"value"`), nil
	})
	b := s.bed(t, dir, Limits{})
	b.Start()
	id := b.begin(t, planned("wa b"))
	<-begun
	if err := b.Cancel(me, id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.Runner.Close(ctx)
	close(end)
	b.end()
	b = s.bed(t, dir, Limits{})
	got, err := b.Show(me, id)
	if err != nil || got.State != flows.Cancelled || !strings.Contains(got.Reason, "not known") {
		t.Errorf("it is %s: %q, %v", got.State, got.Reason, err)
	}
}

// TestCancelWaiting: a run that waits does not go on after it was cancelled, whatever the answer, and the caller hears
// that nobody needs that.
func TestCancelWaiting(t *testing.T) {
	s := asks()
	b := s.bed(t, t.TempDir(), Limits{})
	b.Start()
	id := b.begin(t, planned("wa b"))
	b.until(t, id, rests)
	b.movers.Wait()
	then := s.waiting["approval-0-1"]
	if err := b.Cancel(me, id); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.stopped, []string{"approval-0-1"}) {
		t.Errorf("the caller was told %q", s.stopped)
	}
	then() // it was on its way
	b.movers.Wait()
	if got := b.rest(t, id); got.State != flows.Cancelled || s.called() != "wa" || len(b.waits) != 0 {
		t.Errorf("it is %s, and calls %q", got.State, s.called())
	}
}

// TestCancelAtEachMoment cancels a run at each moment of its changes, before and after each is on the disk. Once that
// is acknowledged, no call begins, and a restart does not change that.
func TestCancelAtEachMoment(t *testing.T) {
	for _, moment := range []string{
		"after create", "before commence", "after commence", "before call", "after call", "before settle", "after settle",
	} {
		t.Run(moment, func(t *testing.T) {
			dir := t.TempDir()
			var once sync.Once
			var b *bed
			var acknowledged sync.WaitGroup
			acknowledged.Add(1)
			var late atomic.Bool // the cancel was acknowledged
			var lateCalls atomic.Int32
			cancel := func() {
				list, err := b.disk.heads("true")
				if err != nil || len(list) != 1 {
					t.Errorf("%+v, %v", list, err)
				} else if err := b.Cancel(me, list[0].id); err != nil {
					t.Error(err)
				}
				late.Store(true)
				acknowledged.Done()
			}
			heard := func(m string) {
				if m != moment {
					return
				}
				once.Do(func() {
					if strings.HasSuffix(m, "call") {
						cancel() // the lock is free
						return
					}
					go cancel()
				})
			}
			s := said(func(ctx context.Context, _ Call) (Result, error) {
				wasLate := late.Load()
				if ctx.Err() != nil {
					return bad("", false), nil
				}
				if wasLate {
					lateCalls.Add(1)
				}
				heard("before call")
				heard("after call")
				return good(`"value"`), nil
			})
			b = s.bed(t, dir, Limits{})
			b.disk.commit = heard
			b.Start()
			id := b.begin(t, planned("a wb c wd", "wd default> a"))
			acknowledged.Wait()
			n := len(strings.Fields(s.called()))
			b.movers.Wait()
			if got := b.rest(t, id); got.State != flows.Cancelled || lateCalls.Load() != 0 {
				t.Errorf("it is %s: %q, with %d late calls", got.State, got.Reason, lateCalls.Load())
			}
			// One may have been on its way, with a context that is done.
			if after := len(strings.Fields(s.called())); after > n+1 {
				t.Errorf("%d calls, and %d after it was cancelled", n, after-n)
			}
			b.end()
			calls := s.called()
			b = s.bed(t, dir, Limits{})
			b.Start()
			b.movers.Wait()
			if got := b.rest(t, id); got.State != flows.Cancelled || s.called() != calls {
				t.Errorf("after a restart it is %s, and calls %q", got.State, s.called())
			}
		})
	}
}

// hesitant is a caller that is asked whether a call writes, and takes its time.
type hesitant struct {
	*script
	meanwhile func(n *flow.Node)
}

func (h hesitant) Writes(client string, n *flow.Node) bool {
	h.meanwhile(n)
	return h.script.Writes(client, n)
}

// TestCancelBeforeCall: a run that is cancelled between two calls does not make the next one, whether that reads or
// writes.
func TestCancelBeforeCall(t *testing.T) {
	for _, plan := range []string{"a b", "a wb"} {
		var b *bed
		s := said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
		cancel := func(n *flow.Node) {
			if n.ID == "server.a" {
				return
			}
			list, err := b.List(me)
			if err != nil || len(list) != 1 {
				t.Errorf("%+v, %v", list, err)
			} else if err := b.Cancel(me, list[0].ID); err != nil {
				t.Error(err)
			}
		}
		b = s.bed(t, t.TempDir(), Limits{}, func(p *Parts) { p.Caller = hesitant{s, cancel} })
		b.Start()
		got := b.ends(t, b.begin(t, planned(plan)))
		b.movers.Wait()
		if got.State != flows.Cancelled || s.called() != "a" {
			t.Errorf("%s: it is %s, and calls %q", plan, got.State, s.called())
		}
	}
}

// TestCancelRace cancels runs in a loop while they make calls, wait, and are answered, all at the same time: after each
// acknowledgement no call of the run begins with a context that is not done.
func TestCancelRace(t *testing.T) {
	var mu sync.Mutex
	acknowledged := make(map[string]bool)
	var s *script
	s = said(func(ctx context.Context, c Call) (Result, error) {
		mu.Lock()
		late := acknowledged[c.Run]
		mu.Unlock()
		if late && ctx.Err() == nil {
			t.Errorf("run %s makes call %d after it was cancelled", c.Run, c.Turn)
		}
		if c.Turn%3 == 2 && !c.Asked {
			id := fmt.Sprint(c.Run, c.Turn)
			go s.yes(id) // before or after the run waits for it
			return Result{Waits: id}, nil
		}
		return good(`"value"`), nil
	})
	b := s.bed(t, t.TempDir(), Limits{})
	b.Start()
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			plan := planned("a wb c", "c default> a")
			plan.Flow.Most = flow.MaxMost
			id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: plan, Label: gate.Start})
			if err != nil {
				t.Error(err)
				return
			}
			steps := 0
			b.until(t, id, func(s flows.Status) bool {
				steps += len(s.Trace) + s.Dropped
				return steps >= i
			})
			if err := b.Cancel(me, id); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			acknowledged[id] = true
			mu.Unlock()
		})
	}
	all.Wait()
	b.movers.Wait()
	list, err := b.List(me)
	if err != nil || len(list) != 24 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	for _, got := range list {
		if got.State != flows.Cancelled {
			t.Errorf("%s is %s: %q", got.ID, got.State, got.Reason)
		}
	}
	if len(b.waits) != 0 || len(b.moving) != 0 {
		t.Errorf("%d wait, %d move", len(b.waits), len(b.moving))
	}
}

// TestDismiss: the runs of a client that is not declared any more are cancelled, wherever they are; those of others go
// on.
func TestDismiss(t *testing.T) {
	s := asks()
	b := s.bed(t, t.TempDir(), Limits{})
	b.Start()
	mine := b.begin(t, planned("a"))
	b.until(t, mine, rests)
	other := Who{Client: "other", Session: "default"}
	theirs, err := b.Begin(New{Client: other.Client, Session: other.Session, Plan: planned("a"), Label: gate.Start})
	if err != nil {
		t.Fatal(err)
	}
	b.movers.Wait()
	if err := b.Dismiss(func(client, _ string) bool { return client != me.Client }); err != nil {
		t.Fatal(err)
	}
	if got := b.rest(t, mine); got.State != flows.Cancelled || !strings.HasPrefix(got.Reason, "its client, or the token") {
		t.Errorf("it is %s: %q", got.State, got.Reason)
	}
	if got, err := b.Show(other, theirs); err != nil || got.State != flows.Waiting {
		t.Errorf("another's is %s, %v", got.State, err)
	}
	if len(b.waits) != 1 || len(s.stopped) != 1 {
		t.Errorf("%d wait, and the caller was told %q", len(b.waits), s.stopped)
	}
}

// TestCancelAfterAWrite: of a run that is cancelled before what a call that writes has made of it is written, it is
// known all the same that the call was carried out: nothing of it is in doubt after a restart.
func TestCancelAfterAWrite(t *testing.T) {
	dir := t.TempDir()
	s := said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
	b := s.bed(t, dir, Limits{})
	b.disk.commit = func(moment string) {
		if moment != "before settle" {
			return
		}
		b.disk.commit = nil
		list, err := b.disk.heads("true") // of another process, as it were: the lock is held
		if err != nil || len(list) != 1 {
			t.Errorf("%+v, %v", list, err)
			return
		}
		if err := b.disk.end(list[0].id, standing{state: flows.Cancelled, reason: "cancelled"}, 1); err != nil {
			t.Error(err)
		}
	}
	b.Start()
	id := b.begin(t, planned("wa b"))
	b.movers.Wait()
	b.end()
	b = s.bed(t, dir, Limits{})
	got, err := b.Show(me, id)
	known := got.State == flows.Cancelled && got.Reason == "cancelled" && len(got.Trace) == 1
	if err != nil || !known || s.called() != "wa" {
		t.Errorf("it is %s: %q, with %d steps, and calls %q; %v", got.State, got.Reason, len(got.Trace), s.called(), err)
	}
}
