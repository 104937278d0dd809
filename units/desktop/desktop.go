// Package desktop shows notices on the desktop of one session, each with a button: org.freedesktop.Notifications on the
// session's bus (Desktop Notifications Specification 1.2).
package desktop

import (
	"context"
	"errors"
	"fmt"
	"html"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	notices     = "org.freedesktop.Notifications"
	noticesPath = dbus.ObjectPath("/org/freedesktop/Notifications")
)

// patience bounds how long the desktop may take.
const patience = 30 * time.Second

// Notice is plain text to show.
type Notice struct {
	ID          string // of what it is about
	Title, Body string
	Button      string
	For         time.Duration // it is over then
}

// Desktop is the connection to one. Whatever else is on the session's bus may press a button too.
type Desktop struct {
	bus  *dbus.Conn
	open func() error
	done chan struct{}

	mu    sync.Mutex
	shown map[string]uint32 // the desktop's number of a notice, by its id
}

// Open connects to the bus of the desktop session that an environment names, and never starts one. It calls open when
// somebody presses the button of a notice.
func Open(getenv func(string) string, open func() error) (*Desktop, error) {
	address := getenv("DBUS_SESSION_BUS_ADDRESS")
	if dir := getenv("XDG_RUNTIME_DIR"); address == "" && dir != "" {
		address = "unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(dir, "bus"))
	}
	if address == "" {
		return nil, errors.New("neither DBUS_SESSION_BUS_ADDRESS nor XDG_RUNTIME_DIR is set")
	}
	bus, err := dbus.Connect(address)
	if err != nil {
		return nil, fmt.Errorf("connecting to the session's bus: %w", err)
	}
	d := &Desktop{bus: bus, open: open, done: make(chan struct{}), shown: map[string]uint32{}}
	signals := make(chan *dbus.Signal, 64)
	bus.Signal(signals)
	err = bus.AddMatchSignal(dbus.WithMatchSender(notices), dbus.WithMatchInterface(notices))
	if err != nil {
		bus.Close()
		return nil, fmt.Errorf("listening on the session's bus: %w", err)
	}
	go d.listen(signals)
	return d, nil
}

// Close takes back what is shown: without this process its buttons do nothing.
func (d *Desktop) Close() {
	for _, id := range d.all() {
		_ = d.Withdraw(id)
	}
	d.bus.Close()
	<-d.done
}

func (d *Desktop) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make([]string, 0, len(d.shown))
	for id := range d.shown {
		ids = append(ids, id)
	}
	return ids
}

// listen follows what becomes of notices until the bus is closed.
func (d *Desktop) listen(signals <-chan *dbus.Signal) {
	defer close(d.done)
	for s := range signals {
		var number, reason uint32
		var key string
		switch {
		case s.Name == notices+".ActionInvoked" && dbus.Store(s.Body, &number, &key) == nil:
			if d.forget(number, false) {
				_ = d.open() // there is nobody to tell
			}
		case s.Name == notices+".NotificationClosed" && dbus.Store(s.Body, &number, &reason) == nil:
			d.forget(number, true)
		}
	}
}

// forget reports whether a notice is one of these, and forgets it if it is gone.
func (d *Desktop) forget(number uint32, gone bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, n := range d.shown {
		if n == number {
			if gone {
				delete(d.shown, id)
			}
			return true
		}
	}
	return false
}

// Show shows a notice until it is over, somebody closes it, or it is withdrawn.
func (d *Desktop) Show(ctx context.Context, n Notice) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	object := d.bus.Object(notices, noticesPath)
	var can []string
	if err := object.CallWithContext(ctx, notices+".GetCapabilities", 0).Store(&can); err != nil {
		return fmt.Errorf("asking the desktop for notices: %w", err)
	}
	if slices.Contains(can, "body-markup") {
		n.Body = html.EscapeString(n.Body)
	}
	actions := []string{}
	if slices.Contains(can, "actions") {
		actions = []string{"default", n.Button, "open", n.Button}
	}
	const critical = byte(2) // it stays until somebody has seen it
	hints := map[string]dbus.Variant{"urgency": dbus.MakeVariant(critical)}
	over := int32(min(n.For, 24*time.Hour).Milliseconds())
	var number uint32
	d.mu.Lock() // listen, too, waits until it is known: a button may be pressed before the answer is read here
	defer d.mu.Unlock()
	call := object.CallWithContext(ctx, notices+".Notify", 0, "pfar", uint32(0), "", n.Title, n.Body, actions, hints, over)
	if err := call.Store(&number); err != nil {
		return fmt.Errorf("showing a notice: %w", err)
	}
	d.shown[n.ID] = number
	return nil
}

// Withdraw takes back the notice with an id, if there is one.
func (d *Desktop) Withdraw(id string) error {
	d.mu.Lock()
	number, ok := d.shown[id]
	delete(d.shown, id)
	d.mu.Unlock()
	if !ok {
		return nil
	}
	call := d.bus.Object(notices, noticesPath).Call(notices+".CloseNotification", dbus.FlagNoReplyExpected, number)
	return call.Err // of the bus: a notice that is gone is no error
}
