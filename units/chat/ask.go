package chat

import (
	"context"
	"fmt"
)

// question has a model plan, and shows the plan when it is there.
func (t *Talk) question(ctx context.Context, words string) error {
	if t.Asker == nil {
		return t.say(ctx, `This conversation sets up services: "connect NAME". It answers no questions.`)
	}
	t.now.Lock()
	busy := t.now.planning
	if !busy {
		t.now.planning, t.now.plan = true, nil
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
		t.say(ctx, p.Text+"\n\nThe gate wants a person's approval before the first step. You cannot give it here.")
		t.run(ctx, p)
	default:
		t.now.Lock()
		t.now.plan = &p
		t.now.Unlock()
		t.say(ctx, p.Text+"\n\nCarry it out? Answer yes or no.")
	}
}

// agree carries out the plan that waits for the owner's word. Each plan is carried out once.
func (t *Talk) agree(ctx context.Context) error {
	p := t.taken()
	if p == nil {
		return t.say(ctx, "No plan waits for your answer. Approvals of the gate are given elsewhere: pfar approvals.")
	}
	t.run(ctx, *p)
	return nil
}

// refuse drops the plan that waits for the owner's word. otherwise is said if there is none.
func (t *Talk) refuse(ctx context.Context, otherwise string) error {
	if t.taken() == nil {
		return t.say(ctx, otherwise)
	}
	return t.say(ctx, "Nothing was carried out.")
}

// taken is the plan that waits, which no longer waits then.
func (t *Talk) taken() *Plan {
	t.now.Lock()
	defer t.now.Unlock()
	p := t.now.plan
	t.now.plan = nil
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
