package packet

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type message struct {
	Text string `json:"text,omitempty"`
}

// pair returns both ends of a connection through a real socket.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = Dial(path); err != nil {
		t.Fatal(err)
	}
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); c.Close() })
	return a, New(c)
}

func TestPacketsThatAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"not JSON":  "hello",
		"two":       `{"text":"a"}{"text":"b"}`,
		"array":     `[]`,
		"too large": `{"text":"` + strings.Repeat("x", MaxMessage) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			_ = a.c.SetWriteBuffer(4 * MaxMessage)
			if _, err := a.c.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
			var m message
			if _, err := b.Receive(&m); err == nil {
				t.Errorf("got %+v, want an error", m)
			}
			if err := a.Send(message{"next"}); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Receive(&m); err != nil || m.Text != "next" {
				t.Errorf("the next message is %+v, %v", m, err)
			}
		})
	}
}

func TestSendRefusesWhatWouldBeCut(t *testing.T) {
	a, _ := pair(t)
	if err := a.Send(message{strings.Repeat("x", MaxMessage)}); err == nil {
		t.Error("a message that the other end would see cut is sent")
	}
}

// Whoever never reads keeps nobody waiting, and loses the connection: else each further message would wait as long.
func TestSendToOneThatNeverReads(t *testing.T) {
	a, b := pair(t)
	a.sendTime = 50 * time.Millisecond
	var err error
	for sent := 0; err == nil; sent++ {
		if err = a.Send(message{strings.Repeat("x", MaxMessage/2)}); sent > 1000 {
			t.Fatal("there is room without end")
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
	}
	if !b.HungUp() {
		t.Error("the connection goes on")
	}
	if err := a.Send(message{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the next message: %v", err)
	}
}

func TestTooManyFiles(t *testing.T) {
	a, b := pair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	files := make([]*os.File, MaxFiles+8)
	for i := range files {
		files[i] = null
	}
	if err := a.Send(message{"x"}, files...); err != nil {
		t.Fatal(err)
	}
	var m message
	if got, err := b.Receive(&m); err == nil {
		t.Errorf("received %d files", len(got))
	}
}

// What is sent keeps being polled here: a Close must end a Read that waits.
func TestSendLeavesFilesPolled(t *testing.T) {
	a, b := pair(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := a.Send(message{"x"}, r); err != nil {
		t.Fatal(err)
	}
	var m message
	files, err := b.Receive(&m)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range []*os.File{r, files[0]} {
		ended := make(chan error, 1)
		go func() { _, err := f.Read(make([]byte, 1)); ended <- err }()
		time.Sleep(20 * time.Millisecond)
		f.Close()
		select {
		case <-ended:
		case <-time.After(2 * time.Minute):
			t.Fatal("Close does not end a Read")
		}
	}
}

func TestHungUp(t *testing.T) {
	a, b := pair(t)
	if b.HungUp() {
		t.Error("hung up from the beginning")
	}
	if err := a.Send(message{"last words"}); err != nil {
		t.Fatal(err)
	}
	if b.HungUp() {
		t.Error("a message is taken for the end")
	}
	a.Close()
	if !b.HungUp() {
		t.Error("the end is not seen behind a message")
	}
	var m message
	if _, err := b.Receive(&m); err != nil || m.Text != "last words" {
		t.Errorf("the message before the end is %+v, %v", m, err)
	}
	if b.Close(); !b.HungUp() {
		t.Error("its own end is none")
	}
}

func TestFromFile(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromFile(null); err == nil {
		t.Error("a device is taken for a connection")
	}
	a, b := pair(t)
	f, err := a.File()
	if err != nil {
		t.Fatal(err)
	}
	c, err := FromFile(f)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(message{"copied"}); err != nil {
		t.Fatal(err)
	}
	var m message
	if _, err := b.Receive(&m); err != nil || m.Text != "copied" {
		t.Errorf("got %+v, %v", m, err)
	}
	a.Close()
	c.Close()
	if _, err := b.Receive(&m); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want io.EOF", err)
	}
}

// TestCloseRead: what was sent before is read to its end.
func TestCloseRead(t *testing.T) {
	a, b := pair(t)
	if err := a.Send("before"); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseRead(); err != nil {
		t.Fatal(err)
	}
	var got string
	if _, err := b.Receive(&got); err != nil || got != "before" {
		t.Errorf("received %q, %v", got, err)
	}
	if _, err := b.Receive(&got); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
	if err := a.Send("after"); err == nil {
		t.Error("a message can still be sent")
	}
}
