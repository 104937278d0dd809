package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/chat/meaning"
	"github.com/pfar/pfar/units/control"
)

// ErrStranger says that a message comes from somebody else than the owner, or from another room. pfar ignores it.
var ErrStranger = errors.New("the message does not come from the owner of this conversation")

// Talk is the conversation with one owner in one room. Its methods may run at the same time.
type Talk struct {
	Room, Owner string // Take accepts only messages of both; "" accepts none
	Platform    Platform
	Setups      Setups
	Asker       Asker
	Deletions   Deletions
	Unanswered  Unanswered                // of messages that are answered later; not needed at a terminal
	Known       func(service string) bool // whether the catalogue has a service of that name
	Terminal    bool                      // the conversation is at a terminal: no message is kept, so none is deleted
	Now         func() time.Time          // nil: time.Now

	mu   sync.Mutex // held while a message is taken
	now  present
	work sync.WaitGroup // work that goes on after Take
}

// present is the current work of a conversation.
type present struct {
	sync.Mutex
	plan     *Plan         // waits for the owner's word
	until    time.Time     // so long it waits
	showing  chan struct{} // closed when the last plan was sent, or could not be; nil: there was none
	drops    int           // plans that no longer count
	planning bool          // a model writes one
	runs     int           // that go on
}

// maxRuns bounds the runs of one conversation: each one that waits for an approval counts.
const maxRuns = 8

// Start deletes the messages that were to be deleted when an earlier process ended, and tells the owner of each. It
// also answers those that an earlier process has left without an answer. Call it before the first Take. An error says
// which record could not be read or kept, or that the owner was not told.
func (t *Talk) Start(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, unread := t.Deletions.left(t.Room)
	var err error
	for _, r := range list {
		err = errors.Join(err, t.resume(ctx, r))
	}
	if unread != nil {
		err = errors.Join(err, unread, t.say(ctx, "A record of messages to be deleted cannot be read. Look for secrets in "+
			"this conversation, delete their messages by hand, and renew those secrets. "+unread.Error()))
	}
	return errors.Join(err, t.apologize(ctx))
}

// resume tries once more to delete the message of a record. After a second failure that the owner knows of, the record
// goes: the owner has been told what to do.
func (t *Talk) resume(ctx context.Context, r record) error {
	failed := t.Platform.Delete(ctx, r.message())
	switch {
	case failed == nil:
		t.say(ctx, "pfar ended before it could delete a message of yours with a secret. It has deleted the message "+
			"now. If the set-up still waits for the secret, send it again.")
		return t.Deletions.done(r.message())
	case r.Told:
		return t.Deletions.done(r.message())
	}
	return t.tellUndeleted(ctx, r.message(), failed)
}

// Take does what a message says, in this order: it goes to the set-up that waits for a secret, begins a set-up,
// answers a plan, or is a question. What has the form of a secret and is for no set-up is deleted. Take may return
// before all is done; Wait waits for the rest. ctx ends that, too, so it is not that of the message alone. An error
// never has a word of the message. The owner knows it already, except for ErrStranger and the errors of
// Platform.Send.
func (t *Talk) Take(ctx context.Context, m Message) error {
	if t.Room == "" || t.Owner == "" || m.ID == "" || m.Room != t.Room || m.From != t.Owner {
		return ErrStranger
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.Terminal && t.Deletions.has(m) { // the platform has given it again after a crash
		_, err := t.remove(ctx, m)
		return err
	}
	under, failed := t.Setups.Waiting(ctx)
	s := t.situation(m, under, failed)
	is := meaning.Of(m.Text, s)
	switch is.Kind {
	case meaning.Yes, meaning.No, meaning.Empty:
	case meaning.Cancel:
		if s.Wanted != nil {
			t.drop()
		}
	default:
		t.drop()
	}
	switch is.Kind {
	case meaning.Token:
		return t.token(ctx, m, *under, is.Value)
	case meaning.Unsure:
		return t.say(ctx, "pfar did nothing with your message: it cannot tell whether a set-up waits for a secret. "+
			clean(failed, m.Text))
	case meaning.Cancel:
		if s.Wanted != nil {
			return t.answer(ctx, m, *under, is.Value)
		}
		if failed != nil {
			return t.refuse(ctx, "pfar cannot tell whether a set-up waits: "+clean(failed, m.Text))
		}
		return t.refuse(ctx, "Nothing waits that you could cancel.")
	case meaning.Connect:
		return t.connect(ctx, m, is.Service)
	case meaning.Yes:
		return t.agree(ctx, m)
	case meaning.No:
		return t.refuse(ctx, "No plan waits for your answer.")
	case meaning.Question:
		return t.question(ctx, m, is.Value)
	case meaning.Empty:
		return nil
	case meaning.Unfit:
		return t.say(ctx, fmt.Sprintf("pfar did nothing with your message: it is not text of at most %d KiB.",
			meaning.MaxQuestion>>10))
	}
	return t.withhold(ctx, m, why(s, under, failed, m.Text))
}

// situation is what the conversation waits for when a message comes.
func (t *Talk) situation(m Message, under *control.Flow, failed error) meaning.Situation {
	s := meaning.Situation{Unknown: failed != nil, Hidden: m.Hidden != nil, Known: t.Known}
	if failed == nil && under != nil {
		s.Wanted, s.UnderWay = under.Wants, true
		s.Formed = under.Formed || under.State == control.FlowComplete // then no secret is due any more
	}
	if h := m.Hidden; h != nil && s.Wanted != nil &&
		(h.Wants == nil || h.ID != under.ID || h.Wants.Key != under.Wants.Key) {
		s.Wanted = nil // the set-up has gone on since
	}
	return s
}

// Wait returns when all work of messages is over.
func (t *Talk) Wait() { t.work.Wait() }

// token hands a secret to the set-up that waits for it. The record of its message is on the disk before, so that a
// crash at any later step does not leave the message.
func (t *Talk) token(ctx context.Context, m Message, asked control.Flow, value string) error {
	if err := t.record(m); err != nil {
		_, failed := t.remove(ctx, m)
		return errors.Join(failed, t.say(ctx, "pfar stored nothing: "+clean(err, value)+
			". Send the secret again when that is mended."))
	}
	stored := t.Setups.Answer(ctx, asked, value)
	gone, err := t.remove(ctx, m)
	deleted := ""
	if gone {
		deleted = " Its message is deleted."
	}
	if stored != nil {
		return errors.Join(err, t.say(ctx, "The secret is not stored: "+clean(stored, value)+"."+deleted))
	}
	err = errors.Join(err, t.say(ctx, "The secret is stored."+deleted+" Connecting to "+asked.Server+"..."))
	return errors.Join(err, t.follow(ctx, m, asked))
}

// answer gives a set-up the word that ends it, or leaves a secret out.
func (t *Talk) answer(ctx context.Context, m Message, asked control.Flow, word string) error {
	if err := t.Setups.Answer(ctx, asked, word); err != nil {
		return t.say(ctx, err.Error())
	}
	return t.follow(ctx, m, asked)
}

// follow tells the owner how a set-up goes on, when it asks again or has ended.
func (t *Talk) follow(ctx context.Context, m Message, asked control.Flow) error {
	return t.later(ctx, m, settingUp, func() answer {
		now, err := t.Setups.After(ctx, asked)
		return t.setup(now, err)
	})
}

func (t *Talk) connect(ctx context.Context, m Message, service string) error {
	return t.later(ctx, m, settingUp, func() answer {
		now, err := t.Setups.Begin(ctx, service)
		known := t.Known != nil && t.Known(service)
		if err != nil && !known && !errors.Is(err, control.ErrDenied) && !errors.Is(err, control.ErrNotRunning) {
			// The error may repeat the name, which may be a secret.
			err = errors.New("pfar cannot set that up. To see the services that it knows: pfar services")
		}
		return t.setup(now, err)
	})
}

// setup says how a set-up stands.
func (t *Talk) setup(now control.Flow, err error) answer {
	if err != nil {
		return answer{text: err.Error()}
	}
	return answer{text: setupWords(now, t.Terminal)}
}

// withhold deletes a message that may hold a secret that nobody takes. why says so, and what to do.
func (t *Talk) withhold(ctx context.Context, m Message, why withheld) error {
	recorded := t.record(m) // the message is deleted at once if it cannot be recorded
	gone, err := t.remove(ctx, m)
	text := why.what + " pfar has stored nothing and given it to no model."
	if gone {
		text += " The message is deleted."
	}
	if t.Terminal {
		text += " If others can read this screen, renew the secret at its service."
	}
	text += " " + why.remedy
	if recorded != nil {
		text += " " + clean(recorded, m.Text) + "."
	}
	return errors.Join(err, t.say(ctx, text))
}

// record has the message deleted even if this process ends before.
func (t *Talk) record(m Message) error {
	if t.Terminal {
		return nil
	}
	return t.Deletions.add(m)
}

// remove deletes a message on the platform, and then its record. If it cannot be deleted, the owner is told. gone
// reports whether a message was deleted.
func (t *Talk) remove(ctx context.Context, m Message) (gone bool, err error) {
	if t.Terminal {
		return false, nil
	}
	if failed := t.Platform.Delete(ctx, Message{ID: m.ID, Room: m.Room, From: m.From}); failed != nil {
		return false, t.tellUndeleted(ctx, m, failed)
	}
	return true, t.Deletions.done(m)
}

// tellUndeleted tells the owner that a message has to be deleted by hand. The record stays: the next process tries
// again, and tells it unless the owner knows.
func (t *Talk) tellUndeleted(ctx context.Context, m Message, why error) error {
	err := t.say(ctx, "pfar could not delete your message, which holds a secret. Delete it by hand, and renew the "+
		"secret at its service: others may have read it. "+clean(why, m.Text))
	if err != nil {
		return err
	}
	return t.Deletions.told(m)
}

// say sends a text to the owner. The text may quote servers, services and models, so say escapes invisible characters
// and control characters.
func (t *Talk) say(ctx context.Context, text string) error {
	return t.Platform.Send(ctx, t.Room, visibly(text))
}

func visibly(text string) string {
	return visible.Escape(strings.TrimSpace(text), func(r rune) bool { return r != '\n' && visible.Deceptive(r) })
}

// clean returns the text of an error, unless it quotes a word of text.
func clean(err error, text string) string {
	words := strings.TrimSuffix(err.Error(), ".")
	for _, w := range append(strings.Fields(text), strings.TrimSpace(text)) {
		if len(w) >= minHidden && strings.Contains(words, w) {
			return "the reason quotes your message, so pfar does not repeat it"
		}
	}
	return words
}

const minHidden = 6 // bytes of a word that no error repeats
