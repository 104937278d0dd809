package runs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// asks is a node that needs an approval for each call, whose id names the turn and how often it was asked for.
func asks() *script {
	var mu sync.Mutex
	n := make(map[int]int)
	return said(func(_ context.Context, c Call) (Result, error) {
		if c.Asked {
			return good(`"value"`), nil
		}
		mu.Lock()
		defer mu.Unlock()
		n[c.Turn]++
		return Result{Verdict: gate.Ask, Waits: fmt.Sprintf("approval-%d-%d", c.Turn, n[c.Turn])}, nil
	})
}

// TestWaits: a run that waits goes on when its approval is answered, with the same call, and waits for itself at the
// next turn. It is in no goroutine's hands meanwhile.
func TestWaits(t *testing.T) {
	s := asks()
	b := s.bed(t, t.TempDir(), Limits{})
	b.Start()
	id := b.begin(t, planned("wa=x b<x"))
	for turn := range 2 {
		approval := fmt.Sprintf("approval-%d-1", turn)
		got := b.until(t, id, func(s flows.Status) bool { return s.Approval == approval })
		if got.State != flows.Waiting || got.At != []string{"wa", "b"}[turn] {
			t.Fatalf("it is %s at %q", got.State, got.At)
		}
		b.movers.Wait()
		if len(b.moving) != 0 || len(b.waits) != 1 {
			t.Errorf("turn %d: %d runs move, %d wait", turn, len(b.moving), len(b.waits))
		}
		if !s.yes(approval) {
			t.Fatalf("nobody waits for %s", approval)
		}
	}
	if got := b.ends(t, id); got.State != flows.Done || len(got.Trace) != 2 {
		t.Errorf("it is %s: %q, with %d steps", got.State, got.Reason, len(got.Trace))
	}
	if calls := s.called(); calls != "wa wa b b" {
		t.Errorf("it calls %q", calls)
	}
	for i, c := range s.calls {
		if c.Turn != i/2 || c.Asked != (i%2 == 1) || string(c.Arguments) != string(s.calls[i/2*2].Arguments) {
			t.Errorf("call %d: %+v", i, c)
		}
	}
}

// TestWaitsOverRestart: after a restart a run that waits asks again, keeps its label, and goes on after the answer.
func TestWaitsOverRestart(t *testing.T) {
	dir := t.TempDir()
	s := asks()
	b := s.bed(t, dir, Limits{})
	b.Start()
	label := gate.Label{Confidentiality: gate.Regulated, Integrity: gate.Raw}
	id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned("wa b"), Label: label})
	if err != nil {
		t.Fatal(err)
	}
	b.until(t, id, rests)
	b.end()
	if s.yes("approval-0-1") {
		t.Error("a Runner that has ended waits for an approval")
	}
	b = s.bed(t, dir, Limits{})
	if len(s.calls) != 1 {
		t.Error("a run goes on before Start")
	}
	b.Start()
	b.until(t, id, func(s flows.Status) bool { return s.Approval == "approval-0-2" })
	b.movers.Wait()
	s.yes("approval-0-2")
	b.until(t, id, func(s flows.Status) bool { return s.Approval == "approval-1-1" })
	if calls := s.called(); calls != "wa wa wa b" {
		t.Errorf("it calls %q", calls)
	}
	for i, c := range s.calls {
		if c.Floor != label || c.Asked != (i == 2) {
			t.Errorf("call %d: the floor is %s, asked %v", i, c.Floor, c.Asked)
		}
	}
}

// TestTakenAway: a value that a later call takes out of the store is not there again after a restart.
func TestTakenAway(t *testing.T) {
	dir := t.TempDir()
	var s *script
	s = said(func(_ context.Context, c Call) (Result, error) {
		switch id := c.Plan.Steps[c.Step].ID; {
		case id == "a" && c.Turn > 0:
			return good(`null`), nil
		case id == "b" && c.Turn == 1:
			return bad(failure.Timeout, true), nil
		case id == "b" && !c.Asked:
			return Result{Waits: fmt.Sprint("approval ", len(s.calls))}, nil
		}
		return good(`"value"`), nil
	})
	b := s.bed(t, dir, Limits{})
	b.Start()
	id := b.begin(t, planned("a b c<a", "b timeout> a"))
	b.until(t, id, rests)
	b.movers.Wait()
	b.stored(t, 0)
	b.end()
	b = s.bed(t, dir, Limits{})
	b.Start()
	b.movers.Wait()
	got := b.until(t, id, func(s flows.Status) bool { return s.Approval == "approval 5" })
	s.yes(got.Approval)
	if got = b.ends(t, id); got.Reason != `step "c": Missing required 'a' in shared store` {
		t.Errorf("it is %s: %q", got.State, got.Reason)
	}
}

// TestAnsweredInVain: a call that still waits after its answer does not go round without an end.
func TestAnsweredInVain(t *testing.T) {
	for name, c := range map[string]struct {
		id   func(call int) string
		want int // calls
	}{
		"for the same approval": {func(int) string { return "one" }, 2},
		"for another each time": {func(call int) string { return fmt.Sprint("approval ", call) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var s *script
			s = said(func(context.Context, Call) (Result, error) { return Result{Waits: c.id(len(s.calls))}, nil })
			b := s.bed(t, t.TempDir(), Limits{Asks: 3})
			b.Start()
			id := b.begin(t, planned("a b"))
			for {
				b.until(t, id, rests)
				b.movers.Wait()
				got := b.rest(t, id)
				if got.State == flows.Failed {
					break
				}
				s.yes(got.Approval)
			}
			if len(s.calls) != c.want || len(b.waits) != 0 || len(s.waiting) != 0 {
				t.Errorf("%d calls, %d wait, %d for the caller", len(s.calls), len(b.waits), len(s.waiting))
			}
		})
	}
}

// TestWaitsTooLong: nobody answers, or the owner says nothing, for longer than a run may wait. A restart does not begin
// the time anew.
func TestWaitsTooLong(t *testing.T) {
	dir := t.TempDir()
	s := asks()
	b := s.bed(t, dir, Limits{Wait: time.Hour})
	b.Start()
	id := b.begin(t, planned("wa b"))
	b.until(t, id, rests)
	b.end()
	b = s.bed(t, dir, Limits{Wait: time.Hour})
	b.clock.move(40 * time.Minute)
	b.Start()
	b.until(t, id, func(s flows.Status) bool { return s.Approval == "approval-0-2" })
	b.movers.Wait()
	b.clock.move(20 * time.Minute)
	if got, _ := b.Show(me, id); got.State != flows.Waiting {
		t.Errorf("after an hour it is %s: %q", got.State, got.Reason)
	}
	b.clock.move(1)
	s.yes("approval-0-2") // too late
	b.movers.Wait()
	got, err := b.Show(me, id)
	if err != nil || got.State != flows.Failed || got.Reason != "nobody answered its approval within 1 h" {
		t.Errorf("it is %s: %q, %v", got.State, got.Reason, err)
	}
	if calls := s.called(); calls != "wa wa" {
		t.Errorf("it calls %q", calls)
	}
	if !slices.Equal(s.stopped[len(s.stopped)-1:], []string{"approval-0-2"}) {
		t.Errorf("the caller was told %q", s.stopped)
	}
}

// doubtful is a run whose gateway was killed while it made the call of a step that writes.
func doubtfulRun(t *testing.T, l Limits, lines ...string) (*bed, *script, string) {
	t.Helper()
	dir := t.TempDir()
	stuck := make(chan struct{})
	s := said(func(ctx context.Context, c Call) (Result, error) {
		close(stuck)
		<-ctx.Done()
		return Result{Sent: true, Error: "given up"}, nil
	})
	b := s.bed(t, dir, l)
	b.Start()
	id := b.begin(t, planned(lines...))
	<-stuck
	b.end()
	s = said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
	b = s.bed(t, dir, l)
	b.Start()
	if got := b.rest(t, id); got.State != flows.Unknown || got.At != "wa" || !strings.Contains(got.Reason, "not known") {
		t.Fatalf("it is %s at %q: %q", got.State, got.At, got.Reason)
	}
	return b, s, id
}

// TestUnknown: a run whose last call has an unknown outcome goes on only as its owner says.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		plan   string
		past   string
		calls  string
		reason string
	}{
		"it is done":                   {"wa b", PastDone, "b", ""},
		"it is to be called again":     {"wa b", PastAgain, "wa b", ""},
		"the last one is done":         {"wa", PastDone, "", "as its owner says"},
		"the last one is called again": {"wa", PastAgain, "wa", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b, s, id := doubtfulRun(t, Limits{}, c.plan)
			if err := b.Resume(me, id, "gone"); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "done or again") {
				t.Errorf("resuming it as %q: %v", "gone", err)
			}
			if err := b.Resume(me, id, c.past); err != nil {
				t.Fatal(err)
			}
			if got := b.rest(t, id); got.State != flows.Done || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("it is %s: %q", got.State, got.Reason)
			}
			if calls := s.called(); calls != c.calls {
				t.Errorf("it calls %q, want %q", calls, c.calls)
			}
			for i, call := range s.calls {
				if call.Turn != i+1 || call.Asked {
					t.Errorf("call %d is of turn %d, asked %v", i, call.Turn, call.Asked)
				}
			}
			if err := b.Resume(me, id, c.past); !errors.Is(err, ErrState) {
				t.Errorf("resuming it again: %v", err)
			}
		})
	}
	t.Run("it is cancelled", func(t *testing.T) {
		b, s, id := doubtfulRun(t, Limits{}, "wa b")
		if err := b.Cancel(me, id); err != nil {
			t.Fatal(err)
		}
		got := b.rest(t, id)
		if got.State != flows.Cancelled || !strings.Contains(got.Reason, "not known") || s.called() != "" {
			t.Errorf("it is %s: %q, and calls %q", got.State, got.Reason, s.called())
		}
	})
	t.Run("its owner says nothing", func(t *testing.T) {
		b, s, id := doubtfulRun(t, Limits{}, "wa b")
		b.clock.move(8 * 24 * time.Hour)
		if err := b.Resume(me, id, PastAgain); !errors.Is(err, ErrState) {
			t.Errorf("resuming it after eight days: %v", err)
		}
		got := b.rest(t, id)
		if got.State != flows.Failed || !strings.Contains(got.Reason, "said nothing") || s.called() != "" {
			t.Errorf("it is %s: %q, and calls %q", got.State, got.Reason, s.called())
		}
	})
	t.Run("its plan is of another place", func(t *testing.T) {
		b, _, id := doubtfulRun(t, Limits{}, "wa b")
		if _, err := b.db.Exec("UPDATE runs SET plan = ?, step = 0 WHERE id = ?", []byte(`{"Steps":[]}`), id); err != nil {
			t.Fatal(err)
		}
		if err := b.Resume(me, id, PastDone); err == nil {
			t.Error("a run without a step goes on")
		}
	})
}

// TestReadAgain: a call that only reads, and was on its way when the gateway ended, is made again; not without an end,
// for it may be the one that ends the gateway.
func TestReadAgain(t *testing.T) {
	dir := t.TempDir()
	const times = 3
	calls := 0
	for i := range times + 2 {
		stuck := make(chan struct{})
		s := said(func(ctx context.Context, c Call) (Result, error) {
			if calls++; c.Plan.Steps[c.Step].ID == "b" {
				close(stuck)
				<-ctx.Done()
			}
			return good(`"value"`), nil
		})
		b := s.bed(t, dir, Limits{Restarts: times})
		b.Start()
		if i == 0 {
			b.begin(t, planned("wa b"))
		}
		if i == times+1 {
			list, err := b.List(me)
			if err != nil || len(list) != 1 {
				t.Fatalf("%+v, %v", list, err)
			}
			if got := list[0]; got.State != flows.Failed || !strings.Contains(got.Reason, "ended 4 times") {
				t.Errorf("it is %s: %q", got.State, got.Reason)
			}
			break
		}
		<-stuck
		b.end()
	}
	if calls != times+2 {
		t.Errorf("%d calls", calls)
	}
}

// TestClose: a call that is on its way when the Runner is closed has time to end, and the one after it does not begin.
func TestClose(t *testing.T) {
	dir := t.TempDir()
	begun, answer := make(chan struct{}), make(chan struct{})
	s := said(func(_ context.Context, c Call) (Result, error) {
		close(begun)
		<-answer
		return good(`"value"`), nil
	})
	b := s.bed(t, dir, Limits{})
	b.Start()
	id := b.begin(t, planned("wa wb"))
	w, err := b.Watch(me, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	<-begun
	done := make(chan struct{})
	go func() {
		b.Runner.Close(t.Context())
		close(done)
	}()
	for {
		if _, err = w.Next(t.Context()); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrClosed) {
		t.Errorf("who watches is told %v", err)
	}
	close(answer)
	<-done
	if _, err := b.as(me.Client, planned("a"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("beginning another: %v", err)
	}
	b.end()
	if s.called() != "wa" {
		t.Errorf("it calls %q", s.called())
	}
	s = said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
	b = s.bed(t, dir, Limits{})
	b.Start()
	if got := b.rest(t, id); got.State != flows.Done || len(got.Trace) != 2 || got.Trace[0].Action != flow.Default {
		t.Errorf("it is %s: %q, %+v", got.State, got.Reason, got.Trace)
	}
	if s.called() != "wb" {
		t.Errorf("and then %q", s.called())
	}
}
