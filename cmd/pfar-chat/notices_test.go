package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/tests/homeserver"
	"github.com/pfar/pfar/units/question"
)

// room is where an owner is told, or not.
type room struct {
	told []string
	none bool
	fail error
}

func (r *room) Announce(_ context.Context, text string) (bool, error) {
	if r.none || r.fail != nil {
		return !r.none, r.fail
	}
	r.told = append(r.told, text)
	return true, nil
}

// noticed hands a notice to the process of a chat as the gateway does, and returns why it was not sent; "": it was.
func noticed(t *testing.T, to announcer, waiting any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- notices{to: to, log: slog.New(slog.DiscardHandler)}.serve(ctx, l) }()
	asked, err := json.Marshal(waiting)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := question.Ask(t.Context(), path, asked, 4<<10)
	var told inspector.Told
	if err == nil {
		err = json.Unmarshal(answer, &told)
	}
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	return told.Error
}

// TestNotices: a notice for a chat has the names and the link of each call, says that no word answers it, and says why
// it was not sent.
func TestNotices(t *testing.T) {
	w := inspector.Waiting{Version: 1, Count: 2, Calls: []inspector.WaitingCall{
		{Client: "laptop", Server: "mail", Tool: "send", Effect: "irreversible", Link: "https://pfar.test:7443/call/id"},
		{Client: "desk", Server: "notes", Effect: "none"},
	}}
	r := &room{}
	if why := noticed(t, r, w); why != "" {
		t.Errorf("it was not sent: %s", why)
	}
	const want = `pfar: 2 calls wait for approval
laptop calls mail.send (irreversible)
https://pfar.test:7443/call/id
desk calls notes (only reads)
You cannot answer this here: use pfar approvals or the console.`
	if len(r.told) != 1 || r.told[0] != want {
		t.Errorf("the owner reads %q, want %q", r.told, want)
	}
	for _, c := range []struct {
		to      *room
		waiting any
		want    string
	}{
		{&room{}, "x", "not of the same version"},
		{&room{}, inspector.Waiting{Version: 2, Count: 1}, "not of the same version"},
		{&room{}, inspector.Waiting{Version: 1}, "not of the same version"},
		{&room{none: true}, w, "send it a message"},
		{&room{fail: errors.New("the homeserver answers 403")}, w, "the homeserver answers 403"},
	} {
		if why := noticed(t, c.to, c.waiting); !strings.Contains(why, c.want) || len(c.to.told) > 0 {
			t.Errorf("%+v: %q and %q, want %q", c.waiting, why, c.to.told, c.want)
		}
	}
}

// TestNoticesAtHomeserver: at a real homeserver the owner is told in the room where they have written last, and a yes
// there is no approval.
func TestNoticesAtHomeserver(t *testing.T) {
	s := homeserver.Start(t)
	bot, ada := s.Register(t, "pfar"), s.Register(t, "ada")
	c, _ := hold(t, s, t.TempDir(), bot, ada, &pfard{})
	w := inspector.Waiting{Version: 1, Count: 1, Calls: []inspector.WaitingCall{
		{Client: "laptop", Server: "mail", Tool: "send", Effect: "irreversible"},
	}}
	if why := noticed(t, c.client, w); !strings.Contains(why, "send it a message") {
		t.Errorf("before there is a room: %q", why)
	}
	room := ada.Room(t, bot.ID, nil)
	ada.Say(t, room, "what is new?")
	ada.Await(t, room, bot.ID, "the model says")
	if why := noticed(t, c.client, w); why != "" {
		t.Errorf("it was not sent: %s", why)
	}
	ada.Await(t, room, bot.ID, "laptop calls mail.send (irreversible)")
	ada.Say(t, room, "yes")
	ada.Await(t, room, bot.ID, "No plan waits for your answer")
}
