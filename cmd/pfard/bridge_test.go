package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/units/attach"
)

// attachPair returns a connection as a process and as pfard have it.
func attachPair(t *testing.T) (process, ours *attach.Conn) {
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

// TestTooManyQuestions: of a bridge that asks more at once than it may, the later ones are refused, and none is lost.
func TestTooManyQuestions(t *testing.T) {
	bridge, ours := attachPair(t)
	release, ended := make(chan struct{}), make(chan struct{})
	var asking, most atomic.Int64
	go func() {
		defer close(ended)
		hear(ours, func(attach.Allow) error {
			most.Store(max(most.Load(), asking.Add(1)))
			defer asking.Add(-1)
			<-release
			return errors.New("not declared")
		}, nil, nil, nil)
	}()
	const extra = 50
	for i := range maxAsking + extra {
		if err := bridge.Send(attach.Message{Allow: &attach.Allow{ID: uint64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(n int, words string) {
		t.Helper()
		for range n {
			m, _, err := bridge.Receive()
			if err != nil || m.Allowed == nil || !strings.Contains(m.Allowed.Error, words) {
				t.Fatalf("got %+v, %v, want %q", m, err, words)
			}
		}
	}
	answers(extra, "at once")
	close(release)
	answers(maxAsking, "not declared")
	if n := most.Load(); n > maxAsking {
		t.Errorf("%d questions at once", n)
	}
	bridge.Close()
	<-ended
}

// TestRefusalsAreTold: of many at once the first and the newest, and not all.
func TestRefusalsAreTold(t *testing.T) {
	bridge, ours := attachPair(t)
	var all atomic.Int64
	told, ended := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		hear(ours, nil, nil, func(string) { all.Add(1) }, func(words string) { told <- words })
	}()
	refuse := func(words string) {
		t.Helper()
		if err := bridge.Send(attach.Message{Notify: map[string]string{"STATUS": words}}); err != nil {
			t.Fatal(err)
		}
	}
	refuse("refused first")
	if got := <-told; got != "refused first" {
		t.Fatalf("told %q", got)
	}
	refuse("ready")
	const many = 500
	for i := range many {
		refuse(fmt.Sprintf("refused %d", i))
	}
	bridge.Close()
	<-ended
	var list []string
	newest := fmt.Sprintf("refused %d", many-1)
	for !slices.Contains(list, newest) {
		select {
		case words := <-told:
			list = append(list, words)
		case <-time.After(5 * time.Second):
			t.Fatalf("the newest is not told: %q", list)
		}
	}
	if n := all.Load(); n != many+1 {
		t.Errorf("%d were to be recorded, of %d", n, many+1)
	}
	if len(list) > refusalsAtOnce+10 || slices.Contains(list, "ready") {
		t.Errorf("told %d: %q", len(list), list)
	}
}
