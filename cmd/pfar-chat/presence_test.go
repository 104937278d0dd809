package main

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// attachments plays pfard: each process that attaches is one of met, with its hello.
type attachments struct {
	l   *net.UnixListener
	met chan *attach.Conn
}

func playPfard(t *testing.T, path string, wantAgain ...bool) attachments {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a := attachments{l, make(chan *attach.Conn)}
	go func() {
		for _, again := range wantAgain {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			conn := attach.Accepted(c)
			m, _, err := conn.Receive()
			if err != nil || m.Hello == nil || *m.Hello != (attach.Hello{Chat: true, Again: again}) {
				t.Errorf("the first message is %+v, %v", m.Hello, err)
			}
			a.met <- conn
		}
	}()
	return a
}

// says wants the next message of a process to be its state.
func says(t *testing.T, conn *attach.Conn, state string) {
	t.Helper()
	m, _, err := conn.Receive()
	if err != nil || m.Notify[units.NotifyState] != state {
		t.Errorf("it says %+v, %v; want %q", m, err, state)
	}
}

// TestPresence: pfard hears whether the chat is held, also a pfard that comes later, and a process that it refuses does
// not go on.
func TestPresence(t *testing.T) {
	a := playPfard(t, filepath.Join(t.TempDir(), "attach.sock"), false, true, true)
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	p := &presence{path: a.l.Addr().String(), log: slog.New(slog.DiscardHandler), fail: fail}
	begun := make(chan error, 1)
	go func() { begun <- p.begin(ctx) }()
	welcome := func() *attach.Conn {
		conn := <-a.met
		if err := conn.Send(attach.Message{Welcome: &attach.Welcome{}}); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := welcome()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	says(t, conn, units.StateOffline)
	p.turn(true)
	says(t, conn, units.StateRunning)
	conn.Close() // pfard is started again
	conn = welcome()
	says(t, conn, units.StateRunning)
	p.turn(false)
	p.turn(false)
	p.turn(true)
	says(t, conn, units.StateOffline)
	says(t, conn, units.StateRunning)
	conn.Close()
	conn = <-a.met
	if err := conn.Send(attach.Message{Error: "the chat is declared no more"}); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !strings.Contains(cause.Error(), "declared no more") {
		t.Errorf("it ends with %v", cause)
	}
	p.end()

	alone := &presence{fail: func(err error) { t.Errorf("without pfard's socket: %v", err) }}
	if err := alone.begin(t.Context()); err != nil {
		t.Error(err)
	}
	alone.turn(true)
	alone.end()
}
