package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pfar/pfar/units/durable"
)

// Unanswered is a directory with a record of each message whose answer comes later, so that a crash leaves no message
// without an answer. A record has no text. One process at a time uses the directory.
type Unanswered struct{ dir string }

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
	if dir == "" {
		return Unanswered{}, errors.New("opening the record of unanswered messages: no directory is named")
	}
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = durable.Sweep(dir)
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(dir))
	}
	if err != nil {
		return Unanswered{}, fmt.Errorf("opening the record of unanswered messages: %w", err)
	}
	return Unanswered{dir}, nil
}

// key is the name of an answer: the same for the same message and endeavour, also in another process.
func (p promise) key() string {
	room := sha256.Sum256([]byte(p.Room))
	sum := sha256.Sum256(append(room[:], p.ID...))
	return string(p.By) + "-" + hex.EncodeToString(sum[:])
}

func (u Unanswered) path(p promise) string { return filepath.Join(u.dir, p.key()+recordSuffix) }

// add records that a message is to be answered. The record is on the disk when add returns.
func (u Unanswered) add(p promise) error {
	b, err := json.Marshal(p)
	switch {
	case u.dir == "":
		return errors.New("there is no record of unanswered messages")
	case err == nil && len(b) > maxRecord:
		err = fmt.Errorf("the ids of message and room have %d bytes, more than %d", len(b), maxRecord)
	case err == nil:
		err = durable.WriteFile(u.path(p), b)
	}
	if err != nil {
		return fmt.Errorf("recording that a message is to be answered: %w", err)
	}
	return nil
}

// done takes the record of a message away.
func (u Unanswered) done(p promise) error {
	if err := durable.Remove(u.path(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("noting that a message is answered: %w", err)
	}
	return nil
}

// left are the records of a room. An error says which files cannot be read; the others are there.
func (u Unanswered) left(room string) (list []promise, err error) {
	if u.dir == "" {
		return nil, nil
	}
	entries, failed := os.ReadDir(u.dir)
	if failed != nil {
		return nil, fmt.Errorf("reading the record of unanswered messages: %w", failed)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		var p promise
		b, failed := os.ReadFile(filepath.Join(u.dir, e.Name()))
		if failed == nil {
			failed = json.Unmarshal(b, &p)
		}
		switch {
		case failed != nil:
			err = errors.Join(err, fmt.Errorf("reading the record of an unanswered message, %s: %w", e.Name(), failed))
		case p.Room == room:
			list = append(list, p)
		}
	}
	return list, err
}

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
		unkept = t.Unanswered.add(p)
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
	return once.SendOnce(ctx, t.Room, p.key(), visibly(text))
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
