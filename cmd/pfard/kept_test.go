package main

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
)

// pair returns a socket that can be kept, and one that something is written to for it.
func pair(t *testing.T) (socket, other *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, other = os.NewFile(uintptr(fds[0]), "kept"), os.NewFile(uintptr(fds[1]), "other")
	t.Cleanup(func() { socket.Close(); other.Close() })
	return socket, other
}

// TestKeptSocketsStartABridge, once for whatever there is to read, and not beside a bridge.
func TestKeptSocketsStartABridge(t *testing.T) {
	a := &attachments{bridges: map[string]*attach.Conn{}, kept: map[string]*kept{}}
	silent, _ := pair(t)
	socket, other := pair(t)
	k := &kept{sockets: []*os.File{silent, socket}, left: make(chan struct{}, 1), ended: make(chan struct{})}
	a.kept["notion"] = k
	started, over := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(over)
		k.watch(func() bool { return a.bridgeOf("notion") != nil }, func() { started <- struct{}{} })
	}()
	expect := func(want bool, when string) {
		t.Helper()
		select {
		case <-started:
			if !want {
				t.Errorf("%s a bridge is started", when)
			}
		case <-time.After(map[bool]time.Duration{true: 2 * time.Minute, false: 50 * time.Millisecond}[want]):
			if want {
				t.Errorf("%s no bridge is started", when)
			}
		}
	}
	expect(false, "with nothing to read")
	bridge := &attach.Conn{}
	files, left := a.handed("notion", bridge)
	if len(files) != 2 {
		t.Errorf("the bridge gets %d sockets, want 2", len(files))
	}
	if _, err := other.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	expect(false, "beside one")
	next := &attach.Conn{}
	_, nextLeft := a.handed("notion", next)
	left()
	expect(false, "beside another one")
	nextLeft()
	expect(true, "when it has left something to read")
	expect(false, "at once again, after one that does not come,")

	a.drop("notion")
	select {
	case <-over:
	case <-time.After(2 * time.Minute):
		t.Error("nobody gives up watching")
	}
	if files, left := a.handed("notion", bridge); files != nil {
		t.Error("a bridge gets what was given up")
	} else {
		left()
	}
	if len(a.bridges)+len(a.kept) != 0 {
		t.Errorf("left behind: %v, %v", a.bridges, a.kept)
	}
}
