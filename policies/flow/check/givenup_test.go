package check

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/flow"
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

// knot is a flow of as many steps, edges and names as a flow may have: each step leads to the next, and by three
// failures to any other one, and each reads what others write.
func knot() flow.Flow {
	random := rand.New(rand.NewPCG(1, 2))
	var steps []flow.Step
	for i := range maxSteps {
		s := flow.Step{Node: "big.x", Reads: map[string]string{}, Writes: map[string]string{}}
		for k := range maxWriters/maxSteps - 1 {
			s.Writes[fmt.Sprint("o", k)] = fmt.Sprintf("n%d.%d", i, k)
			s.Reads[fmt.Sprint("p", k)] = fmt.Sprintf("n%d.%d", (i*7+1)%maxSteps, k)
		}
		steps = append(steps, s)
	}
	f := chain(steps...)
	for i := range steps {
		for _, action := range flow.Actions()[1:4] {
			if len(f.Edges) < maxEdges {
				f.Edges = append(f.Edges, flow.Edge{
					From: steps[i].ID, To: steps[random.IntN(maxSteps)].ID, Action: action,
				})
			}
		}
	}
	return f
}

// TestLargestIsBounded: the paths of the largest flow are followed within as many steps along its edges as it has pairs
// of steps, and a check that nobody waits for any more ends at the next of them, whenever that is.
func TestLargestIsBounded(t *testing.T) {
	f := knot()
	nodes := wide()
	ctx := &countdown{Context: t.Context(), left: 1 << 30}
	c := begun(f, nodes)
	c.ctx = ctx
	if len(c.problems) > 0 {
		t.Fatalf("%+v", c.problems[0])
	}
	d := c.dataflow()
	d.check()
	if len(d.names) < maxWriters/2 || len(d.writers) > maxWriters {
		t.Fatalf("it has %d names and %d writers: it is not the largest", len(d.names), len(d.writers))
	}
	if n := d.paths.solved; n < maxSteps || n > maxSteps*maxSteps/16 {
		t.Errorf("%d states were found out", n)
	}
	if n := d.paths.found; n > maxSteps*maxEdges {
		t.Errorf("%d things were found out", n)
	}
	given := begun(f, nodes)
	given.ctx = &countdown{Context: t.Context()}
	late := given.dataflow()
	if late.check(); late.paths.solved != 0 {
		t.Errorf("nobody waits for it, and %d states were found out", late.paths.solved)
	}
	ctx = &countdown{Context: t.Context(), left: 1 << 30}
	Check(ctx, f, nodes)
	all := ctx.asked
	if all < d.paths.solved {
		t.Errorf("in %d steps of the check, it looks up %d times", d.paths.solved, all)
	}
	for left := 0; left < all; left += 1 + all/6 {
		ctx := &countdown{Context: t.Context(), left: left}
		p, problems := Check(ctx, f, nodes)
		if p != nil || len(problems) != 1 || !strings.Contains(problems[0].Text, "was not checked") {
			t.Fatalf("given up after %d of %d: %v, %+v", left, all, p, problems)
		}
		if more := ctx.asked - left; more > 8 { // once for each part of the check
			t.Errorf("given up after %d of %d, it looks up %d times more", left, all, more)
		}
	}
}
