package desktop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/units/desktop/desktoptest"
)

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
	s := desktoptest.New(t, "body-markup", "actions")
	opened := make(chan bool, 9)
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.Address), func() error {
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
	got := <-s.Shown
	if got.Title != "<i>" || got.Body != "&lt;b&gt;&amp;" || got.Expire != 9000 ||
		!slices.Equal(got.Actions, []string{"default", "Look at it", "open", "Look at it"}) ||
		got.Hints["urgency"].Value() != byte(2) {
		t.Errorf("%+v", got)
	}
	s.Emit("ActionInvoked", uint32(99), "open") // of another program
	s.Emit("ActionInvoked", "odd")
	s.Emit("NotificationClosed", uint32(99), uint32(2))
	s.Press(got, "open")
	<-opened
	if err := d.Withdraw("id"); err != nil {
		t.Fatal(err)
	}
	if n := <-s.Closed; n != desktoptest.First {
		t.Errorf("notice %d is closed", n)
	}
	if err := d.Withdraw("id"); err != nil { // it is not shown
		t.Fatal(err)
	}
	if err := d.Show(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	<-s.Shown
	d.Close()
	if n := <-s.Closed; n != desktoptest.First+1 || len(opened) != 0 || len(s.Closed) != 0 {
		t.Errorf("%d is closed, %d opened, %d more closed", n, len(opened), len(s.Closed))
	}
}

// TestPressedAtOnce: a button that is pressed as soon as the desktop has answered opens what it is to open, and a
// notice that is closed then is forgotten.
func TestPressedAtOnce(t *testing.T) {
	s := desktoptest.New(t, "actions")
	opened := make(chan bool, 9)
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.Address), func() error {
		opened <- true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	show := func(id string) {
		told := make(chan error, 1)
		go func() { told <- d.Show(t.Context(), Notice{ID: id, Button: "Look at it"}) }()
		n := <-s.Shown
		s.Press(n, "open")
		if id == "id" {
			s.Emit("NotificationClosed", n.Number, uint32(2))
		}
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		<-opened
	}
	const times = 50
	for range times {
		show("id")
	}
	show("another") // the signals before have been heard by then
	if all := d.all(); !slices.Equal(all, []string{"another"}) {
		t.Errorf("shown are %q", all)
	}
}

// TestPlainDesktop: what a desktop cannot do is not asked of it.
func TestPlainDesktop(t *testing.T) {
	s := desktoptest.New(t)
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.Address), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n := Notice{Body: "<b>", Button: "Look at it"}
	if err := d.Show(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	if got := <-s.Shown; len(got.Actions) != 0 || got.Body != "<b>" {
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
	s := desktoptest.New(t)
	s.Leave()
	d, err := Open(getenv("DBUS_SESSION_BUS_ADDRESS", s.Address), nil)
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
