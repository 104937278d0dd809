package matrix

import (
	"context"
	"net/http"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// sight is what pfar sees of a room.
type sight struct {
	crowd
	why   Refusal
	plain bool // previews of links are off
}

// peek asks for the state of a room once.
func (c *connection) peek(ctx context.Context, room id.RoomID) (s sight, err error) {
	var state []*event.Event // StateAsArray of the library panics at a null
	at := c.api.BuildClientURL("v3", "rooms", room, "state")
	if _, err := c.api.MakeRequest(ctx, http.MethodGet, at, nil, &state); err != nil {
		return sight{}, err
	}
	return sight{crowd: c.crowd(state), why: c.judge(state), plain: plainLinks(state)}, nil
}

// look decides about a room by its state now. In a room that pfar takes, previews of links are off when it returns.
func (c *Client) look(ctx context.Context, room id.RoomID) (Refusal, error) {
	var s sight
	err := c.tried(ctx, func(ctx context.Context) (err error) {
		s, err = c.peek(ctx, room)
		return err
	})
	if err == nil {
		err = c.calm(ctx, room, s)
	}
	return s.why, err
}

// calm switches previews of links off in a room that pfar takes.
func (c *connection) calm(ctx context.Context, room id.RoomID, s sight) error {
	if s.why != "" || s.plain {
		return nil
	}
	return c.tried(ctx, func(ctx context.Context) error {
		at := c.api.BuildClientURL("v3", "rooms", room, "state", previews.Type, "")
		_, err := c.api.MakeRequest(ctx, http.MethodPut, at, map[string]bool{"disable": true}, nil)
		return err
	})
}

// What the owner reads about a room that pfar leaves, in another one.
const notJoined = "pfar has an invitation of yours to a direct chat, and could not join that room or see who is in " +
	"it. Invite it to a new direct chat."

// welcome looks who is in a room that pfar has joined, and says what it does there. It leaves a room in which the owner
// is not, or in which others are. An error ends the chat.
func (c *Client) welcome(ctx context.Context, room id.RoomID) (stays bool, err error) {
	s, err := c.settled(ctx, room)
	switch {
	case err != nil && ends(ctx, err):
		return false, err
	case err != nil:
		c.log.Warn("looking who is in a room, leaving it", "room", string(room), "error", plain(err).Error())
	case !s.owner || !s.bot:
		c.log.Warn("the owner is not in a room with an invitation of the owner's, leaving it", "room", string(room))
	case s.others:
		c.tell(ctx, room, string(s.why))
	default:
		if err = c.calm(ctx, room, s); err != nil { // it is tried again before each answer
			c.log.Warn("switching off previews of links, ignoring", "room", string(room), "error", plain(err).Error())
		}
		words := hello
		if s.why != "" {
			words = string(s.why)
		}
		c.tell(ctx, room, words)
		return true, ctx.Err()
	}
	c.leave(ctx, room)
	if err != nil {
		c.tellHome(ctx, notJoined)
	}
	return false, ctx.Err()
}

// settled is what pfar sees of a room that it has joined. A homeserver may answer before it has carried that out.
func (c *Client) settled(ctx context.Context, room id.RoomID) (s sight, err error) {
	for n, pause := 1, c.pause; ; n, pause = n+1, 2*pause {
		err = c.once(ctx, func(ctx context.Context) (err error) {
			s, err = c.peek(ctx, room)
			return err
		})
		if err == nil && s.bot || n == tries || ctx.Err() != nil {
			return s, err
		}
		if err := c.persist(ctx, "reaching the homeserver", c.alive); err != nil {
			return s, err
		}
		if err := sleep(ctx, pause); err != nil {
			return s, err
		}
	}
}

// leave leaves a room and forgets it. If that fails pfar stays there, and takes no message.
func (c *Client) leave(ctx context.Context, room id.RoomID) {
	err := c.tried(ctx, func(ctx context.Context) error {
		_, err := c.api.LeaveRoom(ctx, room)
		return err
	})
	if err == nil {
		err = c.tried(ctx, func(ctx context.Context) error {
			_, err := c.api.ForgetRoom(ctx, room)
			return err
		})
	}
	if err != nil && ctx.Err() == nil {
		c.log.Warn("a room cannot be left, ignoring", "room", string(room), "error", plain(err).Error())
	}
}
