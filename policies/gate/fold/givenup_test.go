package fold

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// countdown is a context that is done after it was asked so often. asked counts on.
type countdown struct {
	context.Context
	left, asked int
}

func (c *countdown) Err() error {
	c.asked++
	if c.asked > c.left {
		return context.Canceled
	}
	return nil
}

// TestLargestIsBounded: a plan of as many steps and edges as a flow may have, each of a server of its own that keeps
// what it is given and shares a folder with the others, is folded within a few looks at each of its steps. A fold that
// nobody waits for any more ends at the next look, and no step is reached.
func TestLargestIsBounded(t *testing.T) {
	const n = 256
	random := rand.New(rand.NewPCG(3, 4))
	session := gate.Session{Profile: "balanced", Label: gate.Start, Sources: []gate.Source{}}
	most := 0
	for range 2 {
		steps := plan(random, n)
		for i := range steps {
			f := &steps[i].Call.Facts
			steps[i].Call.Server = fmt.Sprint("s", i)
			f.Effect = gate.Reversible
			if i < n-2 { // what is worst comes last, and goes back by the edges
				f.Output = gate.Start
			}
			steps[i].Holds = []gate.Place{{Name: "/shared", Writes: i%2 == 0}}
			steps[i].Next = []int{min(i+1, n-1), random.IntN(n), random.IntN(n), random.IntN(i + 1)}
		}
		judged, looks := judge(t.Context(), shipped(t), session, steps)
		if most = max(most, looks); !judged[n-1].Reached() {
			t.Fatal("no path leads to the last step")
		}
		ctx := &countdown{Context: t.Context(), left: 1 << 30}
		Steps(ctx, shipped(t), session, steps)
		all := ctx.asked
		if all < looks+n {
			t.Fatalf("in %d looks and %d decisions, it looks up %d times", looks, n, all)
		}
		for left := 0; left < all; left += 1 + all/3 {
			ctx := &countdown{Context: t.Context(), left: left}
			judged, looks := judge(ctx, shipped(t), session, steps)
			if looks > left {
				t.Fatalf("given up after %d of %d, it looks at steps %d times", left, all, looks)
			}
			for i, j := range judged {
				if j.Reached() || j.Decision.Verdict != gate.Deny {
					t.Fatalf("given up after %d of %d, step %d is %+v", left, all, i, j)
				}
			}
			if more := ctx.asked - left; more > 2 {
				t.Errorf("given up after %d of %d, it looks up %d times more", left, all, more)
			}
		}
	}
	if most < n || most > 16*n {
		t.Errorf("%d looks at %d steps", most, n)
	}
}
