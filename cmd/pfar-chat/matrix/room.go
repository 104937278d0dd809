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

// crowd is who is in a room. Its zero value is nobody.
type crowd struct {
	bot, owner bool // they have joined
	others     bool // somebody else has joined, is invited or asks to be
}

// crowd reads the whole state of a room.
func (p people) crowd(state []*event.Event) (here crowd) {
	for _, e := range state {
		if e == nil || e.Type.Type != event.StateMember.Type {
			continue
		}
		membership := said(e, "membership")
		switch member := id.UserID(e.GetStateKey()); {
		case member == p.bot:
			here.bot = membership == "join"
		case member == p.owner:
			here.owner = membership == "join"
		case membership != "leave" && membership != "ban":
			here.others = true
		}
	}
	return here
}

// judge decides whether pfar takes messages in a room, by the whole state of the room. A room without members is
// refused.
func (p people) judge(state []*event.Event) Refusal {
	here := p.crowd(state)
	var create, power *event.Event
	for _, e := range state {
		if e == nil {
			return "The homeserver does not show all of this room. " + newRoom
		}
		e.Type.Class = event.StateEventType
		switch e.Type {
		case event.StateEncryption:
			return "This room is encrypted. pfar does not read encrypted messages. " + newRoom
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
	levels := levelsOf(create, power)
	switch {
	case here.others:
		return "This room has other members than you and me, and they could read what you paste. " + newRoom
	case !here.bot || !here.owner:
		return "You and I are not both in this room. " + newRoom
	case levels == nil, levels.GetUserLevel(p.bot) < max(levels.Redact(), levels.GetEventLevel(event.EventRedaction)):
		return "I may not delete messages in this room, and a secret that you paste would stay here. " + moderator
	case !plainLinks(state) && levels.GetUserLevel(p.bot) < levels.GetEventLevel(previews):
		return "I may not switch off previews of links in this room, and a preview would open the addresses in answers. " +
			moderator
	}
	return ""
}

const moderator = "Make me a moderator of the room, or start a direct chat with me."

// levelsOf are the power levels of a room; nil: they cannot be told.
func levelsOf(create, power *event.Event) *event.PowerLevelsEventContent {
	if create == nil || power == nil || create.Content.ParseRaw(event.StateCreate) != nil ||
		power.Content.ParseRaw(event.StatePowerLevels) != nil {
		return nil
	}
	levels := power.Content.AsPowerLevels()
	levels.CreateEvent = create
	return levels
}

// previews is the state of a room by which programs for chats open no addresses. A preview would have the homeserver or
// the owner's program open the addresses in answers, which a server may have made up of what only the owner may know.
var previews = event.Type{Type: "org.matrix.room.preview_urls", Class: event.StateEventType}

// plainLinks reports whether previews of links are off in a room.
func plainLinks(state []*event.Event) bool {
	for _, e := range state {
		if e != nil && e.Type.Type == previews.Type && e.StateKey != nil && *e.StateKey == "" {
			disabled, _ := e.Content.Raw["disable"].(bool)
			return disabled
		}
	}
	return false
}

// said returns a string member of an event's content; "": the content does not have it.
func said(e *event.Event, key string) string {
	text, _ := e.Content.Raw[key].(string)
	return text
}

// invites reports whether an invitation is one of the owner's to a direct room. state is what the homeserver shows of
// the room. Some of it comes from the homeserver of whoever invites, which may have made it up: so there is one event
// about the bot, which is the invitation itself.
func (p people) invites(state []*event.Event) bool {
	found := false
	for _, e := range state {
		if e == nil || e.Type.Type != event.StateMember.Type || e.GetStateKey() != string(p.bot) {
			continue
		}
		direct, _ := e.Content.Raw["is_direct"].(bool)
		if found || !direct || e.Sender != p.owner || said(e, "membership") != "invite" {
			return false
		}
		found = true
	}
	return found
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
	unread                // a message of the owner that is no text, such as a file
	notice                // a notice of the owner's, by which programs answer: no program answers it
)

// read decides about one event, and returns the text of a message. An edit is a message of its own with the new text: a
// secret may have come with it. The words of another message that a reply quotes are not the text.
func (p people) read(e *event.Event) (kind, string) {
	if e == nil || e.Sender != p.owner || e.StateKey != nil {
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
		About struct {
			Answers *struct{} `json:"m.in_reply_to"`
		} `json:"m.relates_to"`
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
	case content.Kind == string(event.MsgNotice):
		return notice, ""
	case content.Kind != string(event.MsgText) || content.Body == nil:
		return unread, ""
	case content.New == nil && content.About.Answers != nil:
		return words, answer(*content.Body)
	}
	return words, *content.Body
}

// answer is the text of a reply without the quotation before it, which is the words of another message. Programs for
// chats that write one begin each of its lines with a mark.
func answer(body string) string {
	if !strings.HasPrefix(body, "> <") && !strings.HasPrefix(body, "> * <") {
		return body
	}
	for {
		line, rest, more := strings.Cut(body, "\n")
		if line != ">" && !strings.HasPrefix(line, "> ") {
			return strings.TrimPrefix(body, "\n")
		}
		if !more {
			return ""
		}
		body = rest
	}
}

// Mistake returns what is wrong with an account, or nil. It does not contain the token.
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
