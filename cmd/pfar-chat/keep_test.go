package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/pfar/pfar/policies/inspector"
)

// TestKeep: a conversation that the homeserver ends, because it does not accept the token, begins again, and tells what
// is shown of it. It ends when it is told to, and with the cause if there is one.
func TestKeep(t *testing.T) {
	var asked atomic.Int32
	home := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"errcode":"M_UNKNOWN_TOKEN"}`))
	}))
	defer home.Close()
	to, err := url.Parse(home.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConversation(settings{
		account: inspector.External{Role: inspector.Role{
			Account: &inspector.Account{User: "@pfar:home.test", Owner: "@ada:home.test"},
		}},
		way: &http.Client{Transport: way{to, "t0k3n"}}, state: t.TempDir(), log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("pfard refuses it")
	for name, cause := range map[string]error{"told to": nil, "refused": refused} {
		ctx, end := context.WithCancelCause(t.Context())
		turns := make(chan bool)
		ended := make(chan error, 1)
		asked.Store(0)
		go func() { ended <- c.keep(ctx, func(holds bool) { turns <- holds }) }()
		for range 2 { // a second lies between
			if <-turns {
				t.Errorf("%s: it is held without a token", name)
			}
		}
		if n := asked.Load(); n < 2 {
			t.Errorf("%s: the homeserver is asked %d times", name, n)
		}
		end(cause)
		if err := <-ended; !errors.Is(err, cause) {
			t.Errorf("%s: it ends with %v", name, err)
		}
	}
}
