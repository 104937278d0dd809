package runs

import (
	"context"
	"slices"
	"testing"

	"github.com/pfar/pfar/policies/failure"
)

type hears func(string)

func (h hears) Over(id string) { h(id) }

// TestOver: whoever wants to hears of each run that is over, once, however it ended, and may give orders then.
func TestOver(t *testing.T) {
	over := make(chan string, 8)
	var b *bed
	s := said(func(_ context.Context, c Call) (Result, error) {
		switch c.Plan.Steps[c.Step].ID {
		case "fails":
			return bad(failure.Timeout, false), nil
		case "asks":
			return Result{ID: "call", Waits: "approval"}, nil
		}
		return good(`"value"`), nil
	})
	b = s.bed(t, t.TempDir(), Limits{}, func(p *Parts) {
		p.Over = hears(func(id string) {
			if _, err := b.Show(me, id); err != nil { // the lock is free
				t.Error(err)
			}
			over <- id
		})
	})
	b.Start()
	done, failed, waits := b.begin(t, planned("a b")), b.begin(t, planned("fails")), b.begin(t, planned("asks"))
	if got := []string{<-over, <-over}; !slices.Contains(got, done) || !slices.Contains(got, failed) {
		t.Errorf("%q are over, want %s and %s", got, done, failed)
	}
	b.rest(t, waits)
	if err := b.Cancel(me, waits); err != nil {
		t.Fatal(err)
	}
	if got := <-over; got != waits {
		t.Errorf("%s is over, want %s", got, waits)
	}
	b.movers.Wait()
	if len(over) > 0 {
		t.Errorf("%s is over once more", <-over)
	}
}
