package matrix

import (
	"encoding/json"
	"fmt"
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// Refusal says why pfar takes no messages in a room, in words for the owner. "": it takes them.
type Refusal string

const newRoom = "Start a direct chat with me that has encryption switched off and nobody else in it."

// people are the two accounts that a room may have.
type people struct{ bot, owner id.UserID }

// judge decides whether pfar takes messages in a room, by the whole state of the room. A room without members is
// refused.
func (p people) judge(state []*event.Event) Refusal {
	here := map[id.UserID]bool{}
	var create, power *event.Event
	for _, e := range state {
		e.Type.Class = event.StateEventType
		switch e.Type {
		case event.StateEncryption:
			return "This room is encrypted. pfar does not read encrypted messages. " + newRoom
		case event.StateMember:
			member := id.UserID(e.GetStateKey())
			switch said(e, "membership") {
			case "leave", "ban":
			default:
				if member != p.bot && member != p.owner {
					return "This room has other members than you and me, and they could read what you paste. " + newRoom
				}
				here[member] = true
			}
		case event.StateJoinRules:
			if rule := said(e, "join_rule"); rule != "invite" && rule != "private" {
				return "Others can join this room without an invitation. " + newRoom
			}
		case event.StateHistoryVisibility:
			if said(e, "history_visibility") == "world_readable" {
				return "Everybody can read this room. " + newRoom
			}
		case event.StateCreate:
			create = e
		case event.StatePowerLevels:
			power = e
		}
	}
	switch {
	case !here[p.bot] || !here[p.owner]:
		return "You or I have left this room. " + newRoom
	case !p.deletes(create, power):
		return "I may not delete messages in this room, and a secret that you paste would stay here. Make me a " +
			"moderator of the room, or start a direct chat with me."
	}
	return ""
}

// deletes reports whether the bot may redact messages of the owner. create and power may be nil.
func (p people) deletes(create, power *event.Event) bool {
	if create == nil || power == nil || create.Content.ParseRaw(event.StateCreate) != nil ||
		power.Content.ParseRaw(event.StatePowerLevels) != nil {
		return false
	}
	levels := power.Content.AsPowerLevels()
	levels.CreateEvent = create
	own := levels.GetUserLevel(p.bot)
	return own >= levels.Redact() && own >= levels.GetEventLevel(event.EventRedaction)
}

// said returns a string member of an event's content; "": the content does not have it.
func said(e *event.Event, key string) string {
	text, _ := e.Content.Raw[key].(string)
	return text
}

// invites reports whether the owner invites the bot to a direct room. state is the part of the room that the homeserver
// shows.
func (p people) invites(state []*event.Event) bool {
	for _, e := range state {
		if e.Type.Type != event.StateMember.Type || e.GetStateKey() != string(p.bot) {
			continue
		}
		direct, _ := e.Content.Raw["is_direct"].(bool)
		return direct && e.Sender == p.owner && said(e, "membership") == "invite"
	}
	return false
}

// invited reports whether an event is an invitation of the bot: the conversation begins after the last one.
func (p people) invited(e *event.Event) bool {
	return e.Type.Type == event.StateMember.Type && e.GetStateKey() == string(p.bot) &&
		said(e, "membership") == "invite"
}

// kind is what pfar does with an event of a room.
type kind uint8

const (
	ignored   kind = iota // from somebody else, or not a message
	words                 // text of the owner
	encrypted             // a message of the owner that pfar cannot read
	unread                // a message of the owner without text, such as a file
)

// read decides about one event, and returns the text of a message. An edit is a message of its own with the new text: a
// secret may have come with it.
func (p people) read(e *event.Event) (kind, string) {
	if e.Sender != p.owner || e.StateKey != nil {
		return ignored, ""
	}
	switch e.Type.Type {
	case event.EventEncrypted.Type:
		if len(e.Content.Raw) == 0 { // redacted
			return ignored, ""
		}
		return encrypted, ""
	case event.EventMessage.Type:
	default:
		return ignored, ""
	}
	var content struct {
		Kind string  `json:"msgtype"`
		Body *string `json:"body"`
		New  *struct {
			Kind string  `json:"msgtype"`
			Body *string `json:"body"`
		} `json:"m.new_content"`
	}
	raw, err := e.Content.MarshalJSON()
	if err != nil || json.Unmarshal(raw, &content) != nil {
		return unread, ""
	}
	if content.New != nil {
		content.Kind, content.Body = content.New.Kind, content.New.Body
	}
	switch {
	case content.Kind == "" && content.Body == nil: // redacted
		return ignored, ""
	case content.Kind == string(event.MsgNotice): // by which programs answer: no program answers it
		return ignored, ""
	case content.Kind != string(event.MsgText) || content.Body == nil:
		return unread, ""
	}
	return words, *content.Body
}

// Mistake returns the first mistake in an account, or nil. Its text does not contain the token.
func (a Account) Mistake() error {
	for _, one := range []struct{ key, id string }{{"user", a.User}, {"owner", a.Owner}} {
		if err := userID(one.id); err != nil {
			return fmt.Errorf("%s: %w", one.key, err)
		}
	}
	if a.User == a.Owner {
		return fmt.Errorf("owner: %.255q is the account that pfar uses itself: want another one", a.Owner)
	}
	if strings.ContainsFunc(a.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("the access token of %s contains characters other than printable ASCII", a.User)
	}
	return nil
}

func userID(text string) error {
	u := id.UserID(text)
	if _, _, err := u.ParseAndValidateStrict(); err != nil || len(text) > 255 {
		return fmt.Errorf("%.255q is not a Matrix account: want @NAME:HOST, such as @ada:example.org", text)
	}
	return nil
}
