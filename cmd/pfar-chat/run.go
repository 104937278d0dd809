package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pfar/pfar/cmd/pfar-chat/matrix"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/backoff"
	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/chat/desk"
	"github.com/pfar/pfar/units/confine"
	"github.com/pfar/pfar/units/control"
	sdjournal "github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/operator/ask"
	"github.com/pfar/pfar/units/plan"
	"github.com/pfar/pfar/units/question"
)

// options are the arguments.
type options struct {
	attach, way, control, gateway string // sockets; attach may be ""
	state                         string // directory
}

// run holds the conversation until ctx ends.
func run(ctx context.Context, o options) error {
	if err := units.NoCore(); err != nil { // messages may be secrets
		return err
	}
	e, err := readPlan()
	if err != nil {
		return err
	}
	if o.way == "" || o.control == "" || o.gateway == "" || o.state == "" {
		return errors.New("--way, --control, --gateway and --state are needed")
	}
	if err := os.MkdirAll(o.state, 0o700); err != nil {
		return fmt.Errorf("making the directory of the conversation: %w", err)
	}
	known := catalog.Load(nil, "")
	full := func() { _, _ = daemon.SdNotify(false, units.NotifyLogFull+"=1") }
	log := slog.New(sdjournal.New(&sdjournal.Counted{To: os.Stderr, Every: units.LogSegment, Full: full}))
	c, err := newConversation(settings{
		account: e, way: wayTo(o.way), state: o.state, log: log,
		setups: &desk.Setups{Control: control.Client{Path: o.control}, Chat: e.Name},
		asker: desk.Asker{
			HTTP: &http.Client{Transport: ask.Transport(o.gateway, os.Getuid())}, Client: e.Account.Client,
			Most: gate.Public, // the operator of the homeserver can read the room
		},
		known: func(name string) bool { _, is := known.Find(name); return is },
	})
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	p := &presence{path: o.attach, log: log, fail: fail}
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.end()
	l, err := question.Listener()
	if err != nil {
		return fmt.Errorf("taking over the socket of notices: %w", err)
	}
	if err := confine.Process(o.state); err != nil {
		return err
	}
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { fail(notices{to: c.client, log: log}.serve(ctx, l)) })
	return c.keep(ctx, p.turn)
}

// long is how long a conversation is held until the failures before it count no more.
const long = 10 * time.Minute

// keep holds the conversation until ctx ends: when it has ended it begins again, later each time. turn is told whether
// it is held. The error is the cause of ctx's end; nil: it was told to end.
func (c *conversation) keep(ctx context.Context, turn func(holds bool)) error {
	for failures := 1; ; failures++ {
		began := time.Now()
		err := c.hold(ctx, func() error {
			turn(true)
			_, err := daemon.SdNotify(false, daemon.SdNotifyReady)
			return err
		})
		turn(false)
		if time.Since(began) > long {
			failures = 1
		}
		pause := backoff.Offline().After(failures)
		if ctx.Err() == nil {
			c.log.Warn("the conversation has ended, beginning it again", "after", pause, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		}
	}
}

// readPlan reads the plan: the account and its homeserver.
func readPlan() (inspector.External, error) {
	var p plan.Inspection
	raw, err := units.Credential("plan")
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err == nil {
		p.Inspector, err = p.Inspector.Declared()
	}
	if err == nil && p.Inspector.Account == nil {
		err = errors.New("the plan has no Matrix account")
	}
	if err != nil {
		return p.Inspector, fmt.Errorf("reading the plan: %w", err)
	}
	return p.Inspector, nil
}

// atWay is the address of each request to pfar-egress, which sends it to the homeserver of the plan instead.
const atWay = "http://homeserver"

// wayTo returns a client whose connections all go to the socket of pfar-egress.
func wayTo(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 4,
	}}
}

// settings are the parts of a conversation.
type settings struct {
	account inspector.External
	way     *http.Client
	state   string // directory
	setups  chat.Setups
	asker   chat.Asker
	known   func(service string) bool
	log     *slog.Logger
}

// conversation is a conversation with one owner in one or more rooms. Its methods are called from one goroutine.
type conversation struct {
	settings
	client     *matrix.Client
	deletions  chat.Deletions
	unanswered chat.Unanswered
	talks      map[string]*chat.Talk // by room
}

func newConversation(s settings) (*conversation, error) {
	client, err := matrix.New(matrix.Config{
		Account: matrix.Account{Homeserver: atWay, User: s.account.Account.User, Owner: s.account.Account.Owner},
		HTTP:    s.way, State: s.state, Log: s.log,
	})
	if err != nil {
		return nil, err
	}
	deletions, err := chat.OpenDeletions(filepath.Join(s.state, "deletions"))
	if err != nil {
		return nil, err
	}
	unanswered, err := chat.OpenUnanswered(filepath.Join(s.state, "unanswered"))
	if err != nil {
		return nil, err
	}
	return &conversation{
		settings: s, client: client, deletions: deletions, unanswered: unanswered, talks: map[string]*chat.Talk{},
	}, nil
}

// hold takes messages until ctx ends. Before, it deletes messages that an earlier process left. It calls ready when it
// has reached the homeserver.
func (c *conversation) hold(ctx context.Context, ready func() error) error {
	err := c.client.Connect(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	for _, room := range c.client.Rooms() {
		c.talk(ctx, room)
	}
	if err := ready(); err != nil {
		c.log.Warn("notifying the runner, ignoring", "error", err)
	}
	return ended(ctx, c.client.Run(ctx, func(ctx context.Context, m chat.Message) error {
		return c.talk(ctx, m.Room).Take(ctx, m)
	}))
}

// ended returns the error of a conversation; nil: ctx ended it.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// talk returns the conversation in a room. Package matrix has checked that only the owner is there.
func (c *conversation) talk(ctx context.Context, room string) *chat.Talk {
	t := c.talks[room]
	if t == nil {
		t = &chat.Talk{
			Room: room, Owner: c.account.Account.Owner, Platform: c.client, Setups: c.setups, Asker: c.asker,
			Deletions: c.deletions, Unanswered: c.unanswered, Known: c.known,
		}
		c.talks[room] = t
		if err := t.Start(ctx); err != nil { // the owner knows, unless the room refuses words
			c.log.Warn("deleting or answering messages of before", "room", room, "error", err.Error())
		}
	}
	return t
}
