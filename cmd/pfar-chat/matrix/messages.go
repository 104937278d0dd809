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

const (
	// part is the most of a text that one message has, in bytes: an event has at most 64 KiB, in which JSON may take six
	// bytes for one.
	part  = 8 << 10
	parts = 16 // messages for one text
)

// Send writes a text into a room, in several messages if it is long. A room in which pfar takes no messages gets none.
// A text that needs more than 16 messages is an error, and the room gets its beginning and a word about that. An error
// has no word of the text.
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
	list, whole := split(text)
	for n, body := range list {
		content := map[string]any{
			// Programs do not answer notices. m.mentions says that the text calls for nobody, whatever is in it.
			"msgtype": event.MsgNotice, "body": body, "m.mentions": map[string]any{},
		}
		txn := mautrix.ReqSendEvent{TransactionID: c.api.TxnID()} // one, so that another try is no second message
		if key != "" {
			txn.TransactionID = fmt.Sprintf("pfar-%s-%d", key, n)
		}
		err := c.tried(ctx, func(ctx context.Context) error {
			_, err := c.api.SendMessageEvent(ctx, room, event.EventMessage, content, txn)
			return err
		})
		if err != nil {
			return fmt.Errorf("sending a message: %w", plain(err))
		}
	}
	if !whole {
		return fmt.Errorf("sending a message: the text has %d bytes, more than %d messages hold", len(text), parts)
	}
	return nil
}

const (
	mark      = "| " // before each line of what others wrote (wording.Quote)
	continued = "(continued) "
	leftOut   = "The rest of this text is left out: it is too long for a chat."
)

// split is a text as messages, each at most part long. A message that begins within a line says so, and has the mark of
// that line: no words of a model or a server begin a message as if they were pfar's. whole is false if the rest is left
// out.
func split(text string) (list []string, whole bool) {
	begin, line := "", "" // what the next message begins with, and the mark of the line that its text begins in
	for text != "" {
		if len(list) == parts-1 && len(begin)+len(text) > part {
			return append(list, leftOut), false
		}
		first := cut(text, part-len(begin))
		list = append(list, begin+first)
		rest, ended := strings.CutPrefix(text[len(first):], "\n")
		if last := strings.LastIndexByte(first, '\n'); last >= 0 || line == "" {
			line = markOf(first[last+1:])
		}
		if text, begin = rest, line+continued; ended {
			begin, line = "", ""
		}
	}
	return list, true
}

// markOf is the mark with which a line begins.
func markOf(line string) string {
	if strings.HasPrefix(line, mark) {
		return mark
	}
	return ""
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
	hushed := c.silence(ctx)
	sum := sha256.Sum256([]byte(m.Room + " " + m.ID))
	err := c.tried(ctx, func(ctx context.Context) error {
		_, err := c.api.RedactEvent(ctx, room, message, mautrix.ReqRedact{
			Reason: "it may hold a secret",
			TxnID:  "pfar-" + hex.EncodeToString(sum[:16]), // the same after a crash, which is then no second redaction
		})
		return err
	})
	if err == nil || errors.Is(err, mautrix.MNotFound) { // a homeserver may answer before it has carried it out
		err = c.tried(ctx, func(ctx context.Context) error { return c.shown(ctx, room, message) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("deleting a message: %w", plain(err)), hushed)
	}
	return hushed
}

// shown is an error if the homeserver shows the content of a message.
func (c *connection) shown(ctx context.Context, room id.RoomID, message id.EventID) error {
	left, err := c.api.GetEvent(ctx, room, message)
	switch {
	case errors.Is(err, mautrix.MNotFound):
		return nil
	case err == nil && left == nil:
		return errAnswer
	case err == nil && len(left.Content.Raw) > 0:
		return errors.New("the homeserver still shows it")
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
