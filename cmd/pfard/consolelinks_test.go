package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
)

// TestConsoleLinks: who awaits the use of a link learns of it when that very link has let somebody in, and that it is
// void when the console has ended. Who does not wait has one answer.
func TestConsoleLinks(t *testing.T) {
	c := &invited{
		nonces: make(chan string, 99), uids: make(chan int, 9), reports: make(chan string, 99),
		ends: make(chan *attach.Conn, 9), listen: attach.Listens{Port: 19300},
	}
	uid := os.Getuid() + 4711
	all := newConsoles(slog.New(slog.DiscardHandler), c, silent{}, trail.Dir{})
	type asked struct {
		nonce   string
		answers chan control.Response
		over    chan error
	}
	ask := func(ctx context.Context, await bool) asked {
		t.Helper()
		a := asked{answers: make(chan control.Response, 9), over: make(chan error, 1)}
		go func() {
			a.over <- all.answer(ctx, control.Peer{UID: uid}, await, func(r control.Response) error {
				a.answers <- r
				return nil
			})
		}()
		a.nonce = <-c.nonces
		if link := (<-a.answers).Link; link != "http://127.0.0.1:19300/"+a.nonce {
			t.Errorf("the link is %q", link)
		}
		return a
	}
	ends := func(a asked, name string, entered bool) {
		t.Helper()
		if err := <-a.over; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(a.answers) != 1 {
			t.Fatalf("%s: %d more answers", name, len(a.answers))
		}
		if r := <-a.answers; r.Entered != entered || r.Link != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	once := ask(t.Context(), false)
	if err := <-once.over; err != nil || len(once.answers) > 0 {
		t.Errorf("who does not wait: %v, %d more answers", err, len(once.answers))
	}
	end := <-c.ends
	enters := func(nonce string) {
		t.Helper()
		if err := end.Send(attach.Message{PageTalk: attach.PageTalk{Entered: nonce}}); err != nil {
			t.Fatal(err)
		}
	}
	first, second := ask(t.Context(), true), ask(t.Context(), true)
	enters("ANOTHER")
	enters(once.nonce)
	enters(second.nonce)
	enters(second.nonce) // a console that was taken over says what it likes
	ends(second, "used", true)
	if len(first.answers) > 0 {
		t.Error("a link counts as used when another one was")
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := ask(ctx, true)
	cancel()
	ends(gone, "nobody waits any more", false)
	for range 2 * maxOpenLinks {
		other := ask(t.Context(), false)
		<-other.over
	}
	s := all.of[uid]
	if n := len(s.links.list); n != maxOpenLinks {
		t.Errorf("%d links are kept", n)
	}
	last := ask(t.Context(), true)
	all.logout(uid)
	ends(first, "the console has ended", false)
	ends(last, "the console has ended", false)
	if err := all.answer(t.Context(), control.Peer{}, true, func(r control.Response) error {
		return fmt.Errorf("root gets %+v", r)
	}); err == nil || err.Error() == "" {
		t.Error("root has a console")
	}
}
