package chat

import (
	"context"
	"fmt"
)

// question has a model plan, and shows the plan when it is there.
func (t *Talk) question(ctx context.Context, m Message, words string) error {
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
			then: func() { t.run(ctx, m, p) },
		}
	}
	t.now.Lock()
	t.now.plan = &p
	t.now.Unlock()
	return answer{text: p.Text + "\n\nCarry it out? Answer yes or no."}
}

// agree carries out the plan that waits for the owner's word. Each plan is carried out once.
func (t *Talk) agree(ctx context.Context, m Message) error {
	p := t.taken()
	if p == nil {
		return t.say(ctx, "No plan waits for your answer. Approvals of the gate are given elsewhere: pfar approvals.")
	}
	return t.run(ctx, m, *p)
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
