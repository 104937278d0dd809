package chat

import (
	"context"
	"errors"
)

// Unanswered are the records of the messages whose answers come later.
type Unanswered struct{ kept[promise] }

// promise is a message that is to be answered.
type promise struct {
	ID   string    `json:"id"`
	Room string    `json:"room"`
	From string    `json:"from"`
	By   endeavour `json:"by"`
}

// endeavour is what has to end before a message can be answered.
type endeavour string

const (
	planning  endeavour = "plan"  // a model plans
	running   endeavour = "run"   // a plan is carried out
	settingUp endeavour = "setup" // a service is set up
)

// lost is what the owner reads when the process has ended that was to answer.
func (e endeavour) lost() string {
	switch e {
	case planning:
		return "pfar ended before it had a plan for your question, and the question is lost. Nothing was carried out. " +
			"Ask it again."
	case running:
		return "pfar ended while a plan of yours was carried out, and cannot tell you the result here. The run goes on by " +
			"itself: see pfar flow list, and pfar flow show RUN."
	case settingUp:
		return "pfar ended while it set up a service for you. See pfar status; if the service is not connected, send " +
			`"connect NAME" again.`
	}
	return "pfar ended before it had answered a message of yours. Send it again if you still want it."
}

// OpenUnanswered opens the directory, and makes it if it is missing. Only its owner may look into it.
func OpenUnanswered(dir string) (Unanswered, error) {
	r, err := openKept[promise](dir, "unanswered messages")
	return Unanswered{r}, err
}

// name is that of the answer, too: the same for the same message and endeavour, also in another process.
func (p promise) name() string { return string(p.By) + "-" + digest(p.Room, p.ID) }

func (p promise) in() string { return p.Room }

// answer is what is said to a message at last.
type answer struct {
	text string             // "": nothing
	then func(failed error) // what follows, with the reason why not all of the text was sent; nil: nothing
}

// later answers a message when an endeavour has ended. If this process ends before, the next one says so (Start). An
// error says that it would not.
func (t *Talk) later(ctx context.Context, m Message, by endeavour, end func() answer) error {
	p := promise{ID: m.ID, Room: m.Room, From: m.From, By: by}
	var unkept error
	if !t.Terminal {
		unkept = t.Unanswered.write(p)
	}
	t.work.Go(func() {
		a := end()
		if ctx.Err() != nil { // the next process answers
			return
		}
		var failed error
		if a.text != "" {
			failed = t.keep(ctx, p, a.text)
		}
		if failed == nil {
			t.answered(p)
		}
		if a.then != nil {
			a.then(failed)
		}
	})
	return unkept
}

// keep says the answer to a message. After a crash it may have been said before, and is not said twice then.
func (t *Talk) keep(ctx context.Context, p promise, text string) error {
	once, able := t.Platform.(Once)
	if !able {
		return t.say(ctx, text)
	}
	return once.SendOnce(ctx, t.Room, p.name(), visibly(text))
}

func (t *Talk) answered(p promise) error {
	if t.Terminal {
		return nil
	}
	return t.Unanswered.done(p)
}

// apologize answers the messages that an earlier process has left without an answer.
func (t *Talk) apologize(ctx context.Context) error {
	list, err := t.Unanswered.left(t.Room)
	for _, p := range list {
		sent := t.keep(ctx, p, p.By.lost())
		if sent == nil {
			sent = t.answered(p)
		}
		err = errors.Join(err, sent)
	}
	return err
}
