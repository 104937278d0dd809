package attach

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listen answers each hello with what answer returns, and a file; nil hangs up, an empty message says nothing.
func listen(t *testing.T, path string, answer func(Hello) *Message) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Error(err)
		return
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			u, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c := Accepted(u)
			m, _, err := c.Receive()
			if err != nil { // whoever connected has given up
				c.Close()
				continue
			}
			if m.Hello == nil {
				t.Errorf("the first message is %+v", m)
				c.Close()
				continue
			}
			a := answer(*m.Hello)
			if a == nil {
				c.Close()
				continue
			}
			f, err := os.Open("/dev/null")
			if err == nil {
				err = c.Send(*a, f)
				f.Close()
			}
			if err != nil && !errors.Is(err, unix.EPIPE) {
				t.Error(err)
			}
		}
	}()
}

func TestConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "attach.sock")
	said := make(chan Hello, 10)
	tries := 0
	time.AfterFunc(50*time.Millisecond, func() { // pfard is only just starting
		listen(t, path, func(h Hello) *Message {
			said <- h
			if tries++; tries == 1 {
				return nil // and dies
			}
			return &Message{Welcome: &Welcome{Held: "words"}}
		})
	})
	c, w, files, err := Connect(t.Context(), path, Hello{Bridge: true, Digest: "d", Again: true})
	if err != nil || w.Held != "words" || len(files) != 1 {
		t.Fatalf("%+v, %d files, %v", w, len(files), err)
	}
	CloseAll(files)
	c.Close()
	for range 2 {
		if h := <-said; h != (Hello{Bridge: true, Digest: "d", Again: true}) {
			t.Errorf("it says %+v", h)
		}
	}
}

func TestConnectIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		answer *Message
		check  func(error) bool
	}{
		"for good":       {&Message{Error: "no"}, func(err error) bool { return err.Error() == "no" && !errors.Is(err, ErrLater) }},
		"for now":        {&Message{Error: "not yet", Later: true}, func(err error) bool { return err.Error() == "not yet" && errors.Is(err, ErrLater) }},
		"no welcome":     {&Message{Refusal: "x"}, func(err error) bool { return errors.Is(err, ErrLater) }},
		"hangs up":       {nil, func(err error) bool { return errors.Is(err, io.EOF) && errors.Is(err, ErrLater) }},
		"nobody's there": {nil, func(err error) bool { return errors.Is(err, os.ErrNotExist) && errors.Is(err, ErrLater) }},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "attach.sock")
			if name != "nobody's there" {
				listen(t, path, func(Hello) *Message { return c.answer })
			}
			var files []*os.File
			err := error(nil)
			for within := 100 * time.Millisecond; within < 30*time.Second; within *= 4 { // one try at least must come to its end
				ctx, cancel := context.WithTimeout(t.Context(), within)
				_, _, files, err = Connect(ctx, path, Hello{})
				cancel()
				if err == nil || c.check(err) {
					break
				}
			}
			if err == nil || !c.check(err) || files != nil {
				t.Errorf("%d files, %v", len(files), err)
			}
		})
	}
}
