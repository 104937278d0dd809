package runs

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestWho: nobody but its own session and the operator sees, cancels or resumes a run, and who may not is told the same
// as of a run that there is not.
func TestWho(t *testing.T) {
	b, _, unknown := doubtfulRun(t, Limits{}, "wa b")
	strangers := map[string]Who{
		"nobody":                  {},
		"another client":          {Client: "other", Session: "default"},
		"another session":         {Client: "claude", Session: "other"},
		"no session":              {Client: "claude"},
		"no client":               {Session: "default"},
		"another session of none": {Session: "other"},
	}
	for name, who := range strangers {
		for _, id := range []string{unknown, "0000000000000000000"} {
			what := map[string]error{
				"shows it":    second2(b.Show(who, id)),
				"watches it":  third(b.Watch(who, id)),
				"cancels it":  b.Cancel(who, id),
				"resumes it":  b.Resume(who, id, PastDone),
				"calls again": b.Resume(who, id, PastAgain),
			}
			for does, err := range what {
				if !errors.Is(err, ErrUnknown) || err.Error() != `no such run: "`+id+`"` {
					t.Errorf("%s %s: %v", name, does, err)
				}
			}
		}
		if list, err := b.List(who); err != nil || len(list) != 0 {
			t.Errorf("%s lists %+v, %v", name, list, err)
		}
	}
	for name, who := range map[string]Who{"its session": me, "the operator": {Operator: true}} {
		if s, err := b.Show(who, unknown); err != nil || s.ID != unknown || s.State != flows.Unknown || s.Flow != "test" ||
			s.Client != me.Client || s.Session != me.Session || !s.Begun.Equal(b.clock.Now()) || s.Label != gate.Start {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if list, err := b.List(who); err != nil || len(list) != 1 {
			t.Errorf("%s lists %+v, %v", name, list, err)
		}
	}
	if err := b.Cancel(Who{Operator: true}, unknown); err != nil {
		t.Errorf("the operator cancels it: %v", err)
	}
}

func second2(_ flows.Status, err error) error { return err }
func third(_ *Watcher, err error) error       { return err }

// TestWatch: who watches a run is told of each step once, however slow he is, and then that it is over.
func TestWatch(t *testing.T) {
	goOn := make(chan struct{})
	s := said(func(context.Context, Call) (Result, error) {
		<-goOn
		return good(`"value"`), nil
	})
	b := s.bed(t, t.TempDir(), Limits{Trace: 3})
	b.Start()
	plan := planned("a b c d e f g h")
	id := b.begin(t, plan)
	quick, slow := watch(t, b, id), watch(t, b, id)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := quick.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := quick.Next(stopped); !errors.Is(err, context.Canceled) {
		t.Errorf("nothing has changed: %v", err)
	}
	seen := ""
	for over := false; !over; {
		if len(seen) < len(plan.Steps) {
			goOn <- struct{}{}
		}
		st, err := quick.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range st.Trace {
			seen += step.Step
		}
		if st.Dropped != 0 {
			t.Errorf("%d steps are kept no more", st.Dropped)
		}
		over = st.State == flows.Done
	}
	if seen != "abcdefgh" {
		t.Errorf("who is quick is told of %q", seen)
	}
	st, err := slow.Next(t.Context())
	if err != nil || len(st.Trace) != 3 || st.Trace[0].Step != "f" || st.Dropped != 5 || string(st.Result) != `"value"` {
		t.Errorf("who is slow is told %+v, %v", st, err)
	}
	for _, w := range []*Watcher{quick, slow} {
		if _, err := w.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v", err)
		}
		w.Close()
	}
	if len(b.hub.watchers) != 0 {
		t.Errorf("%d runs are watched", len(b.hub.watchers))
	}
}

func watch(t *testing.T, b *bed, id string) *Watcher {
	t.Helper()
	w, err := b.Watch(me, id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
