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
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// listen serves answers to those that allowed lets in, and returns the socket's path and a function that ends it.
func listen(t *testing.T, allowed func(Peer) bool, answer Answer) (string, func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, allowed, answer) }()
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
			return send(Response{Secrets: []string{"a", "b"}})
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
		if _, err := readRequest(server); !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v", err)
		}
	})
}
