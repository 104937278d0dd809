package journal

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestSettle: it returns once what was sent before has been read, and not sooner; without anybody who reads it gives
// up.
func TestSettle(t *testing.T) {
	t.Parallel()
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"}
	settle(address.Name, time.Hour) // nobody listens
	journald, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { journald.Close() })
	settle(address.Name, 10*time.Millisecond)
	sender, err := net.DialUnix("unixgram", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sender.Close() })
	if _, err := sender.Write([]byte("MESSAGE=the last words\n")); err != nil {
		t.Fatal(err)
	}
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		settle(address.Name, time.Hour)
	}()
	b := make([]byte, 100)
	for _, want := range []int{0, len("MESSAGE=the last words\n"), 0} { // the first is of who gave up
		select {
		case <-settled:
			t.Fatal("it has not waited")
		default:
		}
		n, err := journald.Read(b)
		if err != nil || n != want {
			t.Fatalf("read %d bytes, %v; want %d", n, err, want)
		}
	}
	<-settled
}
