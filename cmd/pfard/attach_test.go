package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/systemd"
)

func TestNewcomers(t *testing.T) {
	n := newcomers{of: map[int]int{}}
	stranger, server := os.Getuid()+1, os.Getuid()+2
	for range maxNewcomersOf {
		if err := n.enter(stranger); err != nil {
			t.Fatal(err)
		}
	}
	if n.enter(stranger) == nil {
		t.Error("one user has more than it may")
	}
	if err := n.enter(server); err != nil {
		t.Errorf("another user is kept out: %v", err)
	}
	n.leave(stranger)
	if err := n.enter(stranger); err != nil {
		t.Errorf("the place that was left is not free: %v", err)
	}
	for n.all < maxNewcomers {
		if err := n.enter(os.Getuid()); err != nil {
			t.Fatal(err)
		}
	}
	if n.enter(os.Getuid()) == nil || n.enter(server) == nil {
		t.Error("there are more than there may be")
	}
	for range maxNewcomersOf {
		n.leave(stranger)
	}
	if _, ok := n.of[stranger]; ok {
		t.Error("who has left is kept in mind")
	}
}

// serveAttach has attachments listen that reach no systemd but to connect. This process is a stranger to it.
func serveAttach(t *testing.T, connect error) (a *attachments, path string, log *strings.Builder) {
	t.Helper()
	log = &strings.Builder{}
	link := systemd.NewLink(func(context.Context) (*systemd.Bus, error) { return nil, connect })
	a = newAttachments(newDaemon(options{}, slog.New(slog.NewTextHandler(log, nil)), nil, ""), link, nil)
	path = filepath.Join(t.TempDir(), "attach.sock")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); a.serve(l) }()
	t.Cleanup(func() { l.Close(); <-served })
	return a, path, log
}

func (n *newcomers) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all
}

// TestStrangers: who says hello hears why it is refused, who says nothing is hung up on, and neither is kept, nor fills
// the log.
func TestStrangers(t *testing.T) {
	a, path, log := serveAttach(t, nil)
	var m attach.Message
	hello := func() error {
		c, err := attach.Dial(path)
		if err != nil {
			return err
		}
		defer c.Close()
		if err = c.Send(attach.Message{Hello: &attach.Hello{}}); err == nil {
			m, _, err = c.Receive()
		}
		return err
	}
	for range 200 {
		err := hello()
		for n := 0; (errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)) && n < 100; n++ { // it was too slow
			err = hello()
		}
		if err != nil || !m.Later || !strings.Contains(m.Error, systemd.ErrStranger.Error()) {
			t.Fatalf("got %+v, %v", m, err)
		}
	}
	start := time.Now()
	silent, err := attach.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if m, _, err := silent.Receive(); !errors.Is(err, io.EOF) || time.Since(start) >= helloTime {
		t.Errorf("who says nothing gets %+v, %v after %v", m, err, time.Since(start))
	}
	eventually(t, "the end of all of them", func() bool { return a.newcomers.count() == 0 })
	if n := strings.Count(log.String(), "\n"); n == 0 || n > 20 {
		t.Errorf("%d lines in the log", n)
	}
}

// TestUnknownForNow: without systemd's word nobody is refused, for it may come.
func TestUnknownForNow(t *testing.T) {
	a, path, _ := serveAttach(t, errors.New("systemd does not answer"))
	c, err := attach.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m, _, err := c.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("got %+v, %v, want the end", m, err)
	}
	eventually(t, "its end", func() bool { return a.newcomers.count() == 0 })
}

// TestPlaced: for what is no fault of the server's it may come again.
func TestPlaced(t *testing.T) {
	for want, err := range map[string]error{
		`{"how":"memory 64 MiB"}`:                                      nil,
		`{"error":"placing: has children"}`:                            fmt.Errorf("placing: %w", systemd.Final(errors.New("has children"))),
		`{"error":"masked by the administrator; systemctl unmask it"}`: systemd.ErrMasked,
		`{"error":"placing: context deadline exceeded","later":true}`:  fmt.Errorf("placing: %w", context.DeadlineExceeded),
	} {
		how := ""
		if err == nil {
			how = "memory 64 MiB"
		}
		if got, _ := json.Marshal(placed(how, err)); string(got) != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
