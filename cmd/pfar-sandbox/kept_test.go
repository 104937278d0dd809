package main

import (
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// pfards is a socket on which one pfard after the other is played.
type pfards struct {
	t    *testing.T
	path string
	l    *net.UnixListener
}

func newPfards(t *testing.T) pfards {
	t.Helper()
	path := filepath.Join(t.TempDir(), "attach.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return pfards{t, path, l}
}

// welcome takes one launcher in, and returns the connection to it.
func (p pfards) welcome(again bool, files ...*os.File) *attach.Conn {
	p.t.Helper()
	_ = p.l.SetDeadline(time.Now().Add(2 * time.Minute))
	u, err := p.l.AcceptUnix()
	if err != nil {
		p.t.Fatal(err)
	}
	c := attach.Accepted(u)
	p.t.Cleanup(func() { c.Close() })
	m, _, err := c.Receive()
	if err != nil || m.Hello == nil || m.Hello.Again != again || m.Hello.Digest != "digest" {
		p.t.Fatalf("the first message is %+v, %v", m, err)
	}
	if err := c.Send(attach.Message{Welcome: &attach.Welcome{}}, files...); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// attached is a launcher's attachment and the pfard that has taken it in.
func attached(t *testing.T) (*attachment, *attach.Conn, pfards) {
	t.Helper()
	p := newPfards(t)
	gateway, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	done := make(chan *attach.Conn, 1)
	go func() { done <- p.welcome(false, gateway) }()
	a, f, err := attachTo(t.Context(), p.path, "digest", nil)
	if err != nil {
		t.Fatal(err)
	}
	attach.CloseAll(f)
	c := <-done
	a.tell(map[string]string{"STATUS": "told"})
	wantTold(t, c)
	return a, c, p
}

func wantTold(t *testing.T, c *attach.Conn) {
	t.Helper()
	if m, _, err := c.Receive(); err != nil || m.Notify["STATUS"] != "told" {
		t.Fatalf("%+v, %v, want what was told", m, err)
	}
}

// inodes are the sockets that come with the next message, which has to say so.
func inodes(t *testing.T, c *attach.Conn) map[uint64]bool {
	t.Helper()
	m, files, err := c.Receive()
	if err != nil || !m.Sockets {
		t.Fatalf("%+v, %v, want sockets", m, err)
	}
	defer attach.CloseAll(files)
	return inodesOf(t, files)
}

func inodesOf(t *testing.T, files []*os.File) map[uint64]bool {
	t.Helper()
	list := map[uint64]bool{}
	for _, f := range files {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		list[st.Ino] = true
	}
	return list
}

// TestSocketsOutlivePfard: each pfard gets the sockets of the namespace, and what the service manager was told before
// them.
func TestSocketsOutlivePfard(t *testing.T) {
	a, c, p := attached(t)
	var sockets []*os.File
	for range 3 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, os.NewFile(uintptr(fd), "socket"))
	}
	want := inodesOf(t, sockets)
	a.keep(sockets)
	if got := inodes(t, c); !maps.Equal(got, want) || len(got) != 3 {
		t.Errorf("pfard gets %v, want %v", got, want)
	}
	for range 2 {
		c.Close()
		c = p.welcome(true)
		wantTold(t, c)
		if got := inodes(t, c); !maps.Equal(got, want) {
			t.Errorf("the next pfard gets %v, want %v", got, want)
		}
	}
}

// TestKeptWhilePfardIsAway: nothing is lost.
func TestKeptWhilePfardIsAway(t *testing.T) {
	a, c, p := attached(t)
	c.Close()
	a.keep([]*os.File{os.Stdin})
	c = p.welcome(true)
	wantTold(t, c)
	inodes(t, c)
}

// TestPfardGoesAwayInMidQuestion: that is no fault of the server's, which is started again.
func TestPfardGoesAwayInMidQuestion(t *testing.T) {
	a, c, _ := attached(t)
	go func() {
		_, _, _ = c.Receive()
		c.Close()
	}()
	for _, when := range []string{"asked", "away"} {
		if _, err := a.ask(attach.Message{Place: &attach.Place{PID: 1}}); !errors.Is(err, attach.ErrLater) {
			t.Errorf("%s: %v", when, err)
		}
	}
}

// TestGatewayLeavesMeanwhile: nor is the gateway's end before it has the server.
func TestGatewayLeavesMeanwhile(t *testing.T) {
	p := newPfard(t)
	begun := make(chan *run, 1)
	p.place = func() *attach.Message {
		(<-begun).gateway.Close()
		return &attach.Message{Placed: &attach.Placed{How: "held"}}
	}
	r := p.unit("cat", nil)
	begun <- r
	if code := r.exit(2 * time.Minute); code != units.ExitGateway {
		t.Errorf("exit code %d\n%s", code, r.logged())
	}
	eventually(t, r, func() bool { return strings.HasPrefix(r.noted("STATUS"), "starting: the gateway went away") })
}
