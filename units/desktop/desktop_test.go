package desktop

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// noticeboard is a desktop that shows notices, on a real bus of the test.
type noticeboard struct {
	bus     *dbus.Conn
	address string
	can     []string
	shown   chan notified
	closed  chan uint32
}

type notified struct {
	title, body string
	actions     []string
	hints       map[string]dbus.Variant
	expire      int32
}

func (s *noticeboard) GetCapabilities() ([]string, *dbus.Error) { return s.can, nil }

func (s *noticeboard) Notify(
	_ string, _ uint32, _, title, body string, actions []string, hints map[string]dbus.Variant, expire int32,
) (uint32, *dbus.Error) {
	s.shown <- notified{title, body, actions, hints, expire}
	return 7, nil
}

func (s *noticeboard) CloseNotification(n uint32) *dbus.Error {
	s.closed <- n
	return nil
}

// newNoticeboard starts a bus, with a desktop on it that can do something.
func newNoticeboard(t *testing.T, can ...string) *noticeboard {
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
	s := &noticeboard{address: strings.TrimSpace(address), can: can}
	s.shown, s.closed = make(chan notified, 9), make(chan uint32, 9)
	if s.bus, err = dbus.Connect(s.address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.bus.Close() })
	if err := s.bus.Export(s, noticesPath, notices); err != nil {
		t.Fatal(err)
	}
	if _, err := s.bus.RequestName(notices, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	return s
}

// getenv has what a test says of the environment, in pairs.
func getenv(pairs ...string) func(string) string {
	return func(name string) string {
		if i := slices.Index(pairs, name); i >= 0 && i%2 == 0 {
			return pairs[i+1]
		}
		return ""
	}
}

// TestDesktop: a notice is text, its button opens what it is to open and no other signal does, and it can be taken
// back.
func TestDesktop(t *testing.T) {
	s := newNoticeboard(t, "body-markup", "actions")
	opened := make(chan bool, 9)
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.address), func() error {
		opened <- true
		return errors.New("no terminal")
	})
	if err != nil {
		t.Fatal(err)
	}
	n := Notice{ID: "id", Title: "<i>", Body: "<b>&", Button: "Look at it", For: 9 * time.Second}
	if err := d.Show(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if got := <-s.shown; got.title != "<i>" || got.body != "&lt;b&gt;&amp;" || got.expire != 9000 ||
		!slices.Equal(got.actions, []string{"default", "Look at it", "open", "Look at it"}) ||
		got.hints["urgency"].Value() != byte(2) {
		t.Errorf("%+v", got)
	}
	emit := func(name string, values ...any) {
		if err := s.bus.Emit(noticesPath, notices+"."+name, values...); err != nil {
			t.Fatal(err)
		}
	}
	emit("ActionInvoked", uint32(8), "open") // of another program
	emit("ActionInvoked", "odd")
	emit("NotificationClosed", uint32(8), uint32(2))
	emit("ActionInvoked", uint32(7), "open")
	<-opened
	if err := d.Withdraw("id"); err != nil {
		t.Fatal(err)
	}
	if n := <-s.closed; n != 7 {
		t.Errorf("notice %d is closed", n)
	}
	if err := d.Withdraw("id"); err != nil { // it is not shown
		t.Fatal(err)
	}
	if err := d.Show(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	<-s.shown
	d.Close()
	if n := <-s.closed; n != 7 || len(opened) != 0 || len(s.closed) != 0 {
		t.Errorf("%d is closed, %d opened, %d more closed", n, len(opened), len(s.closed))
	}
}

// TestPlainDesktop: what a desktop cannot do is not asked of it.
func TestPlainDesktop(t *testing.T) {
	s := newNoticeboard(t)
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.address), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n := Notice{Body: "<b>", Button: "Look at it"}
	if err := d.Show(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if got := <-s.shown; len(got.actions) != 0 || got.body != "<b>" {
		t.Errorf("%+v", got)
	}
}

// TestNoDesktop: without a bus, or without a desktop on it, the error says so.
func TestNoDesktop(t *testing.T) {
	if _, err := Open(getenv(), nil); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("%v", err)
	}
	_, err := Open(getenv("XDG_RUNTIME_DIR", t.TempDir()), nil)
	if err == nil || !strings.Contains(err.Error(), "connecting to the session's bus") {
		t.Errorf("%v", err)
	}
	hello := Notice{ID: "id"}
	s := newNoticeboard(t)
	if _, err := s.bus.ReleaseName(notices); err != nil {
		t.Fatal(err)
	}
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.address), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.Show(t.Context(), hello)
	if err == nil || !strings.Contains(err.Error(), "asking the desktop for notices") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Show(ctx, hello); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
