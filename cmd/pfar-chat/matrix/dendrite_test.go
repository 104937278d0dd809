package matrix

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/tests/homeserver"
	"github.com/pfar/pfar/units/chat"
)

// bot is a client that runs, and answers each message with "heard " and its text.
type bot struct {
	*Client
	stop context.CancelFunc
	end  chan error

	mu    sync.Mutex
	heard []chat.Message
}

// answerer starts one. also is done with each message before it is answered; nil: nothing.
func answerer(t *testing.T, c Config, also func(context.Context, *bot, chat.Message) error) *bot {
	t.Helper()
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	b := &bot{Client: client, stop: stop, end: make(chan error, 1)}
	take := func(ctx context.Context, m chat.Message) error {
		b.mu.Lock()
		b.heard = append(b.heard, m)
		b.mu.Unlock()
		if also != nil {
			if err := also(ctx, b, m); err != nil {
				return err
			}
		}
		return client.Send(ctx, m.Room, "heard "+m.Text)
	}
	go func() {
		err := client.Connect(ctx)
		if err == nil {
			err = client.Run(ctx, take)
		}
		b.end <- err
	}()
	t.Cleanup(func() { stop(); b.end <- <-b.end })
	return b
}

// kill ends the client without a shutdown, as a crash does. Only data on the disk survives.
func (b *bot) kill() {
	b.stop()
	b.end <- <-b.end
}

func (b *bot) texts() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.heard {
		list = append(list, m.Text)
	}
	return list
}

// account is a configuration of the account pfar, whose owner is ada.
func account(t *testing.T, s *homeserver.Server, pfar, ada homeserver.Person) Config {
	t.Helper()
	return Config{
		Account: Account{Homeserver: s.URL, User: pfar.ID, Owner: ada.ID, Token: pfar.Token}, HTTP: &http.Client{},
		State: t.TempDir(), Pause: 10 * time.Millisecond, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// TestWhoIsHeard has a homeserver carry messages of the owner and of others.
func TestWhoIsHeard(t *testing.T) {
	s := homeserver.Start(t)
	pfar, ada, eve := s.Register(t, "pfar"), s.Register(t, "ada"), s.Register(t, "eve")
	b := answerer(t, account(t, s, pfar, ada), nil)

	evil := eve.Room(t, pfar.ID, nil)
	eve.Say(t, evil, "stranger in a room of her own")
	loose := ada.Room(t, pfar.ID, map[string]any{"is_direct": false})
	ada.Say(t, loose, "in a room that is not direct")
	room := ada.Room(t, pfar.ID, nil)
	ada.Say(t, room, "first")
	ada.Await(t, room, pfar.ID, "heard first")
	if got := strings.Join(b.texts(), "|"); got != "first" {
		t.Fatalf("heard %q, want the owner's message in the direct room alone", got)
	}
	for name, r := range map[string]struct {
		who  homeserver.Person
		room string
	}{"a stranger's": {eve, evil}, "the owner's that is not direct": {ada, loose}} {
		var members struct{ Joined map[string]any }
		r.who.Do(t, http.MethodGet, r.who.At(r.room, "joined_members"), nil, &members)
		if _, in := members.Joined[pfar.ID]; in {
			t.Errorf("pfar has joined %s room", name)
		}
	}

	for name, to := range map[string]struct {
		options map[string]any
		want    string
	}{
		"encrypted": {map[string]any{"initial_state": []any{map[string]any{
			"type": "m.room.encryption", "content": map[string]any{"algorithm": "m.megolm.v1.aes-sha2"},
		}}}, "This room is encrypted"},
		"others":      {map[string]any{"invite": []string{pfar.ID, eve.ID}}, "other members"},
		"open":        {map[string]any{"preset": "public_chat"}, "without an invitation"},
		"no deleting": {map[string]any{"preset": "private_chat"}, "may not delete messages"},
	} {
		t.Run(name, func(t *testing.T) {
			refused := ada.Room(t, pfar.ID, to.options)
			// pfar may have joined before the homeserver has invited the others, and looks again at a message.
			ada.Say(t, refused, "in "+name)
			ada.Await(t, refused, pfar.ID, to.want)
			ada.Say(t, room, "after "+name)
			ada.Await(t, room, pfar.ID, "heard after "+name)
			for _, e := range ada.History(t, refused) {
				if strings.Contains(e.Content.Body, "heard") {
					t.Errorf("pfar answers in a room that it refuses: %q", e.Content.Body)
				}
			}
		})
	}
	if got := strings.Join(b.texts(), "|"); strings.Contains(got, "in ") {
		t.Errorf("heard %q", got)
	}

	t.Run("another member comes", func(t *testing.T) {
		ada.Do(t, http.MethodPost, ada.At(room, "invite"), map[string]string{"user_id": eve.ID}, nil)
		ada.Say(t, room, "with eve")
		ada.Await(t, room, pfar.ID, "other members")
		if err := b.Send(t.Context(), room, "private words"); err == nil {
			t.Error("pfar sends an answer to a room with others")
		}
	})
}

// TestLeaves: pfar leaves a room in which it finds others, and a secret that was pasted in a refused one is deleted.
func TestLeaves(t *testing.T) {
	const secret = "xoxb-1234567890-abcdefghijkl"
	s := homeserver.Start(t)
	pfar, ada, eve := s.Register(t, "pfar"), s.Register(t, "ada"), s.Register(t, "eve")
	others := ada.Room(t, pfar.ID, map[string]any{"invite": []string{pfar.ID, eve.ID}})
	room := ada.Room(t, pfar.ID, nil)
	b := answerer(t, account(t, s, pfar, ada), nil)
	ada.Await(t, others, pfar.ID, "other members")
	ada.Say(t, room, "first")
	ada.Await(t, room, pfar.ID, "heard first")
	var members struct{ Joined map[string]any }
	ada.Do(t, http.MethodGet, ada.At(others, "joined_members"), nil, &members)
	if _, in := members.Joined[pfar.ID]; in || len(b.Rooms()) != 1 {
		t.Errorf("pfar is in %q, and in the room with others: %v", b.Rooms(), in)
	}

	ada.Do(t, http.MethodPost, ada.At(room, "invite"), map[string]string{"user_id": eve.ID}, nil)
	ada.Say(t, room, secret)
	ada.Await(t, room, pfar.ID, "The message is deleted")
	_, answer := ada.Try(t, http.MethodGet, ada.At(room, "messages?dir=b&limit=200"), nil)
	if bytes.Contains(answer, []byte(secret)) {
		t.Error("the secret is still in the room")
	}
	_, state := ada.Try(t, http.MethodGet, ada.At(room, "state/org.matrix.room.preview_urls/"), nil)
	if !bytes.Contains(state, []byte(`"disable":true`)) {
		t.Errorf("previews of links are %s", state)
	}
}

// TestRedacted has a message deleted, and looks for its text everywhere at the homeserver.
func TestRedacted(t *testing.T) {
	s := homeserver.Start(t)
	pfar, ada := s.Register(t, "pfar"), s.Register(t, "ada")
	const secret = "ntn_Zq81LmX0aTgVb7RkPw3sYh5d"
	c := account(t, s, pfar, ada)
	answerer(t, c, func(ctx context.Context, b *bot, m chat.Message) error {
		if strings.Contains(m.Text, secret) {
			return b.Delete(ctx, m)
		}
		return nil
	})
	room := ada.Room(t, pfar.ID, nil)
	ada.Say(t, room, "ordinary words")
	ada.Await(t, room, pfar.ID, "heard ordinary")
	message := ada.Say(t, room, secret)
	// The answer quotes the secret here, so that the search below cannot fail to find anything: it is deleted after.
	quote := ada.Await(t, room, pfar.ID, "heard "+secret)
	ada.Do(t, http.MethodPut, ada.At(room, "redact/"+url.PathEscape(quote.ID)+"/q"), struct{}{}, nil)
	ada.Say(t, room, "the end")
	ada.Await(t, room, pfar.ID, "heard the end")

	event := url.PathEscape(message)
	for _, who := range []homeserver.Person{ada, pfar} {
		for _, path := range []string{
			who.At(room, "messages?dir=b&limit=200"), who.At(room, "messages?dir=f&limit=200"), who.At(room, "event/"+event),
			who.At(room, "context/"+event+"?limit=50"), who.At(room, "state"), who.At(room, "initialSync"),
			"/_matrix/client/v3/sync", "/_matrix/client/v3/sync?full_state=true", "/_matrix/client/v3/notifications",
			"/_matrix/client/v1/rooms/" + url.PathEscape(room) + "/relations/" + event,
		} {
			if _, answer := who.Try(t, http.MethodGet, path, nil); bytes.Contains(answer, []byte(secret)) {
				t.Errorf("%s gets the secret by %s", who.ID, path)
			}
		}
		_, answer := who.Try(t, http.MethodGet, who.At(room, "messages?dir=b&limit=200"), nil)
		if !bytes.Contains(answer, []byte("ordinary words")) {
			t.Errorf("%s does not see the other messages: %s", who.ID, answer)
		}
	}
	s.End(t)
	places, rows := s.Find(t, secret)
	for _, place := range places {
		t.Errorf("the secret is in %s", place)
	}
	if found, _ := s.Find(t, "ordinary words"); len(found) == 0 || rows < 100 {
		t.Errorf("the search found no other message in %d rows: it looks in the wrong place", rows)
	}
}

// TestRestarts ends the client between messages and in the middle of one.
func TestRestarts(t *testing.T) {
	s := homeserver.Start(t)
	pfar, ada := s.Register(t, "pfar"), s.Register(t, "ada")
	c := account(t, s, pfar, ada)
	b := answerer(t, c, nil)
	room := ada.Room(t, pfar.ID, nil)
	ada.Say(t, room, "one")
	ada.Await(t, room, pfar.ID, "heard one")
	b.kill()

	ada.Say(t, room, "two")
	for range 120 { // more than the homeserver sends at once
		ada.Event(t, room, "m.room.message", map[string]any{"msgtype": "m.notice", "body": "noise"})
	}
	ada.Say(t, room, "three")
	busy := make(chan struct{})
	b = answerer(t, c, func(ctx context.Context, _ *bot, m chat.Message) error {
		if m.Text == "three" {
			close(busy)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	<-busy
	if got := strings.Join(b.texts(), "|"); got != "two|three" {
		t.Fatalf("after a restart heard %q, want each message that came meanwhile, and no other", got)
	}
	b.kill()

	s.End(t)
	s.Begin(t)
	b = answerer(t, c, nil)
	ada.Await(t, room, pfar.ID, "does not begin that work again")
	ada.Say(t, room, "four")
	ada.Await(t, room, pfar.ID, "heard four")
	if got := strings.Join(b.texts(), "|"); got != "four" {
		t.Errorf("after a crash heard %q, want nothing twice", got)
	}
	if told, err := b.Announce(t.Context(), "A call waits."); !told || err != nil {
		t.Errorf("announcing: %v, %v", told, err)
	}
	ada.Await(t, room, pfar.ID, "A call waits.")
}
