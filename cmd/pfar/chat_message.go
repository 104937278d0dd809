package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

const messageHelp = `Let your set-up take a chat message before a model reads it. For programs that people chat with:
run it on each message, before anything else.

Read the message from standard input. If it is for a set-up, print the reply to standard error, and nothing
else. Any other message goes to standard output, unchanged. A message is for a set-up if

  - a set-up waits for a secret, and the message looks like that secret: it begins with a prefix that such
    secrets have, fits their pattern, or is one word of 15 to 500 characters, nearly all of them letters,
    digits or -_.:=+/. pfar stores it in the vault, and prints "Delete the message from the chat" at once. The
    set-up may then take minutes;
  - a set-up waits for a secret, and the message is "cancel", "nevermind" or "skip";
  - it is "connect", "add", "setup", "set up", "integrate" or "enable", followed by one name, such as "connect
    notion". pfar sets up that service, as "pfar add" does, and asks for nothing but its secrets. A person
    needs to have written the message: do not pass on words of a model.

pfar message returns when the set-up has ended or waits for a secret. After Ctrl-C the set-up goes on. With
--json, print one object: whether the message was taken, whether it was a secret, and the reply.`

// messageVerb offers messages of a chat to the set-up of this user.
type messageVerb struct{ *pfar }

func (v messageVerb) messageCommand() *cobra.Command {
	return v.outputFlag(&cobra.Command{
		Use: "message", Short: "Let your set-up take a chat message before a model reads it", Long: messageHelp,
		Example: example("echo connect notion | pfar message", "pfar message --json <message.txt"), RunE: alone(v.run),
	})
}

// heard is what became of a message.
type heard struct {
	Taken  bool              `json:"taken"`  // else it is not for a set-up
	Secret bool              `json:"secret"` // delete it from the chat
	Reply  string            `json:"reply,omitempty"`
	Server string            `json:"server,omitempty"`
	State  control.FlowState `json:"state,omitempty"` // of the set-up
}

const maxChat = 1 << 20 // bytes

func (v messageVerb) run(ctx context.Context) error {
	if err := units.NoCore(); err != nil { // the message may be a secret
		return err
	}
	text, err := v.streams.answered(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(v.stdin, maxChat+1)) })
	if err != nil {
		return fmt.Errorf("reading the message: %w", err)
	}
	h := heard{}
	if len(text) <= maxChat { // a longer one is no secret and no command
		h, err = v.hear(ctx, string(text))
	}
	if err != nil {
		return err
	}
	switch {
	case v.json():
		return v.printJSON(h)
	case h.Taken:
		_, err = fmt.Fprintln(v.stderr, h.Reply)
	default:
		_, err = io.Copy(v.stdout, io.MultiReader(bytes.NewReader(text), v.stdin))
	}
	return err
}

// hear offers a message to the set-up that waits, then to those that can begin.
func (v messageVerb) hear(ctx context.Context, text string) (heard, error) {
	h, err := v.offer(ctx, text)
	if h.Taken || err != nil && !errors.Is(err, control.ErrNoFlow) {
		return h, err
	}
	name, is := setup.Command(text, func(name string) bool {
		_, known := servicesVerb(v).naming(ctx, name).Find(name)
		return known
	})
	if !is {
		return heard{}, nil
	}
	return v.begin(ctx, name)
}

var errNotForIt = errors.New("the message is not for the set-up")

// offer has the set-up of this user take a message, if it waits for one that is like it.
func (v messageVerb) offer(ctx context.Context, text string) (h heard, err error) {
	var asked *control.Flow
	now, err := v.follow(ctx, nil, func(f control.Flow) (more bool, err error) {
		if asked != nil {
			return sameQuestion(*asked, f), nil
		}
		if f.Wants == nil {
			return false, errNotForIt
		}
		value, secret := setup.Credential(text, *f.Wants)
		if setup.Cancels(text) { // pfard tells "skip" from the others
			value, secret = strings.TrimSpace(text), false
		}
		if value == "" {
			return false, errNotForIt
		}
		asked, h = &f, heard{Taken: true, Secret: secret}
		_, err = v.control().Supply(ctx, control.FlowAnswer{ID: f.ID, Key: f.Wants.Key}, value)
		if secret { // what the set-up does now may take minutes
			fmt.Fprintln(v.stderr, "Delete the message from the chat: it is a secret.")
		}
		return true, err
	})
	if errors.Is(err, errNotForIt) {
		return heard{}, nil
	}
	return v.told(h, now, nil), err
}

// sameQuestion reports whether nothing has become of the answer to a question yet.
func sameQuestion(asked, now control.Flow) bool {
	return now.Wants != nil && now.Wants.Key == asked.Wants.Key && now.State == asked.State &&
		now.Attempts == asked.Attempts && now.Retry == asked.Retry && now.Detail == asked.Detail
}

// begin sets a service up, and ends this user's other set-up.
func (v messageVerb) begin(ctx context.Context, name string) (heard, error) {
	h := heard{Taken: true, Server: name}
	a, err := addVerb(v).proposed(servicesVerb(v).naming(ctx, name), []string{name}, additions{})
	if code, _ := classify(err); code == exitNoSuch {
		h.Reply = escape(err.Error(), oneLine)
		return h, nil
	}
	if err != nil {
		return h, err
	}
	if missing := a.unanswered(); len(missing) > 0 {
		h.Reply = fmt.Sprintf("%s needs more than its secrets. Run: pfar add %[1]s --set %s=VALUE", name, missing[0].Name)
		return h, nil
	}
	if err := a.declare(); err != nil {
		return h, err
	}
	report, err := v.report(ctx)
	if err != nil {
		return h, err
	}
	order := a.order()
	if s, err := findServer(report, a.server()); err == nil {
		if s.State == control.Running || s.State == control.Sleeping {
			h.Reply, h.State = fmt.Sprintf("%s is set up: %s", s.Name, describe(s)), control.FlowComplete
			return h, nil
		}
		order = &control.SetUp{Server: s.Name, Service: name}
	}
	now, err := v.follow(ctx, order, func(control.Flow) (bool, error) { return false, nil })
	return v.told(h, now, a), err
}

// follow begins a set-up or, if order is nil, joins that of this user. It returns when the set-up has ended or waits
// for a person, unless each wants more then.
func (v messageVerb) follow(
	ctx context.Context, order *control.SetUp, each func(control.Flow) (more bool, err error),
) (now control.Flow, err error) {
	enough := errors.New("enough")
	joins := order == nil
	err = v.control().SetUp(ctx, order, func(f control.Flow) error {
		now = f
		if f.Wants == nil && !f.Over() && !joins {
			return nil
		}
		joins = false
		more, err := each(f)
		if err == nil && !more {
			err = enough
		}
		return err
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return now, err
}

// told returns h with a reply that describes the state of the set-up. a is a set-up that has just begun, else nil.
func (v messageVerb) told(h heard, now control.Flow, a *adding) heard {
	if !h.Taken {
		return h
	}
	h.Server, h.State = now.Server, now.State
	switch {
	case now.State == control.FlowComplete:
		h.Reply = now.Server + " is set up."
		if now.Tools > 0 { // pfard does not count hidden ones
			h.Reply = fmt.Sprintf("%s is set up: %s.", now.Server, plural.Count(now.Tools, "tool"))
		}
	case now.State == control.FlowFailed:
		h.Reply = fmt.Sprintf("%s is not set up: %s", now.Server, escape(cmp.Or(now.Detail, string(now.Reason)), oneLine))
	case now.Wants != nil:
		if a == nil {
			a = &adding{pfar: v.pfar}
		}
		values := newSecretValues(a)
		values.shown[now.Wants.Key] = a.service.Name == "" && now.State == control.CredentialRefused
		h.Reply = strings.TrimSpace(fmt.Sprintf("%s needs %s.\n%s", now.Server, now.Wants.Key, values.explanation(now)))
	default:
		h.Reply = now.Server + ": the set-up goes on"
	}
	return h
}
