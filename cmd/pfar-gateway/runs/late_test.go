package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// changes counts the changes on the disk, by name.
type changes struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *changes) heard(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[name]++
}

func (c *changes) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

// TestReadsShareAChange: what calls that only read make of a run is one change on the disk, with all of its trace, and
// with the beginning of a call that writes.
func TestReadsShareAChange(t *testing.T) {
	for plan, want := range map[string]string{
		"a b c d e":   "commence 0, settle 1",
		"a b c wd":    "commence 1, settle 1",
		"wa b wc d e": "commence 2, settle 3",
		"a=x b<x wc":  "commence 1, settle 1",
	} {
		s := said(func(context.Context, Call) (Result, error) { return good(`"value"`), nil })
		b := s.bed(t, t.TempDir(), Limits{Late: time.Hour})
		var all changes
		b.disk.commit = all.heard
		b.Start()
		got := b.rest(t, b.begin(t, planned(plan)))
		var steps []string
		for _, step := range got.Trace {
			steps = append(steps, step.Step)
		}
		words := strings.Fields(s.called())
		if got.State != flows.Done || !slices.Equal(steps, words) || len(steps) != strings.Count(plan, " ")+1 {
			t.Errorf("%s: it is %s (%s) with the steps %v", plan, got.State, got.Reason, steps)
		}
		is := fmt.Sprintf("commence %d, settle %d", all.of("after commence"), all.of("after settle"))
		if is != want {
			t.Errorf("%s: it makes the changes %s, want %s", plan, is, want)
		}
	}
}

// TestLateIsBounded: the disk never lacks more of a run than so many calls, or bytes.
func TestLateIsBounded(t *testing.T) {
	large := `"` + strings.Repeat("x", bytesUnsaved) + `"`
	for name, c := range map[string]struct {
		plan, value string
		settled     int
	}{
		"calls": {strings.TrimSpace(strings.Repeat("a ", mostUnsaved+1)), `1`, 2},
		"bytes": {"a b<a c<b d<c", large, 4},
	} {
		ids := strings.Fields(c.plan)
		for i := range ids {
			if name == "calls" {
				ids[i] = fmt.Sprint("a", i)
			}
		}
		s := said(func(context.Context, Call) (Result, error) { return good(c.value), nil })
		b := s.bed(t, t.TempDir(), Limits{Late: time.Hour})
		var all changes
		b.disk.commit = all.heard
		b.Start()
		p := planned(strings.Join(ids, " "))
		p.Flow.Most = 2 * len(ids)
		got := b.rest(t, b.begin(t, p))
		if n := all.of("after settle"); got.State != flows.Done || n != c.settled || len(got.Trace) != len(ids) {
			t.Errorf("%s: it is %s (%s) with %d steps, written %d times", name, got.State, got.Reason, len(got.Trace), n)
		}
	}
}

// TestLateIsTold: whoever follows a run hears of a call that only reads while the next one is still on its way.
func TestLateIsTold(t *testing.T) {
	end := make(chan struct{})
	s := said(func(_ context.Context, c Call) (Result, error) {
		if c.Turn == 1 {
			<-end
		}
		return good(`1`), nil
	})
	b := s.bed(t, t.TempDir(), Limits{Late: time.Millisecond})
	b.Start()
	id := b.begin(t, planned("a b"))
	got := b.until(t, id, func(s flows.Status) bool { return s.At == "b" })
	close(end)
	if got.State != flows.Running {
		t.Errorf("it is %s", got.State)
	}
	b.rest(t, id)
}

// TestLateIsTooMuch: a run fails whose values have no place, also if that turns out while its next call is on its way.
// That one is given up, and no further call begins.
func TestLateIsTooMuch(t *testing.T) {
	for name, plan := range map[string]string{
		"while another is on its way": "a b<a c", "before one that writes": "a wb<a c",
	} {
		late := time.Hour
		if !strings.Contains(plan, "w") {
			late = time.Millisecond
		}
		s := said(func(ctx context.Context, c Call) (Result, error) {
			if c.Turn == 1 {
				<-ctx.Done()
			}
			return good(`"` + strings.Repeat("x", 4000) + `"`), nil
		})
		b := s.bed(t, t.TempDir(), Limits{Disk: Bound{All: 3000, Client: 3000}, Late: late})
		b.Start()
		id, err := b.Begin(New{Client: me.Client, Session: me.Session, Plan: planned(plan), Label: gate.Start,
			Store: map[string]json.RawMessage{"x": json.RawMessage(`1`)}})
		if err != nil {
			t.Fatal(err)
		}
		got := b.rest(t, id)
		b.movers.Wait()
		if got.State != flows.Failed || !strings.Contains(got.Reason, `step "a": keeping its result`) {
			t.Errorf("%s: it is %s: %q", name, got.State, got.Reason)
		}
		if calls := s.called(); strings.Contains(calls, "c") || strings.Contains(calls, "w") {
			t.Errorf("%s: it calls %s", name, calls)
		}
	}
}

// TestDecidedMeanwhile: that a call that writes has begun is written while the gate decides about it. Nothing is sent
// before that is on the disk, and nothing at all if it cannot be written.
func TestDecidedMeanwhile(t *testing.T) {
	for name, closes := range map[string]bool{"it is written": false, "it cannot be": true} {
		t.Run(name, func(t *testing.T) {
			decides := make(chan struct{})
			var b *bed
			var sent bool
			s := &unready{script: said(nil), answer: func(c Call) Result {
				close(decides) // the gate decides, and the disk waits for that
				if err := c.Begun(); err != nil {
					return Result{Error: err.Error()}
				}
				sent = true
				return good(`1`)
			}}
			b = s.script.bed(t, t.TempDir(), Limits{}, func(p *Parts) { p.Caller = s })
			b.disk.commit = func(moment string) {
				if moment == "before commence" {
					<-decides
				}
			}
			if closes {
				if _, err := b.db.Exec(`CREATE TRIGGER no BEFORE UPDATE OF sent ON runs WHEN NEW.sent = 1
					BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`); err != nil {
					t.Fatal(err)
				}
			}
			b.Start()
			id := b.begin(t, planned("wa"))
			b.movers.Wait()
			got, err := b.Show(me, id)
			if err != nil {
				t.Fatal(err)
			}
			want := flows.Done
			if closes {
				want = flows.Running // it goes on after a restart
			}
			if got.State != want || sent == closes {
				t.Errorf("it is %s (%s), and was sent: %v", got.State, got.Reason, sent)
			}
		})
	}
	if err := (&Call{}).Begun(); err == nil {
		t.Error("a call that no run has begun may be sent")
	}
}

// unready is a script whose calls say themselves when they are about to be sent.
type unready struct {
	*script
	answer func(c Call) Result
}

func (u *unready) Call(_ context.Context, c Call) (Result, error) { return u.answer(c), nil }

// TestWatchedOnce: whoever follows a run hears of each way in which it stands once, however often it is said to have
// changed.
func TestWatchedOnce(t *testing.T) {
	b := asks().bed(t, t.TempDir(), Limits{})
	b.Start()
	id := b.begin(t, planned("a"))
	w, err := b.Watch(me, id)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for {
		s, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.State == flows.Waiting {
			break
		}
	}
	b.movers.Wait()
	b.hub.change(id)
	told := make(chan flows.Status)
	go func() {
		s, _ := w.Next(t.Context())
		told <- s
	}()
	for len(w.changed) > 0 { // until it has read that
		runtime.Gosched()
	}
	if err := b.Cancel(me, id); err != nil {
		t.Fatal(err)
	}
	if s := <-told; s.State != flows.Cancelled {
		t.Errorf("it hears again that the run is %s", s.State)
	}
}
