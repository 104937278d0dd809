package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
)

// Filters have the homeserver send what pfar looks at, and nothing else: %q is the owner. What others write costs
// nothing. The invitation of the bot to a room is the owner's, too.
const (
	ofOwner = `"senders":[%q],"types":["m.room.message","m.room.encrypted","m.room.member"]`
	filter  = `{"presence":{"not_types":["*"]},"account_data":{"not_types":["*"]},"room":{` +
		`"account_data":{"not_types":["*"]},"ephemeral":{"not_types":["*"]},"state":{"not_types":["*"]},` +
		`"timeline":{"limit":50,` + ofOwner + `}}}`
)

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

// news is an answer to a request for news, as far as pfar looks at it. A part that is not as Matrix has it is as if it
// were not there: it may come from another homeserver.
type news struct {
	Next  string `json:"next_batch"`
	Rooms struct {
		Join map[id.RoomID]*struct {
			Timeline timeline `json:"timeline"`
		} `json:"join"`
		Invite map[id.RoomID]*struct {
			State struct {
				Events eventList `json:"events"`
			} `json:"invite_state"`
		} `json:"invite"`
		Leave map[id.RoomID]json.RawMessage `json:"leave"`
	} `json:"rooms"`
}

// timeline is a part of a room, the oldest event first.
type timeline struct {
	Events  eventList `json:"events"`
	Limited bool      `json:"limited"`    // there is more before it
	Before  string    `json:"prev_batch"` // where that is
}

type eventList []*event.Event

// UnmarshalJSON leaves out what is no event.
func (l *eventList) UnmarshalJSON(b []byte) error {
	var raw []json.RawMessage
	if json.Unmarshal(b, &raw) != nil {
		return nil
	}
	for _, one := range raw {
		var e *event.Event
		if json.Unmarshal(one, &e) == nil && e != nil {
			*l = append(*l, e)
		}
	}
	return nil
}

// ask asks the homeserver for news after a place, and waits for some unless it is the first time.
func (c *Client) ask(ctx context.Context, after string) (got news, err error) {
	err = c.persist(ctx, "asking for messages", func(ctx context.Context) error {
		wait := poll
		if after == "" {
			wait = 0
		}
		request := mautrix.ReqSync{
			Timeout: int(wait / time.Millisecond), Since: after, FilterID: fmt.Sprintf(filter, c.owner),
			SetPresence: event.PresenceOffline,
		}
		got = news{}
		at := c.api.BuildURLWithQuery(mautrix.ClientURLPath{"v3", "sync"}, request.BuildQuery())
		_, err := c.api.MakeRequest(ctx, http.MethodGet, at, nil, &got)
		if err == nil && (got.Next == "" || len(got.Next) > maxBatch) {
			err = errAnswer
		}
		return err
	})
	return got, err
}

// sync asks for news, joins rooms that the owner invites to, and notes what waits.
func (c *Client) sync(ctx context.Context) error {
	before := c.progress.now()
	got, err := c.ask(ctx, before.Next)
	if err != nil {
		return err
	}
	n := noted{next: got.Next, first: before.Next == "", seen: map[id.RoomID]id.EventID{}}
	invited := map[id.RoomID]bool{}
	for name, one := range got.Rooms.Invite {
		switch {
		case !sound(string(name), '!') || one == nil || !c.invites(one.State.Events):
			c.log.Info("an invitation that is not the owner's to a direct chat, ignoring", "room", fmt.Sprintf("%.255q", name))
		default:
			invited[name] = true
		}
	}
	if n.joined, n.left, err = c.join(ctx, before, invited); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(got.Rooms.Join)) {
		one := got.Rooms.Join[name]
		if one == nil || !sound(string(name), '!') || slices.Contains(n.left, name) {
			continue
		}
		for _, e := range one.Timeline.Events {
			if sound(string(e.ID), '$') {
				n.seen[name] = e.ID
			}
		}
		was, known := before.Rooms[name]
		if !known && n.first {
			continue // messages from before pfar was here
		}
		list, err := c.since(ctx, name, one.Timeline, was.Seen, known)
		if err != nil {
			return err
		}
		for _, message := range list {
			n.found = append(n.found, waiting{Room: name, ID: message})
		}
	}
	n.left = slices.AppendSeq(n.left, maps.Keys(got.Rooms.Leave))
	if left := len(n.found) - maxWaiting; left > 0 {
		n.found = n.found[left:]
		c.tellHome(ctx, fmt.Sprintf("There are more than %d messages of yours. I read the newest.", maxWaiting))
	}
	return c.progress.change(func(r *record) { r.add(n) })
}

// noted is what is to be noted of an answer.
type noted struct {
	next         string
	first        bool        // nothing was read before
	joined, left []id.RoomID // joined have the owner in them
	seen         map[id.RoomID]id.EventID
	found        []waiting
}

// add takes news into the record.
func (r *record) add(n noted) {
	r.Next = n.next
	for _, name := range n.left {
		delete(r.Rooms, name)
		if r.Home == name {
			r.Home = ""
		}
	}
	for _, name := range n.joined {
		r.Rooms[name], r.Home = room{}, name
	}
	begin := func(name id.RoomID) {
		if _, known := r.Rooms[name]; !known && len(r.Rooms) < maxRooms {
			r.Rooms[name] = room{}
		}
	}
	for _, w := range n.found { // a room with a message of the owner is one of the conversations
		begin(w.Room)
	}
	for _, name := range slices.Sorted(maps.Keys(n.seen)) {
		if n.first { // its messages are old, and stay so
			begin(name)
		}
		if was, known := r.Rooms[name]; known {
			was.Seen = n.seen[name]
			r.Rooms[name] = was
		}
	}
	r.Waiting = append(r.Waiting, n.found...)
}

// since returns the messages of a room that are new and need something, the oldest first: those after the bot's last
// invitation and after the one that was seen last. known says that the room is in the record: messages that the
// homeserver has left out are fetched then. If no message was seen and the invitation does not come into sight, nothing
// tells old messages from new ones, and those that are left out stay so.
func (c *Client) since(
	ctx context.Context, room id.RoomID, t timeline, seen id.EventID, known bool,
) (list []id.EventID, err error) {
	ended := false
	note := func(e *event.Event) { // the newest first
		switch {
		case ended || e == nil:
		case e.ID == seen && seen != "", c.invited(e):
			ended = true
		case sound(string(e.ID), '$') && c.needs(e):
			list = append(list, e.ID)
		}
	}
	for _, e := range slices.Backward(t.Events) {
		note(e)
	}
	recent := len(list)
	from, more := t.Before, t.Limited && known
	for n := 0; more && !ended && from != ""; n++ {
		if n == pages {
			c.tell(ctx, room, fmt.Sprintf("There are more than %d messages since I was here last. I have read the newest.",
				pages*page))
			break
		}
		got, err := c.earlier(ctx, room, from)
		switch {
		case err != nil && ends(ctx, err):
			return nil, err
		case err != nil:
			c.log.Warn("older messages of a room cannot be fetched, ignoring",
				"room", string(room), "error", plain(err).Error())
			if !final(err) { // else the bot has left the room, for example
				c.tell(ctx, room, unfetched)
			}
			got = &mautrix.RespMessages{}
		}
		for _, e := range got.Chunk {
			note(e)
		}
		from, more = got.End, got.End != from // the last page has no end
	}
	if !ended && seen == "" {
		list = list[:recent]
	}
	slices.Reverse(list)
	return list, nil
}

const unfetched = "The homeserver does not show all messages since I was here last. Send again what I leave out."

// earlier fetches messages of the owner before a place, the newest first.
func (c *Client) earlier(ctx context.Context, room id.RoomID, from string) (got *mautrix.RespMessages, err error) {
	var only mautrix.FilterPart
	if err := json.Unmarshal(fmt.Appendf(nil, "{"+ofOwner+"}", c.owner), &only); err != nil {
		return nil, err
	}
	err = c.tried(ctx, func(ctx context.Context) (err error) {
		got, err = c.api.Messages(ctx, room, from, "", mautrix.DirectionBackward, &only, page)
		if err == nil && got == nil {
			err = errAnswer
		}
		return err
	})
	return got, err
}

// needs reports whether there is something to do about an event: notices are looked at only for secrets.
func (c *Client) needs(e *event.Event) bool {
	is, _ := c.read(e)
	return is != ignored && (is != notice || keeps(e, ""))
}

// join joins direct rooms to which the owner invites, and looks at those that an earlier process has joined and not
// looked at. It returns those in which pfar stays, and the others.
func (c *Client) join(
	ctx context.Context, before record, invited map[id.RoomID]bool,
) (joined, left []id.RoomID, err error) {
	held := 0 // rooms with the owner in them
	for name, one := range before.Rooms {
		if !one.New {
			held++
		} else if _, again := invited[name]; !again {
			invited[name] = false
		}
	}
	for _, name := range slices.Sorted(maps.Keys(invited)) {
		if held+len(joined) >= maxRooms {
			c.log.Warn("there are too many rooms, ignoring an invitation", "room", string(name), "limit", maxRooms)
			continue
		}
		stays, err := c.enter(ctx, name, invited[name])
		switch {
		case err != nil:
			return nil, nil, err
		case stays:
			joined = append(joined, name)
		default: // at once: there may be many
			left = append(left, name)
			if err := c.progress.change(func(r *record) { delete(r.Rooms, name) }); err != nil {
				return nil, nil, err
			}
		}
	}
	return joined, left, nil
}

// enter joins a room if that is still to be done, and looks who is there. An error ends the chat.
func (c *Client) enter(ctx context.Context, name id.RoomID, invited bool) (stays bool, err error) {
	if !invited {
		return c.welcome(ctx, name)
	}
	// Noted before, so that a crash after it loses no message in the room.
	if err := c.progress.change(func(r *record) { r.Rooms[name] = room{New: true} }); err != nil {
		return false, err
	}
	err = c.tried(ctx, func(ctx context.Context) error {
		_, err := c.api.JoinRoomByID(ctx, name)
		return err
	})
	switch {
	case err == nil:
		return c.welcome(ctx, name)
	case ends(ctx, err):
		return false, err
	}
	c.log.Warn("a room cannot be joined, ignoring", "room", string(name), "error", plain(err).Error())
	if !final(err) { // else the owner has taken the invitation back, for example
		c.tellHome(ctx, notJoined)
	}
	return false, nil
}
