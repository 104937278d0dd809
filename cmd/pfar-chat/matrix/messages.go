package matrix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"github.com/pfar/pfar/units/chat"
)

// part is the most of a text that one message has, in bytes: an event has at most 64 KiB, in which JSON may take six
// bytes for one.
const part = 8 << 10

// Send writes a text into a room, in several messages if it is long. A room in which pfar takes no messages gets none.
// An error has no word of the text.
func (c *Client) Send(ctx context.Context, room, text string) error {
	return c.SendOnce(ctx, room, "", text)
}

// SendOnce is Send, but the homeserver takes no part of a text twice that has the same key: the key is in the
// transaction, which a crash does not change.
func (c *Client) SendOnce(ctx context.Context, room, key, text string) error {
	why, err := c.look(ctx, id.RoomID(room))
	switch {
	case err != nil:
		return fmt.Errorf("looking who is in a room: %w", plain(err))
	case why != "":
		return fmt.Errorf("pfar sends nothing to a room that it does not trust: %s", why)
	}
	return c.write(ctx, id.RoomID(room), key, text)
}

// write sends a text whatever the room is, at most once if it has a key. It is for words of pfar's own.
func (c *Client) write(ctx context.Context, room id.RoomID, key, text string) error {
	for n := 0; text != ""; n++ {
		var request mautrix.ReqSendEvent
		if key != "" {
			request.TransactionID = fmt.Sprintf("pfar-%s-%d", key, n)
		}
		first := cut(text, part)
		text = strings.TrimPrefix(text[len(first):], "\n")
		content := map[string]any{
			// Programs do not answer notices. m.mentions says that the text calls for nobody, whatever is in it.
			"msgtype": event.MsgNotice, "body": first, "m.mentions": map[string]any{},
		}
		err := c.once(ctx, func(ctx context.Context) error {
			_, err := c.api.SendMessageEvent(ctx, room, event.EventMessage, content, request)
			return err
		})
		if err != nil {
			return fmt.Errorf("sending a message: %w", plain(err))
		}
	}
	return nil
}

// cut returns the beginning of a text, at most so many bytes: to the end of a line if one ends in its second half, and
// never a part of a character.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	if line := strings.LastIndexByte(text[:end], '\n'); line >= most/2 {
		end = line
	}
	return text[:end]
}

// Delete redacts a message, and returns nil when the homeserver no longer shows its content. It switches off the
// account's notifications before, if that has not been done. An error has no word of the message.
func (c *Client) Delete(ctx context.Context, m chat.Message) error {
	room, message := id.RoomID(m.Room), id.EventID(m.ID)
	hushed := c.once(ctx, c.hush)
	sum := sha256.Sum256([]byte(m.Room + " " + m.ID))
	err := c.once(ctx, func(ctx context.Context) error {
		_, err := c.api.RedactEvent(ctx, room, message, mautrix.ReqRedact{
			Reason: "it may hold a secret",
			TxnID:  "pfar-" + hex.EncodeToString(sum[:16]), // the same after a crash, which is then no second redaction
		})
		return err
	})
	if err != nil && !errors.Is(err, mautrix.MNotFound) {
		return errors.Join(fmt.Errorf("deleting a message: %w", plain(err)), hushed)
	}
	pause := c.pause
	for range tries { // a homeserver may answer before it has carried the redaction out
		err = c.once(ctx, func(ctx context.Context) error { return c.shown(ctx, room, message) })
		if !errors.Is(err, errShown) || sleep(ctx, pause) != nil {
			break
		}
		pause *= 2
	}
	if err != nil {
		return errors.Join(fmt.Errorf("deleting a message: %w", plain(err)), hushed)
	}
	return hushed
}

var errShown = errors.New("the homeserver still shows it")

// shown is errShown if the homeserver shows the content of a message.
func (c *Client) shown(ctx context.Context, room id.RoomID, message id.EventID) error {
	left, err := c.api.GetEvent(ctx, room, message)
	switch {
	case errors.Is(err, mautrix.MNotFound):
		return nil
	case err == nil && len(left.Content.Raw) > 0:
		return errShown
	}
	return err
}

// Announce tells the owner something where they have talked with pfar last. It returns false if there is no such room.
func (c *Client) Announce(ctx context.Context, text string) (bool, error) {
	home := c.progress.now().Home
	if home == "" {
		return false, nil
	}
	return true, c.Send(ctx, string(home), text)
}

// look decides about a room by its state now.
func (c *Client) look(ctx context.Context, room id.RoomID) (why Refusal, err error) {
	err = c.once(ctx, func(ctx context.Context) error {
		state, err := c.api.StateAsArray(ctx, room)
		if err == nil {
			why = c.judge(state)
		}
		return err
	})
	return why, err
}
