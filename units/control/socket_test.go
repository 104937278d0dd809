package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// listen serves answers to owners and guests, and returns the socket's path and a function that ends it.
func listen(t *testing.T, owner func(Peer) bool, answer Answer, guests ...Guest) (string, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- newServer(owner, guests, answer).serve(ctx, l) }()
	stop := func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return path, stop
}

func everyone(Peer) bool { return true }

func TestPeerThatMayNotAskIsRefused(t *testing.T) {
	path, _ := listen(t, func(Peer) bool { return false }, func(context.Context, Peer, Request, func(Response) error) error {
		t.Error("answered a peer that may not ask")
		return nil
	})
	_, err := Client{path}.Do(t.Context(), Request{Verb: Status})
	if !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want ErrDenied", err)
	}
}

// TestChatMayOnlySetUp: on the socket of a chat the user of its process has set-ups, with secrets as long as a message,
// and nobody else anything.
func TestChatMayOnlySetUp(t *testing.T) {
	serve := func(uid int) Client {
		path := filepath.Join(t.TempDir(), "chat.sock")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- ServeChat(ctx, l, uid, func(_ context.Context, _ Peer, _ Request, send func(Response) error) error {
				return send(Response{})
			})
		}()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return Client{path}
	}
	own, other := serve(os.Getuid()), serve(os.Getuid()+1)
	for _, v := range verbs {
		_, err := own.Do(t.Context(), Request{Verb: v})
		if may := v == Begin || v == Supply; may != (err == nil) || !may && !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", v, err)
		}
		if _, err := other.Do(t.Context(), Request{Verb: v}); !errors.Is(err, ErrDenied) {
			t.Errorf("%s, of another user: %v", v, err)
		}
	}
	if _, err := own.Do(t.Context(), Request{Verb: Supply, Secret: strings.Repeat("\x01", 64<<10)}); err != nil {
		t.Errorf("a secret as long as a message: %v", err)
	}
	longer := Request{Verb: Supply, Secret: strings.Repeat("x", maxTalk)}
	if _, err := own.Do(t.Context(), longer); !errors.Is(err, ErrInvalid) {
		t.Errorf("a longer one: %v", err)
	}
}

// TestLookersMayOnlyLook: whoever the socket's mode lets in, root as well, asks for nothing that changes something that
// is declared. A console has only the rights of whoever asks for it.
func TestLookersMayOnlyLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "look.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var asked []Verb
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- ServeLooks(ctx, l, func(_ context.Context, _ Peer, r Request, send func(Response) error) error {
			asked = append(asked, r.Verb)
			return send(Response{})
		})
	}()
	for _, v := range verbs {
		_, err := Client{path}.Do(t.Context(), Request{Verb: v})
		may := v == Status || v == Watch || v == Secrets || v == Console || v == Logout
		if may != (err == nil) || !may && !errors.Is(err, ErrDenied) {
			t.Errorf("%s: %v", v, err)
		}
	}
	cancel()
	if err := <-done; err != nil || len(asked) != 5 {
		t.Errorf("asked for %v, %v", asked, err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	path, _ := listen(t, everyone, func(_ context.Context, _ Peer, r Request, _ func(Response) error) error {
		t.Errorf("answered %+v", r)
		return nil
	})
	for _, bad := range []string{
		`{}`, `{"verb":"exec"}`, `{"verb":""}`, `{"verb":"Status"}`, `[]`, `null`, `"status"`, `{"verb":"status","argv":["sh"]}`,
		`{"verb":1}`, "status\n", `{"verb":"store","key":"k","secret":"hunter2"`,
		`{"verb":"store","secret":"` + strings.Repeat("hunter2", maxRequest/7) + `"}`,
	} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			io.WriteString(c, bad)
			c.(*net.UnixConn).CloseWrite()
		}()
		var r Response
		err = json.NewDecoder(c).Decode(&r)
		c.Close()
		if err != nil || r.Code != CodeInvalid || r.Error == "" {
			t.Errorf("request %.60q: response %+v, %v; want code %q", bad, r, err, CodeInvalid)
		}
		if strings.Contains(r.Error, "hunter2") {
			t.Errorf("the refusal quotes the secret: %q", r.Error)
		}
	}
}

func TestAnotherUsersSocketIsRefused(t *testing.T) {
	if os.Getuid() == 0 {
		// SO_PEERCRED of a listener is the effective uid at listen(2), which root alone may choose; as an
		// ordinary user no second uid is at hand.
		path := filepath.Join(t.TempDir(), "control.sock")
		l := listenAs(t, path, 65534)
		defer l.Close()
		if _, err := Dial(t.Context(), path); !errors.Is(err, ErrDenied) {
			t.Errorf("got %v, want ErrDenied", err)
		}
	}
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none.sock")); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v, want ErrNotRunning", err)
	}
}

func TestDo(t *testing.T) {
	path, _ := listen(t, everyone, func(_ context.Context, p Peer, r Request, send func(Response) error) error {
		if p.UID != os.Getuid() || p.PID != os.Getpid() {
			t.Errorf("peer %+v, want uid %d and pid %d", p, os.Getuid(), os.Getpid())
		}
		switch r.Verb {
		case Secrets:
			return send(Response{Secrets: []Secret{{Key: "a"}, {Key: "b"}}})
		case Store:
			return send(Response{})
		case Stop:
			return errors.New("the unit is stuck")
		}
		return fmt.Errorf("%w: %q", ErrNoServer, r.Server)
	})
	c := Client{path}
	if r, err := c.Do(t.Context(), Request{Verb: Secrets}); err != nil || len(r.Secrets) != 2 {
		t.Errorf("secrets: %+v, %v", r, err)
	}
	if _, err := c.Do(t.Context(), Request{Verb: Store, Key: "k", Secret: strings.Repeat("x", 64<<10)}); err != nil {
		t.Errorf("store: %v", err)
	}
	if _, err := c.Do(t.Context(), Request{Verb: Start, Server: "x"}); !errors.Is(err, ErrNoServer) || err.Error() != `no such server: "x"` {
		t.Errorf("start: %v", err)
	}
	var refused *Refused
	if _, err := c.Do(t.Context(), Request{Verb: Stop}); !errors.As(err, &refused) || refused.Code != "" {
		t.Errorf("stop: %v", err)
	}
}

func TestWatchEndsWithEitherSide(t *testing.T) {
	gone := make(chan struct{}, 1)
	path, stop := listen(t, everyone, func(ctx context.Context, _ Peer, _ Request, send func(Response) error) error {
		defer func() { gone <- struct{}{} }() // also when the client leaves between the two
		for i := range 2 {
			if err := send(Response{Status: &Report{Endpoint: fmt.Sprint(i)}}); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	c := Client{path}
	enough := errors.New("seen both")
	var seen []string
	err := c.Watch(t.Context(), func(r Report) error {
		if seen = append(seen, r.Endpoint); len(seen) == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || len(seen) != 2 {
		t.Errorf("got %v after %q", err, seen)
	}
	<-gone // the server's side noticed

	ctx, cancel := context.WithCancel(t.Context())
	if err := c.Watch(ctx, func(Report) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled watch: %v", err)
	}
	<-gone

	first := true
	err = c.Watch(t.Context(), func(Report) error {
		if first {
			first = false
			go stop()
		}
		return nil
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("watch at the server's end: %v, want EOF", err)
	}
}

func TestSilentPeerTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer client.Close()
		server.SetReadDeadline(time.Now().Add(requestTimeout))
		if _, err := readRequest(server, maxRequest); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}

// TestGuests: the gateway of a pfard that runs as root has a user of its own, and must get nothing from the vault.
func TestGuests(t *testing.T) {
	nobody := func(Peer) bool { return false }
	open := []Verb{Open, Close}
	for _, tt := range []struct {
		name   string
		guests []Guest
		may    []Verb
	}{
		{"nobody is a guest", nil, nil},
		{"somebody else is", []Guest{{os.Getuid() + 1, verbs}}, nil},
		{"a guest without verbs", []Guest{{UID: os.Getuid()}}, nil},
		{"the first entry counts", []Guest{{UID: os.Getuid()}, {os.Getuid(), verbs}}, nil},
		{"a guest for two verbs", []Guest{{os.Getuid(), open}}, open},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, _ := listen(t, nobody, func(_ context.Context, _ Peer, r Request, send func(Response) error) error {
				if !slices.Contains(tt.may, r.Verb) {
					t.Errorf("%q was carried out", r.Verb)
				}
				return send(Response{})
			}, tt.guests...)
			for _, verb := range verbs {
				_, err := Client{path}.Do(t.Context(), Request{Verb: verb, Server: "notion", Key: "k", Secret: "s"})
				if want := !slices.Contains(tt.may, verb); errors.Is(err, ErrDenied) != want || !want && err != nil {
					t.Errorf("%q: %v", verb, err)
				}
			}
		})
	}
}

func TestAGuestsRequestIsShort(t *testing.T) {
	path, _ := listen(t, func(Peer) bool { return false }, func(_ context.Context, _ Peer, r Request, _ func(Response) error) error {
		t.Errorf("answered %.60q", r.Server)
		return nil
	}, Guest{os.Getuid(), verbs})
	if _, err := (Client{path}).Do(t.Context(), Request{Verb: Open, Server: strings.Repeat("x", maxGuest)}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// TestGuestsAreCounted: those that hold their connections keep out further guests, and nobody else.
func TestGuestsAreCounted(t *testing.T) {
	var owner atomic.Bool
	release, held := make(chan struct{}), make(chan struct{}, maxGuests)
	path, _ := listen(t, func(Peer) bool { return owner.Load() }, func(_ context.Context, _ Peer, r Request, send func(Response) error) error {
		if r.Verb == Open {
			held <- struct{}{}
			<-release
		}
		return send(Response{})
	}, Guest{os.Getuid(), []Verb{Open, Close}})
	answered := make(chan error, maxGuests)
	for range maxGuests {
		go func() {
			_, err := Client{path}.Do(t.Context(), Request{Verb: Open})
			answered <- err
		}()
	}
	for range maxGuests {
		<-held
	}
	if _, err := (Client{path}).Do(t.Context(), Request{Verb: Close}); !errors.Is(err, ErrBusy) {
		t.Errorf("one more guest: %v, want ErrBusy", err)
	}
	owner.Store(true)
	if _, err := (Client{path}).Do(t.Context(), Request{Verb: Status}); err != nil {
		t.Errorf("the owner among many guests: %v", err)
	}
	owner.Store(false)
	close(release)
	for range maxGuests {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	_, err := Client{path}.Do(t.Context(), Request{Verb: Close})
	for errors.Is(err, ErrBusy) { // an answer is there a moment before its place is free
		_, err = Client{path}.Do(t.Context(), Request{Verb: Close})
	}
	if err != nil {
		t.Errorf("after they have gone: %v", err)
	}
}
