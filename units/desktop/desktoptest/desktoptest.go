// Package desktoptest is a desktop that shows notices, on a real bus of its own, for tests: it takes notices, and
// presses their buttons.
package desktoptest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
)

// Of the desktop's notices (Desktop Notifications Specification 1.2).
const (
	notices     = "org.freedesktop.Notifications"
	noticesPath = "/org/freedesktop/Notifications"
)

// First is the number of the first notice. Each has one of its own, as the specification asks: a program may hear what
// became of a notice when it shows the next one.
const First uint32 = 7

// Board is a desktop. Its channels take nine notices that nobody looks at.
type Board struct {
	Address string      // of its bus, as DBUS_SESSION_BUS_ADDRESS
	Shown   chan Notice // as programs ask for them
	Closed  chan uint32 // the numbers of those that programs take back

	t   testing.TB
	bus *dbus.Conn
}

// Notice is one as a program asks for it.
type Notice struct {
	Number      uint32
	Title, Body string
	Actions     []string // pairs of a key and what its button says
	Hints       map[string]dbus.Variant
	Expire      int32 // milliseconds
}

// New starts a bus, with a desktop on it that says it can do something, such as "actions". Both end with the test.
func New(t testing.TB, can ...string) *Board {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "session.conf")
	text := `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd"><busconfig><type>session</type>
<listen>unix:dir=` + dir + `</listen><policy context="default"><allow send_destination="*" eavesdrop="true"/>
<allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.Command("dbus-daemon", "--config-file="+config, "--nofork", "--print-address=1")
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Kill()
		_ = daemon.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	b := &Board{Address: strings.TrimSpace(address), Shown: make(chan Notice, 9), Closed: make(chan uint32, 9), t: t}
	if b.bus, err = dbus.Connect(b.Address); err != nil {
		t.Fatal(err)
	}
	calls := make(chan *dbus.Message, 64)
	t.Cleanup(func() {
		b.bus.Eavesdrop(nil) // godbus may send on the channel that Close closes
		b.bus.Close()
		close(calls)
	})
	if _, err := b.bus.RequestName(notices, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	b.bus.Eavesdrop(calls) // these calls are for the desktop
	go b.serve(calls, can)
	return b
}

// serve answers calls until the test ends. It has sent an answer when it tells of the call, as Export would
// not: what the desktop sends next comes behind that.
func (b *Board) serve(calls <-chan *dbus.Message, can []string) {
	number := First
	for m := range calls {
		if m.Type != dbus.TypeMethodCall {
			continue
		}
		switch member, _ := m.Headers[dbus.FieldMember].Value().(string); member {
		case "GetCapabilities":
			b.answer(m, can)
		case "Notify":
			n := Notice{Number: number}
			var program, icon string
			var replaces uint32
			err := dbus.Store(m.Body, &program, &replaces, &icon, &n.Title, &n.Body, &n.Actions, &n.Hints, &n.Expire)
			if err != nil {
				b.t.Errorf("a notice that is none: %v", err)
			}
			b.answer(m, number)
			number++
			b.Shown <- n
		case "CloseNotification":
			var n uint32
			if err := dbus.Store(m.Body, &n); err != nil {
				b.t.Errorf("the number of a notice: %v", err)
			}
			b.answer(m)
			b.Closed <- n
		default:
			b.t.Errorf("the desktop is asked for %q", member)
		}
	}
}

func (b *Board) answer(m *dbus.Message, values ...any) {
	r := &dbus.Message{Type: dbus.TypeMethodReply, Body: values, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
		dbus.FieldDestination: m.Headers[dbus.FieldSender],
	}}
	if len(values) > 0 {
		r.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(values...))
	}
	b.bus.Send(r, nil)
}

// Emit sends a signal of the desktop, such as ActionInvoked.
func (b *Board) Emit(name string, values ...any) {
	b.t.Helper()
	if err := b.bus.Emit(noticesPath, notices+"."+name, values...); err != nil {
		b.t.Fatal(err)
	}
}

// Press presses the button of a notice that has some key.
func (b *Board) Press(n Notice, key string) {
	b.t.Helper()
	b.Emit("ActionInvoked", n.Number, key)
}

// Leave takes the desktop from the bus.
func (b *Board) Leave() {
	b.t.Helper()
	b.bus.Eavesdrop(nil)
	if _, err := b.bus.ReleaseName(notices); err != nil {
		b.t.Fatal(err)
	}
}
