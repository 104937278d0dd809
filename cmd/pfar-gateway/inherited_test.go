package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pfar/pfar/units"
)

// listening returns a listener's descriptor, as a runner passes it.
func listening(t *testing.T, network string) *os.File {
	t.Helper()
	address := "127.0.0.1:0"
	if network != "tcp" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestListenersOfASocketUnit: systemd gives all that one unit listens on the name of the unit.
func TestListenersOfASocketUnit(t *testing.T) {
	for _, order := range [][]string{{"tcp", "unix", "unixpacket"}, {"unixpacket", "tcp", "unix"}, {"unix", "unixpacket"}, {"unixpacket", "tcp"}} {
		var files []*os.File
		for _, network := range order {
			files = append(files, listening(t, network))
		}
		l, err := listen(map[string][]*os.File{units.FDListen: files, units.FDMetrics: {listening(t, "tcp")}})
		if err != nil {
			t.Errorf("%q: %v", order, err)
			continue
		}
		want := strings.Join(order, " ")
		if (l.http != nil) != strings.Contains(want, "tcp") || (l.unix != nil) != (len(order) == 3 || order[0] == "unix") || l.servers == nil || l.metrics == nil {
			t.Errorf("%q: %+v", order, l)
		}
	}
	for _, order := range [][]string{{"tcp", "tcp", "unixpacket"}, {"unix", "unix", "unixpacket"}, {"tcp", "unixpacket", "unixpacket"}, {"tcp", "unix"}, {"unixpacket"}, nil} {
		var files []*os.File
		for _, network := range order {
			files = append(files, listening(t, network))
		}
		if l, err := listen(map[string][]*os.File{units.FDListen: files}); err == nil {
			t.Errorf("%q: %+v", order, l)
		}
	}
	for name, network := range map[string]string{
		units.FDHTTP: "unix", units.FDUnix: "unixpacket", units.FDServers: "tcp", units.FDMetrics: "unix",
		units.FDOperator: "tcp", units.FDPasskey: "tcp", "other": "tcp",
	} {
		if l, err := listen(map[string][]*os.File{units.FDServers: {listening(t, "unixpacket")}, name: {listening(t, network)}}); err == nil {
			t.Errorf("%s as %q: %+v", network, name, l)
		}
	}
	if l, err := listen(map[string][]*os.File{units.FDListen: {listening(t, "unixpacket"), listening(t, "unix")}, units.FDOperator: {listening(t, "unix")}}); err != nil || l.unix == nil || l.operator == nil {
		t.Errorf("clients and the operator: %+v, %v", l, err)
	}
	if l, err := listen(map[string][]*os.File{
		units.FDListen: {listening(t, "unixpacket"), listening(t, "unix")}, units.FDOperator: {listening(t, "unix")},
		units.FDPasskey: {listening(t, "unix")},
	}); err != nil || l.passkey == nil || l.passkey == l.operator || l.passkey == l.unix {
		t.Errorf("clients, the operator and the passkeys: %+v, %v", l, err)
	}
	if l, err := listen(map[string][]*os.File{
		units.FDListen:  {listening(t, "unixpacket"), listening(t, "unix")},
		units.FDPasskey: {listening(t, "unix"), listening(t, "unix")},
	}); err == nil {
		t.Errorf("two of passkeys: %+v", l)
	}
	if l, err := listen(map[string][]*os.File{units.FDServers: {listening(t, "unixpacket")}, units.FDOperator: {listening(t, "unix")}}); err == nil {
		t.Errorf("the operator alone: %+v", l)
	}
	if l, err := listen(map[string][]*os.File{units.FDServers: {listening(t, "unixpacket")}, units.FDHTTP: {listening(t, "tcp"), listening(t, "tcp")}}); err == nil {
		t.Errorf("two of a name: %+v", l)
	}
}
