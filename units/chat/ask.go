package chat

import (
	"context"
	"fmt"
	"time"
)

// planTime is how long a plan waits for the owner's word.
const planTime = 10 * time.Minute

// question has a model plan, and shows the plan when it is there.
func (t *Talk) question(ctx context.Context, m Message, words string) error {
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
	return t.later(ctx, m, planning, func() answer {
		p, err := t.Asker.Plan(ctx, words)
		t.now.Lock()
		t.now.planning = false
		t.now.Unlock()
		if err != nil {
			return answer{text: err.Error()}
		}
		return t.propose(ctx, m, p)
	})
}

// propose shows a plan. The owner's word carries it out only if the gate asks nobody. Otherwise the run begins, and
// waits where a person approves it, before its first call.
func (t *Talk) propose(ctx context.Context, m Message, p Plan) answer {
	switch {
	case p.Flow == nil:
		return answer{text: p.Text}
	case !p.Free:
		return answer{
			text: p.Text + "\n\nThe gate wants a person's approval before the first step. You cannot give it here.",
			then: func(failed error) {
				if t.shown(ctx, failed) {
					t.run(ctx, m, p)
				}
			},
		}
	}
	t.now.Lock()
	t.now.drops++
	turn, showing := t.now.drops, make(chan struct{})
	t.now.plan, t.now.showing = nil, showing
	t.now.Unlock()
	return answer{text: p.Text + "\n\nCarry it out? Answer yes or no.", then: func(failed error) {
		whole := t.shown(ctx, failed)
		t.now.Lock()
		if whole && turn == t.now.drops {
			t.now.plan, t.now.until = &p, t.clock().Add(planTime)
		}
		t.now.Unlock()
		close(showing)
	}}
}

// shown reports whether all of a plan was sent, and tells the owner if not. Only then it may be carried out.
func (t *Talk) shown(ctx context.Context, failed error) bool {
	if failed != nil {
		t.say(ctx, "The plan could not be shown whole, so nothing is carried out. Ask again.")
	}
	return failed == nil
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
func (t *Talk) agree(ctx context.Context, m Message) error {
	p := t.taken(ctx)
	if p == nil {
		return t.say(ctx, "No plan waits for your answer. A plan waits for ten minutes, and ends with any other message. "+
			"Approvals of the gate are given elsewhere: pfar approvals.")
	}
	return t.run(ctx, m, *p)
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

func (t *Talk) run(ctx context.Context, m Message, p Plan) error {
	t.now.Lock()
	full := t.now.runs >= maxRuns
	if !full {
		t.now.runs++
	}
	t.now.Unlock()
	if full {
		return t.say(ctx, fmt.Sprintf("Nothing was carried out: %d runs of this conversation go on. See pfar flow list.",
			maxRuns))
	}
	return t.later(ctx, m, running, func() answer {
		text, err := t.Asker.Run(ctx, p, func(text string) { t.say(ctx, text) })
		t.now.Lock()
		t.now.runs--
		t.now.Unlock()
		if err != nil {
			return answer{text: err.Error()}
		}
		return answer{text: text}
	})
}
