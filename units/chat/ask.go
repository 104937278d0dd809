package chat

import (
	"context"
	"fmt"
	"time"
)

// planTime is how long a plan waits for the owner's word.
const planTime = 10 * time.Minute

// question has a model plan, and shows the plan when it is there.
func (t *Talk) question(ctx context.Context, words string) error {
	if t.Asker == nil {
		return t.say(ctx, `This conversation sets up services: "connect NAME". It answers no questions.`)
	}
	t.now.Lock()
	busy := t.now.planning
	if !busy {
		t.now.planning = true
	}
	t.now.Unlock()
	if busy {
		return t.say(ctx, "The model still plans your question before. Ask again when its plan is there.")
	}
	t.work.Go(func() {
		p, err := t.Asker.Plan(ctx, words)
		t.now.Lock()
		t.now.planning = false
		t.now.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.say(ctx, err.Error())
		default:
			t.propose(ctx, p)
		}
	})
	return nil
}

// propose shows a plan. The owner's word carries it out only if the gate asks nobody. Otherwise the run begins, and
// waits where a person approves it, before its first call.
func (t *Talk) propose(ctx context.Context, p Plan) {
	switch {
	case p.Flow == nil:
		t.say(ctx, p.Text)
	case !p.Free:
		const words = "\n\nThe gate wants a person's approval before the first step. You cannot give it here."
		if t.shown(ctx, p.Text+words) {
			t.run(ctx, p)
		}
	default:
		t.now.Lock()
		t.now.drops++
		turn, showing := t.now.drops, make(chan struct{})
		t.now.plan, t.now.showing = nil, showing
		t.now.Unlock()
		whole := t.shown(ctx, p.Text+"\n\nCarry it out? Answer yes or no.")
		t.now.Lock()
		if whole && turn == t.now.drops {
			t.now.plan, t.now.until = &p, t.clock().Add(planTime)
		}
		t.now.Unlock()
		close(showing)
	}
}

// shown reports whether all of a plan was sent. Only then it may be carried out.
func (t *Talk) shown(ctx context.Context, text string) bool {
	if t.say(ctx, text) == nil {
		return true
	}
	t.say(ctx, "The plan could not be shown whole, so nothing is carried out. Ask again.")
	return false
}

// clock is the time.
func (t *Talk) clock() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return time.Now()
}

// drop ends the plan that waits for the owner's word, or is being shown.
func (t *Talk) drop() {
	t.now.Lock()
	defer t.now.Unlock()
	t.now.plan = nil
	t.now.drops++
}

// agree carries out the plan that waits for the owner's word. Each plan is carried out once.
func (t *Talk) agree(ctx context.Context) error {
	p := t.taken(ctx)
	if p == nil {
		return t.say(ctx, "No plan waits for your answer. A plan waits for ten minutes, and ends with any other message. "+
			"Approvals of the gate are given elsewhere: pfar approvals.")
	}
	t.run(ctx, *p)
	return nil
}

// refuse drops the plan that waits for the owner's word. otherwise is said if there is none.
func (t *Talk) refuse(ctx context.Context, otherwise string) error {
	if t.taken(ctx) == nil {
		return t.say(ctx, otherwise)
	}
	return t.say(ctx, "Nothing was carried out.")
}

// taken is the plan that waits, which no longer waits then. The owner may answer a plan before the platform has said
// that it was sent.
func (t *Talk) taken(ctx context.Context) *Plan {
	t.now.Lock()
	showing := t.now.showing
	t.now.Unlock()
	if showing != nil {
		select {
		case <-showing:
		case <-ctx.Done():
		}
	}
	t.now.Lock()
	defer t.now.Unlock()
	p := t.now.plan
	t.now.plan = nil
	if p != nil && !t.clock().Before(t.now.until) {
		return nil
	}
	return p
}

func (t *Talk) run(ctx context.Context, p Plan) {
	t.now.Lock()
	full := t.now.runs >= maxRuns
	if !full {
		t.now.runs++
	}
	t.now.Unlock()
	if full {
		t.say(ctx, fmt.Sprintf("Nothing was carried out: %d runs of this conversation go on. See pfar flow list.", maxRuns))
		return
	}
	t.work.Go(func() {
		answer, err := t.Asker.Run(ctx, p, func(text string) { t.say(ctx, text) })
		t.now.Lock()
		t.now.runs--
		t.now.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			t.say(ctx, err.Error())
		default:
			t.say(ctx, answer)
		}
	})
}
