package matrix

import (
	"context"
	"net/http"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
)

// What the owner reads about messages that pfar does not take.
const (
	interrupted = "pfar ended while it worked on a message of yours, and does not begin that work again. Some of it may " +
		"be done. Look at pfar flow list, and send the message again if you still want it."
	unreadable = "This message is encrypted, and pfar does not read encrypted messages. " + newRoom
	onlyText   = "pfar reads only text messages."
	hello      = "pfar is here. It reads only what you write. Text that you paste for a set-up is deleted here as soon " +
		"as it is stored. This room is not encrypted: the homeserver can read it."
)

// handle acts on one waiting message. An error is about the record on the disk or the token, or says that ctx has
// ended; the message then still waits.
func (c *Client) handle(ctx context.Context, w waiting, take Take) error {
	if w.Begun {
		c.tell(ctx, w.Room, interrupted)
		return c.progress.done(w)
	}
	e, why, err := c.fetch(ctx, w)
	if err != nil {
		return err
	}
	is, text := ignored, ""
	if e != nil {
		is, text = c.read(e)
	}
	switch {
	case is == ignored: // deleted meanwhile
	case why != "":
		c.tell(ctx, w.Room, string(why))
	case is == encrypted:
		c.tell(ctx, w.Room, unreadable)
	case is == unread:
		c.tell(ctx, w.Room, onlyText)
	default:
		if err := c.progress.begin(w); err != nil {
			return err
		}
		err := take(ctx, chat.Message{ID: string(w.ID), Room: string(w.Room), From: string(c.owner), Text: text})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.log.Warn("cannot answer a message", "room", string(w.Room), "error", plain(err).Error())
		}
	}
	return c.progress.done(w)
}

// fetch returns a message, and why pfar refuses its room; nil: the homeserver no longer shows the message.
func (c *Client) fetch(ctx context.Context, w waiting) (e *event.Event, why Refusal, err error) {
	err = c.persist(ctx, "reading a message", func(ctx context.Context) (err error) {
		e, err = c.api.GetEvent(ctx, w.Room, w.ID)
		if err == nil {
			why, err = c.look(ctx, w.Room)
		}
		if err != nil && final(err) {
			c.log.Warn("cannot read a message, ignoring", "room", string(w.Room), "error", plain(err).Error())
			e, err = nil, nil
		}
		return err
	})
	return e, why, err
}

// tell sends text of pfar to the owner, and logs a failure.
func (c *Client) tell(ctx context.Context, room id.RoomID, text string) {
	if err := c.write(ctx, room, text); err != nil && ctx.Err() == nil {
		c.log.Warn("cannot tell the owner", "room", string(room), "error", err.Error())
	}
}

// welcome greets the owner in a new room, or says why pfar refuses the room.
func (c *Client) welcome(ctx context.Context, room id.RoomID) {
	why, err := c.look(ctx, room)
	for n, pause := 1, c.pause; n < tries && err != nil && sleep(ctx, pause) == nil; n++ {
		why, err = c.look(ctx, room) // a homeserver may answer before it has carried the joining out
		pause *= 2
	}
	switch {
	case err != nil: // it is looked at again with each message
		c.log.Warn("looking who is in a room, ignoring", "room", string(room), "error", plain(err).Error())
		return
	case why != "":
		c.tell(ctx, room, string(why))
		return
	}
	// A preview would have the homeserver or the owner's program open the addresses in answers, which a server may have
	// made up of what only the owner may know.
	err = c.once(ctx, func(ctx context.Context) error {
		at := c.api.BuildClientURL("v3", "rooms", room, "state", "org.matrix.room.preview_urls", "")
		_, err := c.api.MakeRequest(ctx, http.MethodPut, at, map[string]bool{"disable": true}, nil)
		return err
	})
	if err != nil {
		c.log.Warn("switching off previews of links, ignoring", "room", string(room), "error", plain(err).Error())
	}
	c.tell(ctx, room, hello)
}
