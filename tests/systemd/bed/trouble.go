package bed

import (
	"fmt"
	"testing"
)

// BreakBus takes the system bus away, its socket included, until MendBus or the end of the test.
func (m *Machine) BreakBus(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { m.Try("sh", "-c", mendBus) })
	m.Shell(t, `systemctl mask --runtime --quiet dbus.service dbus.socket
systemctl kill --signal=KILL dbus.service || :
systemctl stop dbus.socket dbus.service
rm -f /run/dbus/system_bus_socket`)
}

// MendBus brings the system bus back.
func (m *Machine) MendBus(t testing.TB) {
	t.Helper()
	m.Shell(t, mendBus)
}

const mendBus = `systemctl unmask --runtime --quiet dbus.service dbus.socket
systemctl reset-failed dbus.service dbus.socket 2>/dev/null || :
systemctl start dbus.socket dbus.service`

// SmallDisk puts a disk of so many KiB under a directory, with what the directory has now.
func (m *Machine) SmallDisk(t testing.TB, dir string, kib int) {
	t.Helper()
	const script = `mkdir -p "$1" /run/bed-disk
mount -t tmpfs -o "size=$2k" bed-disk /run/bed-disk
chmod --reference="$1" /run/bed-disk; chown --reference="$1" /run/bed-disk
cp -a "$1/." /run/bed-disk/
mount --move /run/bed-disk "$1" 2>/dev/null || { mount --bind /run/bed-disk "$1"; umount /run/bed-disk; }`
	m.Run(t, "sh", "-euc", script, "sh", dir, fmt.Sprint(kib))
}

// FillDisk leaves no byte free on a SmallDisk, by a directory of it, until EmptyDisk.
func (m *Machine) FillDisk(t testing.TB, dir string) {
	t.Helper()
	m.Run(t, "sh", "-euc", `test "$(df --output=source "$1" | tail -1)" = bed-disk
cat /dev/zero >"$1/.bed-fill" 2>/dev/null || :; ! echo one more >"$1/.bed-more" 2>/dev/null; rm -f "$1/.bed-more"`, "sh", dir)
}

// EmptyDisk takes away what FillDisk wrote.
func (m *Machine) EmptyDisk(t testing.TB, dir string) {
	t.Helper()
	m.Run(t, "rm", "-f", dir+"/.bed-fill")
}
