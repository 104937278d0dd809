package matrix

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
)

// filter has the homeserver send only the events that pfar reads.
const filter = `{"presence":{"not_types":["*"]},"account_data":{"not_types":["*"]},"room":{` +
	`"account_data":{"not_types":["*"]},"ephemeral":{"not_types":["*"]},"state":{"not_types":["*"]},` +
	`"timeline":{"limit":50,"types":["m.room.message","m.room.encrypted","m.room.member"]}}}`

const (
	page  = 100 // events that are fetched at once
	pages = 20  // that are fetched if the homeserver has left events out
)

// Take handles one message of the owner. It returns soon; work that it begins goes on.
type Take func(context.Context, chat.Message) error

// Rooms returns the rooms in which the owner has talked with pfar, or to which the owner has invited it.
func (c *Client) Rooms() []string {
	var list []string
	for name := range c.progress.now().Rooms {
		list = append(list, string(name))
	}
	slices.Sort(list)
	return list
}

// Run hands each new message of the owner to take, one after the other, until ctx ends or the homeserver no longer
// accepts the token (ErrToken). A message at which an earlier process ended is not handed over again: the owner is
// told. Connect comes before.
func (c *Client) Run(ctx context.Context, take Take) error {
	if !c.quiet.Load() {
		return errors.New("the account's notifications are not switched off")
	}
	for {
		for _, w := range c.progress.now().Waiting {
			if err := c.handle(ctx, w, take); err != nil {
				return err
			}
		}
		if err := c.sync(ctx); err != nil {
			return err
		}
	}
}

// sync asks for news, joins rooms that the owner invites to, and notes what waits.
func (c *Client) sync(ctx context.Context) error {
	before := c.progress.now()
	var news *mautrix.RespSync
	err := c.persist(ctx, "asking for messages", func(ctx context.Context) (err error) {
		wait := poll
		if before.Next == "" {
			wait = 0
		}
		news, err = c.api.FullSyncRequest(ctx, mautrix.ReqSync{
			Timeout: int(wait / time.Millisecond), Since: before.Next, FilterID: filter,
			SetPresence: event.PresenceOffline,
		})
		if err == nil && (news == nil || news.NextBatch == "") {
			err = errors.New("the homeserver's answer does not follow the Matrix protocol")
		}
		return err
	})
	if err != nil {
		return err
	}
	joined, left, err := c.joinInvited(ctx, before, news.Rooms.Invite)
	if err != nil {
		return err
	}
	var found []waiting
	seen := map[id.RoomID]id.EventID{}
	for _, name := range slices.Sorted(maps.Keys(news.Rooms.Join)) {
		timeline := news.Rooms.Join[name].Timeline
		if _, known := before.Rooms[name]; !known && before.Next == "" || len(timeline.Events) == 0 {
			continue // messages from before pfar was here
		}
		events, err := c.since(ctx, name, timeline, before.Rooms[name].Seen)
		if err != nil {
			return err
		}
		seen[name] = timeline.Events[len(timeline.Events)-1].ID
		for _, e := range events {
			if is, _ := c.read(e); is != ignored {
				found = append(found, waiting{Room: name, ID: e.ID})
			}
		}
	}
	left = slices.AppendSeq(left, maps.Keys(news.Rooms.Leave))
	return c.progress.change(func(r *record) { r.add(news.NextBatch, joined, seen, found, left) })
}

// add takes news into the record.
func (r *record) add(
	next string, joined []id.RoomID, seen map[id.RoomID]id.EventID, found []waiting, left []id.RoomID,
) {
	r.Next = next
	for _, name := range left {
		delete(r.Rooms, name)
		if r.Home == name {
			r.Home = ""
		}
	}
	for _, name := range joined {
		r.Rooms[name], r.Home = room{}, name
	}
	for _, w := range found { // a room with a message of the owner is one of the conversations
		if _, known := r.Rooms[w.Room]; !known {
			r.Rooms[w.Room] = room{}
		}
	}
	for name, last := range seen {
		if _, known := r.Rooms[name]; known {
			r.Rooms[name] = room{Seen: last}
		}
	}
	r.Waiting = append(r.Waiting, found...)
}

// since returns the events of a room that are new, the oldest first: those after the bot's last invitation and after
// the one that was seen last. If the homeserver has left some out they are fetched.
func (c *Client) since(
	ctx context.Context, room id.RoomID, t mautrix.SyncTimeline, seen id.EventID,
) (list []*event.Event, err error) {
	end := func(e *event.Event) bool { return e.ID == seen || c.invited(e) }
	for _, e := range slices.Backward(t.Events) {
		if end(e) {
			return list, nil
		}
		list = slices.Insert(list, 0, e)
	}
	from, limited := t.PrevBatch, t.Limited
	for range pages {
		if !limited || from == "" {
			return list, nil
		}
		var got *mautrix.RespMessages
		err := c.persist(ctx, "fetching messages", func(ctx context.Context) (err error) {
			got, err = c.api.Messages(ctx, room, from, "", mautrix.DirectionBackward, nil, page)
			if err != nil && final(err) { // the bot has left the room, for example
				c.log.Warn("cannot fetch older messages of a room, ignoring",
					"room", string(room), "error", plain(err).Error())
				got, err = &mautrix.RespMessages{}, nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, e := range got.Chunk {
			if end(e) {
				return list, nil
			}
			list = slices.Insert(list, 0, e)
		}
		from, limited = got.End, len(got.Chunk) > 0
	}
	c.tell(ctx, room, fmt.Sprintf("There are more than %d messages since I was here last. I have read the newest.",
		pages*page))
	return list, nil
}

// joinInvited joins the direct rooms to which the owner invites. It returns those that it has joined, and those that
// cannot be joined.
func (c *Client) joinInvited(
	ctx context.Context, before record, invited map[id.RoomID]*mautrix.SyncInvitedRoom,
) (joined, left []id.RoomID, err error) {
	for _, name := range slices.Sorted(maps.Keys(invited)) {
		if !c.invites(invited[name].State.Events) {
			c.log.Info("ignoring an invitation: pfar joins only direct chats to which the owner invites", "room", string(name))
			continue
		}
		if len(before.Rooms)+len(joined) >= maxRooms {
			c.log.Warn("there are too many rooms, ignoring an invitation", "room", string(name), "limit", maxRooms)
			continue
		}
		// Noted before, so that a crash after it loses no message in the room.
		err := c.progress.change(func(r *record) { r.Rooms[name] = room{} })
		if err != nil {
			return nil, nil, err
		}
		var refused error
		err = c.persist(ctx, "joining a room", func(ctx context.Context) error {
			_, err := c.api.JoinRoomByID(ctx, name)
			if err != nil && final(err) { // the owner has taken the invitation back, for example
				refused = err
				return nil
			}
			return err
		})
		switch {
		case err != nil:
			return nil, nil, err
		case refused != nil:
			left = append(left, name)
			c.log.Warn("cannot join a room, ignoring", "room", string(name), "error", plain(refused).Error())
			continue
		}
		c.welcome(ctx, name)
		joined = append(joined, name)
	}
	return joined, left, nil
}
