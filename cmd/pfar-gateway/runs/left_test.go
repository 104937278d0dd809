package runs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/flows"
)

// TestLeft has each call of a run of ten steps end with pfar. The next gateway makes it again if it only reads, or was
// not sent. One that writes and was sent has an unknown outcome, and is not made again.
func TestLeft(t *testing.T) {
	steps := strings.Fields(tenSteps)
	for _, limits := range []Limits{{Late: -1}, {}} {
		for left, id := range steps {
			for _, sent := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, sent %t, late %v", id, sent, limits.Late), func(t *testing.T) {
					dir, at := t.TempDir(), make(chan struct{})
					s := said(func(_ context.Context, c Call) (Result, error) {
						if c.Step == left {
							defer close(at)
							return Result{Sent: sent, Error: "no word of this is kept"}, ErrLeft
						}
						return good(`"said"`), nil
					})
					b := s.bed(t, dir, limits)
					b.Start()
					run := b.begin(t, planned(tenSteps))
					<-at
					b.Close(t.Context())
					b.end()
					s.answer = func(context.Context, Call) (Result, error) { return good(`"said"`), nil }
					b = s.bed(t, dir, limits)
					b.Start()
					is, want := b.rest(t, run), flows.Done
					if sent && strings.HasPrefix(id, "w") {
						want = flows.Unknown
					}
					if is.State != want || strings.Contains(is.Reason, "no word") {
						t.Fatalf("left at %s, sent: %t: it is %s at %q, want %s: %s", id, sent, is.State, is.At, want, is.Reason)
					}
					if want == flows.Unknown {
						if is.At != id || !strings.Contains(is.Reason, "not known") {
							t.Errorf("it is unknown at %q: %s", is.At, is.Reason)
						}
						if err := b.Resume(me, run, PastDone); err != nil {
							t.Fatal(err)
						}
						b.ends(t, run)
					}
					calls := make(map[string]int)
					for _, step := range strings.Fields(s.called()) {
						calls[step]++
					}
					for _, step := range steps {
						n, again := calls[step], step == id && want == flows.Done
						if n < 1 || again && n != 2 || !again && strings.HasPrefix(step, "w") && n != 1 {
							t.Errorf("left at %s, sent: %t: %s was called %d times", id, sent, step, n)
						}
					}
				})
			}
		}
	}
}

// TestLeftIsNoEdge: a call that ends with pfar takes no edge, and one whose server has died by itself does.
func TestLeftIsNoEdge(t *testing.T) {
	dir, at := t.TempDir(), make(chan struct{})
	end := ErrLeft
	s := said(func(_ context.Context, c Call) (Result, error) {
		if c.Plan.Steps[c.Step].ID != "a" {
			return good(`"said"`), nil
		}
		defer close(at)
		return bad(failure.Died, true), end
	})
	b := s.bed(t, dir, Limits{})
	b.Start()
	run := b.begin(t, planned("a b c", "a server_died> c", "b -"))
	<-at
	b.Close(t.Context())
	b.end()
	if got := s.called(); got != "a" {
		t.Errorf("called: %s", got)
	}
	at, end = make(chan struct{}), nil
	b = s.bed(t, dir, Limits{})
	b.Start()
	if is := b.ends(t, run); is.State != flows.Done || s.called() != "a a c" {
		t.Errorf("it is %s, and has called %s: %s", is.State, s.called(), is.Reason)
	}
}
