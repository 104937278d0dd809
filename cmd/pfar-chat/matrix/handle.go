package matrix

import (
	"context"
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/chat/meaning"
)

// What the owner reads about messages that pfar does not take.
const (
	interrupted = "pfar ended while it worked on a message of yours, and does not begin that work again. Some of it may " +
		"be done. Look at pfar flow list, and send the message again if you still want it. If it held a secret and is " +
		"still here, delete it by hand."
	unreadable = "This message is encrypted, and pfar does not read encrypted messages. " + newRoom
	onlyText   = "pfar reads only text messages."
	setAside   = "pfar leaves out a message of yours: the homeserver does not show all of it or of this room. Send it " +
		"again. If it held a secret, delete it by hand, and renew the secret at its service."
	deleted = "A message of yours that pfar did nothing with may hold a secret. The message is deleted. Renew the " +
		"secret at its service if others could read it."
	undeleted = "A message of yours that pfar did nothing with may hold a secret, and pfar could not delete it. Delete " +
		"it by hand, and renew the secret at its service: others may have read it."
	hello = "pfar is here. It reads only what you write. Text that you paste for a set-up is deleted here as soon " +
		"as it is stored. This room is not encrypted: the homeserver can read it."
)

// handle acts on one waiting message. An error is about the record on the disk or the token, or says that ctx has
// ended; the message then still waits.
func (c *Client) handle(ctx context.Context, w waiting, take Take) error {
	e, why, err := c.fetch(ctx, w)
	if err != nil && ends(ctx, err) {
		return err
	}
	is, text := c.read(e)
	reply, holds := "", false
	switch {
	case w.Begun: // no process knows whether a set-up waited for it
		reply, holds = interrupted, is != ignored && secret(append(written(e), text), meaning.Situation{Unknown: true})
	case err != nil:
		c.log.Warn("a message cannot be read, leaving it out", "room", string(w.Room), "error", plain(err).Error())
		reply, holds = setAside, is != ignored && keeps(e, "")
	case is == ignored: // deleted meanwhile
	case why != "":
		reply, holds = string(why), keeps(e, "")
	case is == encrypted:
		reply = unreadable
	case is == unread:
		reply, holds = onlyText, keeps(e, "")
	case is == notice:
		holds = keeps(e, "")
	case keeps(e, text):
		holds = true
	default:
		return c.hand(ctx, w, text, take)
	}
	if holds {
		gone, err := c.remove(ctx, w)
		if err != nil {
			return err
		}
		reply = strings.TrimPrefix(reply+" "+gone, " ")
	}
	if reply != "" {
		c.tell(ctx, w.Room, reply)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.progress.done(w)
}

// hand has a message taken.
func (c *Client) hand(ctx context.Context, w waiting, text string, take Take) error {
	if err := c.progress.begin(w); err != nil {
		return err
	}
	err := take(ctx, chat.Message{ID: string(w.ID), Room: string(w.Room), From: string(c.owner), Text: text})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.log.Warn("a message is not answered", "room", string(w.Room), "error", plain(err).Error())
	}
	return c.progress.done(w)
}

// remove deletes a message that pfar does not take. It returns what the owner has to know. The message waits until it
// is done, so that a crash before does not leave it.
func (c *Client) remove(ctx context.Context, w waiting) (told string, err error) {
	err = c.Delete(ctx, chat.Message{ID: string(w.ID), Room: string(w.Room), From: string(c.owner)})
	switch {
	case err == nil:
		return deleted, nil
	case ends(ctx, err):
		return "", err
	}
	c.log.Warn("a message is not deleted", "room", string(w.Room), "error", err.Error())
	return undeleted, nil
}

// fetch returns a message with what pfar thinks of its room; nil: the homeserver does not show it. An error that does
// not end the chat comes with the message, if that was read.
func (c *Client) fetch(ctx context.Context, w waiting) (e *event.Event, why Refusal, err error) {
	err = c.tried(ctx, func(ctx context.Context) (err error) {
		e, err = c.api.GetEvent(ctx, w.Room, w.ID)
		return err
	})
	if err != nil {
		e = nil
		if final(err) && !ends(ctx, err) {
			c.log.Warn("a message cannot be read, ignoring", "room", string(w.Room), "error", plain(err).Error())
			err = nil
		}
		return nil, "", err
	}
	if is, _ := c.read(e); is != ignored && !w.Begun {
		why, err = c.look(ctx, w.Room)
	}
	return e, why, err
}

// tell writes words of pfar's own to the owner. If the room does not take them, they go where the owner has talked with
// pfar last. That they do not arrive is logged.
func (c *Client) tell(ctx context.Context, room id.RoomID, text string) {
	err := c.write(ctx, room, "", text)
	if err == nil || ctx.Err() != nil {
		return
	}
	c.log.Warn("the owner is not told in a room", "room", string(room), "error", err.Error())
	if c.progress.now().Home != room {
		c.tellHome(ctx, "In another room of ours: "+text)
	}
}

// tellHome writes words of pfar's own where the owner has talked with it last. That they do not arrive is logged.
func (c *Client) tellHome(ctx context.Context, text string) {
	home := c.progress.now().Home
	if home == "" {
		return
	}
	if err := c.write(ctx, home, "", text); err != nil && ctx.Err() == nil {
		c.log.Warn("the owner is not told", "room", string(home), "error", err.Error())
	}
}
