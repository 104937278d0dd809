package inspector

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Notice is how somebody is told that calls wait for a person, at a URL or in a chat.
type Notice struct {
	Format string        `json:"format,omitempty"` // one of Formats; "": it is for a chat
	Chat   string        `json:"chat,omitempty"`   // a chat of chat.d, whose process sends the notice; "": URL is told
	Every  time.Duration `json:"every_ns"`         // the shortest time between two
}

// Formats of notices: JSON, as Waiting has it with a text, and a message as ntfy publishes it.
const (
	Webhook = "webhook"
	Ntfy    = "ntfy"
)

// Formats are the words for them.
var Formats = []string{Webhook, Ntfy}

// keyMark stands in the URL of a notice for its key, where the key is a part of the address.
const keyMark = "{key}"

// notice checks what is said of a notice, and adds its defaults. It has a Notice of its own from then on.
func (e *External) notice(bad func(attribute, format string, args ...any)) {
	n := new(Notice)
	*n = *e.Notice
	e.Notice = n
	defaults(&e.Chunk, modelChunk) // which it does not need
	defaults(&e.Parallel, 1)
	defaults(&n.Every, time.Minute)
	if n.Every < time.Second || n.Every > time.Hour {
		bad("every", "%v: want 1s to 1h", n.Every)
	}
	if len(e.Exec) > 0 || e.Model != "" {
		bad("", "is a notice, which has neither exec nor model")
	}
	if n.Chat != "" {
		e.noticeInChat(n, bad)
		return
	}
	if n.Format == "" {
		n.Format = Webhook
	}
	if !slices.Contains(Formats, n.Format) {
		bad("format", "%.50q is not one of %q", n.Format, Formats)
	}
	if e.URL == "" {
		bad("", "has neither url nor chat: want one of them")
		return
	}
	e.remote(bad)
	u, err := url.Parse(e.URL)
	switch marked := strings.Contains(e.URL, keyMark); {
	case err != nil: // remote has said so
	case marked && e.Key == "":
		bad("url", "has %s, and there is no key", keyMark)
	case n.Format == Ntfy && (strings.Trim(u.Path, "/") == "" || marked):
		bad("url", "has no topic: want https://HOST/TOPIC")
	}
}

// noticeInChat checks what is said of a notice for a chat: its process knows how to reach the owner.
func (e *External) noticeInChat(n *Notice, bad func(attribute, format string, args ...any)) {
	if len(n.Chat) > maxName || !named.MatchString(n.Chat) {
		bad("chat", "%.50q is not the name of a chat: want the name of a file in chat.d, without its ending", n.Chat)
	}
	for _, one := range []struct {
		attribute string
		is        bool
	}{
		{"url", e.URL != ""}, {"format", n.Format != ""}, {"key", e.Key != ""}, {"allow_private", len(e.AllowPrivate) > 0},
	} {
		if one.is {
			bad(one.attribute, "stands beside chat: leave it out, because the chat has an address and a token of its own")
		}
	}
}

// Address is the URL with the key in the place that it has there. bearer reports that it has none: the key, if there is
// one, is a bearer token.
func (e External) Address(key string) (address string, bearer bool) {
	if !strings.Contains(e.URL, keyMark) {
		return e.URL, key != ""
	}
	return strings.ReplaceAll(e.URL, keyMark, url.QueryEscape(key)), false
}

// Waiting is what a notice says. It has the owner's names, tools' names of letters, digits, dashes and underscores,
// links to the owner's console, and words of pfar's; nothing else that a server or a model has written.
type Waiting struct {
	Version int           `json:"version"` // 1
	Count   int           `json:"waiting"` // calls that nobody has been told of before
	Calls   []WaitingCall `json:"calls"`   // the first of them, at most MaxCalls
}

// MaxCalls bounds how many calls a notice names.
const MaxCalls = 8

// WaitingCall is one call of a notice.
type WaitingCall struct {
	Client string `json:"client"`
	Server string `json:"server"`
	Tool   string `json:"tool,omitempty"` // "": it is no tool, or its name might be read as more than a name
	Effect string `json:"effect"`         // as gate.Effect has it
	Link   string `json:"link,omitempty"` // opens it at the remote console; "": there is none
}

// PlainName returns the name of a tool if nobody can read more than a name in it, and else nothing. It has no dot and
// no slash: a program that shows notices may take such a word for a link.
func PlainName(name string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	if len(name) > 64 || strings.Trim(name, plain) != "" {
		return ""
	}
	return name
}

// Title says how many calls wait.
func (w Waiting) Title() string {
	if w.Count == 1 {
		return "pfar: a call waits for approval"
	}
	return fmt.Sprintf("pfar: %d calls wait for approval", w.Count)
}

// Link opens the call that a notice is about; "": it is about several, or there is no link.
func (w Waiting) Link() string {
	if w.Count != 1 || len(w.Calls) != 1 {
		return ""
	}
	return w.Calls[0].Link
}

// Text names the calls, one a line, each with its link on the next line.
func (w Waiting) Text() string {
	var lines []string
	for _, c := range w.Calls {
		what := c.Server
		if c.Tool != "" {
			what += "." + c.Tool
		}
		lines = append(lines, fmt.Sprintf("%s calls %s (%s)", c.Client, what, effectWords(c.Effect)))
		if c.Link != "" {
			lines = append(lines, c.Link)
		}
	}
	if more := w.Count - len(w.Calls); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

func effectWords(effect string) string {
	if effect == "none" {
		return "only reads"
	}
	return effect
}

// Told is what has become of a notice: the answer of the process that sends it.
type Told struct {
	Error string `json:"error,omitempty"` // why it was not sent, in words of pfar's
}
