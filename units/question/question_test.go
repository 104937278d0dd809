package question

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers on a socket until the test ends, and returns its path and what Serve returns.
func serve(t *testing.T, s Server) (string, <-chan error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		ended <- s.Serve(ctx, l)
		l.Close()
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Error("it does not end")
		}
	})
	return path, ended
}

func ask(path string, question []byte) string {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, _ = conn.Write(question)
	_ = conn.(*net.UnixConn).CloseWrite()
	b, _ := io.ReadAll(conn)
	return string(b)
}

// failures counts why questions got no answer.
type failures struct {
	mu  sync.Mutex
	all []string
}

func (f *failures) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err.Error())
}

func (f *failures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.all, "; ")
}

func TestServe(t *testing.T) {
	var f failures
	path, _ := serve(t, Server{Parallel: 1, Timeout: time.Minute, Failed: f.add, Answer: func(_ context.Context, q []byte) ([]byte, error) {
		if string(q) == "fail" {
			return []byte("half"), errors.New("it failed")
		}
		return append([]byte("answer to "), q[:min(len(q), 5)]...), nil
	}})
	for question, want := range map[string]string{"a": "answer to a", "": "answer to ", "fail": ""} {
		if got := ask(path, []byte(question)); got != want {
			t.Errorf("%q: %q, want %q", question, got, want)
		}
	}
	if got := ask(path, bytes.Repeat([]byte("x"), maxQuestion+1)); got != "" {
		t.Errorf("a question that is too long: %q", got)
	}
	if got := ask(path, bytes.Repeat([]byte("x"), maxQuestion)); got != "answer to xxxxx" {
		t.Errorf("one that is not: %q", got)
	}
	for _, want := range []string{"it failed", "more than 8388608 bytes"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("nobody is told of %q: %s", want, &f)
		}
	}
}

// TestTimeout: who does not answer, and who does not ask, holds no place for longer.
func TestTimeout(t *testing.T) {
	var f failures
	path, _ := serve(t, Server{Parallel: 1, Timeout: 50 * time.Millisecond, Failed: f.add, Answer: func(ctx context.Context, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	for n := 0; n == 0 || n < 20 && !strings.Contains(f.String(), "deadline exceeded"); n++ { // for it may be too late to be read
		if got := ask(path, []byte("hang")); got != "" {
			t.Errorf("%q", got)
		}
	}
	conn, err := net.Dial("unix", path) // and asks nothing
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b, _ := io.ReadAll(conn); len(b) > 0 {
		t.Errorf("nothing was asked: %q", b)
	}
	ask(path, nil) // has a place when the others have been told of
	for _, want := range []string{"deadline exceeded", "reading what is asked"} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("nobody is told of %q: %s", want, &f)
		}
	}
}

// TestParallel: no more than so many are answered at once, and the others wait.
func TestParallel(t *testing.T) {
	var now, most, all atomic.Int32
	var begin sync.Once
	three := make(chan struct{})
	path, _ := serve(t, Server{Parallel: 3, Timeout: time.Minute, Failed: func(err error) { t.Error(err) }, Answer: func(ctx context.Context, _ []byte) ([]byte, error) {
		k := now.Add(1)
		for m := most.Load(); k > m && !most.CompareAndSwap(m, k); m = most.Load() {
		}
		if k == 3 {
			begin.Do(func() { close(three) })
		}
		select {
		case <-three:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		time.Sleep(20 * time.Millisecond)
		now.Add(-1)
		all.Add(1)
		return []byte("x"), nil
	}})
	var wait sync.WaitGroup
	for range 12 {
		wait.Go(func() {
			if got := ask(path, []byte("q")); got != "x" {
				t.Errorf("%q", got)
			}
		})
	}
	wait.Wait()
	if most.Load() != 3 || all.Load() != 12 {
		t.Errorf("%d at once, %d in all", most.Load(), all.Load())
	}
}

// TestIdle: it ends when nobody asks, but not while an answer is under way.
func TestIdle(t *testing.T) {
	var begun atomic.Bool
	var got string
	var ended <-chan error
	for n := 0; !begun.Load() && n < 20; n++ { // it may end before it is asked
		var path string
		path, ended = serve(t, Server{Parallel: 2, Timeout: time.Minute, Idle: 50 * time.Millisecond, Failed: func(err error) { t.Error(err) }, Answer: func(context.Context, []byte) ([]byte, error) {
			begun.Store(true)
			time.Sleep(300 * time.Millisecond)
			return []byte("late"), nil
		}})
		got = ask(path, []byte("q"))
	}
	if got != "late" {
		t.Errorf("%q", got)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it does not end")
	}
}

// TestEnd: who is told to end gives answers up that are under way.
func TestEnd(t *testing.T) {
	begun := make(chan struct{})
	var f failures
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Server{Parallel: 1, Timeout: time.Minute, Failed: f.add, Answer: func(ctx context.Context, _ []byte) ([]byte, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		}}.Serve(ctx, l)
	}()
	go func() {
		<-begun
		cancel()
	}()
	if got := ask(path, []byte("q")); got != "" {
		t.Errorf("%q", got)
	}
	if err := <-ended; err != nil || f.String() == "" {
		t.Errorf("%v, failed: %s", err, &f)
	}
}

// TestAsk: the answer is whole or there is none, and nobody waits longer than they said.
func TestAsk(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	server := Server{Parallel: 2, Timeout: time.Minute, Failed: func(error) {}}
	server.Answer = func(ctx context.Context, q []byte) ([]byte, error) {
		switch string(q) {
		case "hang\n":
			select {
			case <-hangs:
			case <-ctx.Done():
			}
			return nil, ctx.Err()
		case "fail\n":
			return nil, errors.New("no")
		}
		return append([]byte("you said "), q...), nil
	}
	path, _ := serve(t, server)
	for question, want := range map[string]string{"hello": "you said hello\n", "fail": ""} {
		if got, err := Ask(t.Context(), path, []byte(question), 1<<10); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", question, got, err)
		}
	}
	if got, err := Ask(t.Context(), path, []byte("hello"), 3); string(got) != "you" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if got, err := Ask(ctx, path, []byte("hang"), 1<<10); !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := Ask(t.Context(), path+"-none", []byte("hello"), 1); err == nil {
		t.Error("nobody is there, and answers")
	}
}
