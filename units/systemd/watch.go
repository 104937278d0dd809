package systemd

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

const (
	unitPath          = "/org/freedesktop/systemd1/unit"
	propertiesChanged = "org.freedesktop.DBus.Properties.PropertiesChanged"
	manager           = "org.freedesktop.systemd1.Manager"
	reloading         = manager + ".Reloading"
)

// everyUnit stands for all units: systemd has read their files again.
const everyUnit = "*"

// watch sends the names of units whose state may have changed, until ctx ends or the connection does. It has one of its
// own: go-systemd looks for subscribers without a lock.
func (b *Bus) watch(ctx context.Context) (<-chan string, error) {
	conn, err := dial(ctx, b.address)
	if err != nil {
		return nil, fmt.Errorf("watching systemd: %w", err)
	}
	signals := make(chan *dbus.Signal, 1024) // godbus keeps what does not fit
	conn.Signal(signals)
	if err := subscribe(ctx, conn, b.address); err != nil {
		conn.Close()
		return nil, fmt.Errorf("watching systemd: %w", err)
	}
	names := make(chan string)
	go func() {
		defer close(names)
		defer conn.Close()
		for {
			select {
			case s, ok := <-signals:
				if !ok {
					return
				}
				if unit := changedUnit(s); unit != "" {
					select {
					case names <- unit:
					case <-ctx.Done():
					}
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return names, nil
}

// subscribe asks for signals. Those who are connected to systemd itself get all of them.
func subscribe(ctx context.Context, conn *dbus.Conn, address string) error {
	if direct(address) {
		return nil
	}
	for _, match := range [][]dbus.MatchOption{
		{dbus.WithMatchInterface("org.freedesktop.DBus.Properties"), dbus.WithMatchPathNamespace(unitPath)},
		{dbus.WithMatchInterface(manager), dbus.WithMatchMember("Reloading")},
	} {
		if err := conn.AddMatchSignalContext(ctx, match...); err != nil {
			return err
		}
	}
	return conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.Subscribe", 0).Err
}

// changedUnit returns the unit that a signal says is in another state; "" if it says something else.
func changedUnit(s *dbus.Signal) string {
	if s.Name == reloading && len(s.Body) > 0 && s.Body[0] == false { // it has ended
		return everyUnit
	}
	if s.Name != propertiesChanged || path.Dir(string(s.Path)) != unitPath || len(s.Body) < 2 {
		return ""
	}
	changed, _ := s.Body[1].(map[string]dbus.Variant)
	_, active := changed["ActiveState"]
	_, sub := changed["SubState"]
	if !active && !sub {
		return ""
	}
	return unescape(path.Base(string(s.Path)))
}

// unescape reads an element of an object's path, in which other characters than letters and digits are "_" and two
// hexadecimal digits (sd_bus_path_encode(3)).
func unescape(element string) string {
	var name strings.Builder
	for i := 0; i < len(element); i++ {
		if element[i] == '_' && i+2 < len(element) {
			if c, err := strconv.ParseUint(element[i+1:i+3], 16, 8); err == nil {
				name.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		name.WriteByte(element[i])
	}
	return name.String()
}
