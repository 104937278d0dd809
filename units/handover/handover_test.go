package handover

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// pair returns both ends of a connection through a real socket.
func pair(t *testing.T) (launcher, gateway *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if launcher, err = Dial(path, Message{Expect: &expected}); err != nil {
		t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { launcher.Close(); c.Close() })
	return launcher, Accepted(c)
}

var expected = Server{Name: "notion", Label: "internal", Tools: map[string]Tool{"search": {Semantics: "read"}}}

func TestHello(t *testing.T) {
	launcher, gateway := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Send(Message{Hello: &Hello{Name: "notion"}}, w, r); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	m, files, err := gateway.Receive()
	if err != nil || len(files) != 0 || !reflect.DeepEqual(m, Message{Expect: &expected}) {
		t.Fatalf("first got %+v, %d files, %v", m, len(files), err)
	}
	m, files, err = gateway.Receive()
	if err != nil || len(files) != 2 || m.Hello == nil || *m.Hello != (Hello{Name: "notion"}) {
		t.Fatalf("got %+v, %d files, %v", m, len(files), err)
	}
	if _, err := files[0].WriteString("through the pipe"); err != nil {
		t.Fatal(err)
	}
	files[0].Close()
	if b, err := io.ReadAll(files[1]); err != nil || string(b) != "through the pipe" {
		t.Errorf("read %q, %v: the descriptors are not the pipe's", b, err)
	}
	if peer, err := gateway.Peer(); err != nil || int(peer.Uid) != os.Getuid() || int(peer.Pid) != os.Getpid() {
		t.Errorf("peer %+v, %v", peer, err)
	}
	launcher.Close()
	if _, _, err := gateway.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
}
