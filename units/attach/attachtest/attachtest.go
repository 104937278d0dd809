// Package attachtest connects the two ends of package attach, for tests.
package attachtest

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/pfar/pfar/units/attach"
)

// Pair returns a connection as a process and as pfard have it.
func Pair(t *testing.T) (process, ours *attach.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attach.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if process, err = attach.Dial(path); err != nil {
		t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	ours = attach.Accepted(c)
	t.Cleanup(func() { process.Close(); ours.Close() })
	return process, ours
}
