package remote

import (
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// end is one end of a connection that holds some writes until they are read, as the kernel's do. With net.Pipe alone
// both ends of TLS can wait to say that they close, and whoever then waits for a mutex keeps the bubble's clock from
// ending that.
type end struct {
	in, out net.Conn // of a net.Pipe for each direction
	queue   chan []byte
	closed  chan struct{}
	close   sync.Once

	mu    sync.Mutex
	until time.Time // that a write may wait
}

// newPipe returns both ends of a connection.
func newPipe() (*end, *end) {
	in, theirOut := net.Pipe()
	theirIn, out := net.Pipe()
	return newEnd(in, out), newEnd(theirIn, theirOut)
}

func newEnd(in, out net.Conn) *end {
	e := &end{in: in, out: out, queue: make(chan []byte, 64), closed: make(chan struct{})}
	go e.send()
	return e
}

// send delivers written bytes to the other end. It returns when that end is closed or, after Close, when all bytes are
// delivered.
func (e *end) send() {
	defer e.out.Close()
	for {
		select {
		case b := <-e.queue:
			if _, err := e.out.Write(b); err != nil {
				return
			}
		case <-e.closed:
			if len(e.queue) == 0 {
				return
			}
		}
	}
}

func (e *end) Read(b []byte) (int, error) { return e.in.Read(b) }

func (e *end) Write(b []byte) (int, error) {
	e.mu.Lock()
	until := e.until
	e.mu.Unlock()
	var late <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-e.closed:
		return 0, net.ErrClosed
	default:
	}
	select {
	case e.queue <- slices.Clone(b):
		return len(b), nil
	case <-e.closed:
		return 0, net.ErrClosed
	case <-late:
		return 0, os.ErrDeadlineExceeded
	}
}

func (e *end) Close() error {
	e.close.Do(func() {
		close(e.closed)
		e.in.Close()
	})
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.until = t
	return nil
}

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetWriteDeadline(t)
	return e.in.SetDeadline(t)
}

func (e *end) SetReadDeadline(t time.Time) error { return e.in.SetReadDeadline(t) }
func (e *end) LocalAddr() net.Addr               { return e.in.LocalAddr() }
func (e *end) RemoteAddr() net.Addr              { return e.in.RemoteAddr() }

// TestEnds: bytes that were written before Close arrive, a later write fails, and no goroutine is left.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newPipe()
		for _, s := range []string{"one", "two"} {
			if _, err := a.Write([]byte(s)); err != nil {
				t.Fatal(err)
			}
		}
		a.Close()
		if _, err := a.Write(nil); err == nil {
			t.Error("a closed end can be written to")
		}
		var got []byte
		for buffer := make([]byte, 2); ; {
			n, err := b.Read(buffer)
			if got = append(got, buffer[:n]...); err != nil {
				break
			}
		}
		if string(got) != "onetwo" {
			t.Errorf("read %q", got)
		}
		_ = b.SetWriteDeadline(time.Now().Add(time.Second))
		for i := 0; ; i++ {
			if _, err := b.Write([]byte("x")); err != nil || i > 100 {
				break
			}
		}
		b.Close()
	})
}
