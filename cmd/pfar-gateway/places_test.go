package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlaces: who finds no place waits until another goes, and the log says so once; a listener that is closed lets go.
func TestPlaces(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "socket")
	under, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	l := limit(under, 1, slog.New(slog.NewTextHandler(&log, nil)))
	accepted, failed := make(chan net.Conn), make(chan error)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			accepted <- c
		}
	}()
	for range 3 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 2 {
		c := <-accepted
		select {
		case <-accepted:
			t.Error("two have the one place")
		default:
		}
		c.Close()
		c.Close() // gives one place back
	}
	<-accepted // and keeps its place
	l.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if n := strings.Count(log.String(), "as many connections are open as may be"); n != 1 {
		t.Errorf("%d entries: %s", n, &log)
	}
}
