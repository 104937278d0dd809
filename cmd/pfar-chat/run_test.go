package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/tests/homeserver"
	"github.com/pfar/pfar/units/chat"
	"github.com/pfar/pfar/units/control"
)

// way plays pfar-egress: it adds the token, and reaches the homeserver whatever it is asked for.
type way struct {
	to    *url.URL
	token string
}

func (w way) RoundTrip(r *http.Request) (*http.Response, error) {
	out := httputil.ProxyRequest{In: r, Out: r.Clone(r.Context())}
	out.Out.URL.Scheme, out.Out.URL.Host, out.Out.Host = w.to.Scheme, w.to.Host, ""
	out.Out.Header.Set("Authorization", "Bearer "+w.token)
	return http.DefaultTransport.RoundTrip(out.Out)
}

// pfard plays the set-ups of pfard, with one service that takes one token, and the gateway, whose model repeats what it
// is asked.
type pfard struct {
	mu     sync.Mutex
	flow   *control.Flow
	stored []string
	asked  []string
	dies   func() // called when it has stored a token; nil: nothing
}

func (p *pfard) Waiting(context.Context) (*control.Flow, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flow, nil
}

func (p *pfard) Answer(_ context.Context, _ control.Flow, value string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored, p.flow = append(p.stored, value), nil
	if p.dies != nil {
		p.dies()
	}
	return nil
}

func (p *pfard) After(_ context.Context, asked control.Flow) (control.Flow, error) {
	asked.Wants, asked.State = nil, control.FlowComplete
	return asked, nil
}

func (p *pfard) Begin(_ context.Context, service string) (control.Flow, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flow = &control.Flow{
		ID: "f1", Server: service, State: control.AwaitingCredential,
		Wants: &control.Wanted{Key: service + "_token", Prefixes: []string{"ntn_"}},
	}
	return *p.flow, nil
}

func (p *pfard) Plan(_ context.Context, question string) (chat.Plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, question)
	return chat.Plan{Text: "the model says: " + question}, nil
}

func (p *pfard) Run(context.Context, chat.Plan, func(string)) (string, error) {
	return "", errors.New("there is nothing to run")
}

// begin holds a conversation with a homeserver. end ends it and returns when it has ended.
func begin(t *testing.T, s *homeserver.Server, state string, bot, ada homeserver.Person, p *pfard) (end func()) {
	_, end = hold(t, s, state, bot, ada, p)
	return end
}

func hold(t *testing.T, s *homeserver.Server, state string, bot, ada homeserver.Person, p *pfard) (
	c *conversation, end func(),
) {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err = newConversation(settings{
		account: inspector.External{Role: inspector.Role{Account: &inspector.Account{User: bot.ID, Owner: ada.ID}}},
		way:     &http.Client{Transport: way{to, bot.Token}}, state: state, setups: p, asker: p,
		known: func(name string) bool { return name == "notion" }, log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.hold(ctx, func() error { return nil }) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the conversation ends with %v", err)
		}
	})
	t.Cleanup(end)
	p.mu.Lock()
	p.dies = nil
	p.mu.Unlock()
	return c, end
}

// TestSetUp sets a service up by chat. Afterwards the token is nowhere at the homeserver, in no answer to a client, and
// no model has read it.
func TestSetUp(t *testing.T) {
	const token = "ntn_5q81LmX0aTgVb7RkPw3sYh5dWc2Q9e"
	s := homeserver.Start(t)
	bot, ada := s.Register(t, "pfar"), s.Register(t, "ada")
	p := &pfard{}
	begin(t, s, t.TempDir(), bot, ada, p)
	room := ada.Room(t, bot.ID, nil)
	ada.Say(t, room, "what is new?")
	ada.Await(t, room, bot.ID, "the model says: what is new?")
	ada.Say(t, room, "connect notion")
	ada.Await(t, room, bot.ID, "notion_token")
	ada.Say(t, room, "  "+token+"\n")
	ada.Await(t, room, bot.ID, "The secret is stored. Its message is deleted.")
	ada.Await(t, room, bot.ID, "notion is connected")
	ada.Say(t, room, "my token is "+token)
	ada.Await(t, room, bot.ID, "looks as if it held a secret")
	ada.Say(t, room, "yes")
	ada.Await(t, room, bot.ID, "No plan waits for your answer")

	p.mu.Lock()
	if len(p.stored) != 1 || p.stored[0] != token {
		t.Errorf("pfard has %d secrets, want the token once", len(p.stored))
	}
	if len(p.asked) != 1 {
		t.Errorf("the model was asked %q, want the question alone", p.asked)
	}
	p.mu.Unlock()
	for _, who := range []homeserver.Person{ada, bot} {
		for _, path := range []string{
			who.At(room, "messages?dir=b&limit=200"), "/_matrix/client/v3/sync?full_state=true",
			"/_matrix/client/v3/notifications",
		} {
			if _, answer := who.Try(t, http.MethodGet, path, nil); strings.Contains(string(answer), token) {
				t.Errorf("%s gets the token by %s", who.ID, path)
			}
		}
	}
	s.End(t)
	places, _ := s.Find(t, token)
	for _, place := range places {
		t.Errorf("the token is in %s", place)
	}
	if found, _ := s.Find(t, "connect notion"); len(found) == 0 {
		t.Error("the search finds no other message: it looks in the wrong place")
	}
}

// TestEndsBeforeDeleting ends the process between storing a token and deleting its message: the next process deletes
// it.
func TestEndsBeforeDeleting(t *testing.T) {
	const token = "ntn_7r21KmX0aTgVb7RkPw3sYh5dWc2Q9e"
	s := homeserver.Start(t)
	bot, ada := s.Register(t, "pfar"), s.Register(t, "ada")
	state, p := t.TempDir(), &pfard{}
	end := begin(t, s, state, bot, ada, p)
	room := ada.Room(t, bot.ID, nil)
	ada.Say(t, room, "connect notion")
	ada.Await(t, room, bot.ID, "notion_token")
	died := make(chan struct{})
	p.mu.Lock()
	p.dies = func() { s.End(t); close(died) } // so that the deletion fails, as it would after a crash
	p.mu.Unlock()
	ada.Say(t, room, token)
	<-died
	end()
	s.Begin(t)
	begin(t, s, state, bot, ada, p)
	ada.Await(t, room, bot.ID, "It has deleted the message")
	for _, e := range ada.History(t, room) {
		if strings.Contains(e.Content.Body, token) {
			t.Errorf("the room still shows the token in %s", e.ID)
		}
	}
}
