// Package systemd runs servers as units of a systemd, the user's or the machine's, and is the only code of pfar that
// speaks D-Bus.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Bus is a connection to one systemd. Its methods may be called at the same time.
type Bus struct {
	conn    *sd.Conn
	address string
	lost    <-chan struct{} // closed when systemd can tell of no job any more
}

// Names that systemd gives its errors (systemd's bus-common-errors.h).
const (
	errUnitExists = "org.freedesktop.systemd1.UnitExists"
	errNoSuchUnit = "org.freedesktop.systemd1.NoSuchUnit"
	errMasked     = "org.freedesktop.systemd1.UnitMasked"
)

// ErrMasked is returned for a unit that the administrator has masked (systemctl(1)).
var ErrMasked = errors.New("masked by the administrator; systemctl unmask it")

// Connect returns a connection to the systemd that runs this process's user, for root to PID 1. ctx bounds the
// connecting only.
func Connect(ctx context.Context) (*Bus, error) {
	if os.Geteuid() == 0 {
		return ConnectTo(ctx, "unix:path=/run/systemd/private")
	}
	return ConnectTo(ctx, userAddresses(os.Getenv("XDG_RUNTIME_DIR"), os.Getenv("DBUS_SESSION_BUS_ADDRESS"), os.Geteuid())...)
}

// userAddresses are where the user's systemd may be heard, best first: its own socket, as systemctl does it, because a
// session bus need not be the one that systemd is on.
func userAddresses(runtimeDir, sessionBus string, uid int) []string {
	if runtimeDir == "" {
		runtimeDir = "/run/user/" + strconv.Itoa(uid) // where pam_systemd(8) makes it; su and sudo lose the variable
	}
	list := []string{"unix:path=" + dbus.EscapeBusAddressValue(filepath.Join(runtimeDir, "systemd/private"))}
	if sessionBus != "" {
		list = append(list, sessionBus)
	}
	return append(list, "unix:path="+dbus.EscapeBusAddressValue(filepath.Join(runtimeDir, "bus")))
}

// ConnectTo returns a connection to the first of the addresses that answers.
func ConnectTo(ctx context.Context, addresses ...string) (*Bus, error) {
	var first error // of the best address, which says most
	for _, address := range addresses {
		var signals *dbus.Conn // the last that it makes
		conn, err := sd.NewConnection(func() (_ *dbus.Conn, err error) {
			signals, err = dial(ctx, address)
			return signals, err
		})
		if err == nil {
			return &Bus{conn, address, signals.Context().Done()}, nil
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		return nil, errors.New("connecting to systemd: no address")
	}
	return nil, fmt.Errorf("connecting to systemd at %q: %w", addresses, first)
}

// dial connects and authenticates as the caller's uid. A message bus wants a Hello, systemd's own socket knows none.
func dial(ctx context.Context, address string) (*dbus.Conn, error) {
	// The connection outlives ctx: servers are removed after the caller was told to end.
	conn, err := dbus.Dial(address, dbus.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		conn.Close()
		return nil, err
	}
	if direct(address) { // a question, so that no signal is sent before systemd knows of the connection; it leaves Ping unanswered there
		err := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
			"org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.systemd1.Manager", "Version").Err
		if err != nil && !Answered(err) {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	if err := conn.Hello(); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// direct reports whether an address is systemd's own, and no message bus's.
func direct(address string) bool { return filepath.Base(address) == "private" }

// Close ends the connection; what was asked for stays.
func (b *Bus) Close() { b.conn.Close() }

// Connected reports whether the other side is still there; it goes when systemd executes itself anew (daemon-reexec).
func (b *Bus) Connected() bool { return b.conn.Connected() }

// await waits for the end of the job that start enqueues. systemd says it by a signal.
func (b *Bus) await(ctx context.Context, start func(done chan<- string) (int, error)) error {
	done := make(chan string, 1) // go-systemd sends with its lock held
	if _, err := start(done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return jobError(result)
		}
		return nil
	case <-b.lost:
		return errors.New("systemd hung up before its job had ended")
	case <-ctx.Done():
		return fmt.Errorf("waiting for systemd's job: %w", context.Cause(ctx))
	}
}

// jobError is how a job ended that did not do what it was to.
type jobError string

func (e jobError) Error() string { return fmt.Sprintf("systemd's job ended with %q", string(e)) }

// isError reports whether err is systemd's of that name.
func isError(err error, name string) bool {
	var e dbus.Error
	return errors.As(err, &e) && e.Name == name
}
