package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
)

// pipes returns a connection whose other end is the test's.
func pipes(t *testing.T, write time.Duration) (c *Stdio, stdin *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c = NewStdio(w, out, keep.Volatile(), Limits{Line: 16 << 20, Write: write})
	t.Cleanup(func() {
		c.Close()
		r.Close()
		other.Close()
	})
	return c, r
}

// TestLinesStayWhole: whoever writes, alone or among many, each line arrives once, whole, and one writer's lines in
// order.
func TestLinesStayWhole(t *testing.T) {
	c, stdin := pipes(t, time.Minute)
	const writers, each = 16, 200
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := range each {
				filler := strings.Repeat("x", n*n%5000)
				if w == 0 && n%50 == 49 {
					filler = strings.Repeat("y", mostJoined+n) // longer than what is joined
				}
				line := fmt.Appendf(nil, "%d %d %s\n", w, n, filler)
				if w%2 == 0 {
					if err := Write(t.Context(), c, line); err != nil {
						t.Error(err)
					}
					continue
				}
				b, err := c.Send(t.Context(), line, true)
				if err != nil {
					t.Error(err)
				}
				<-b.done
			}
		})
	}
	go func() {
		all.Wait()
		c.CloseSend()
	}()
	next := make([]int, writers)
	r := bufio.NewReader(stdin)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var w, n int
		if _, err := fmt.Sscan(string(line[:min(len(line), 20)]), &w, &n); err != nil || next[w] != n {
			t.Fatalf("line %.40q comes when %d of its writer is due", line, next[w])
		}
		if rest := bytes.TrimRight(line[bytes.LastIndexByte(line, ' ')+1:], "xy\n"); len(rest) > 0 {
			t.Fatalf("line %d of %d has %.20q in it", n, w, rest)
		}
		next[w]++
	}
	for w, n := range next {
		if n != each {
			t.Errorf("%d lines of writer %d arrived, want %d", n, w, each)
		}
	}
}

// TestNobodyReads: lines for a server that reads nothing pile up only so far, each sender is told, one that waits for
// room is let go, and what was not written has no part of it written, so that the conversation can go on.
func TestNobodyReads(t *testing.T) {
	c, stdin := pipes(t, 200*time.Millisecond)
	full, err := unix.FcntlInt(stdin.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), c, make([]byte, full)); err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), mostJoined*2/3), '\n')
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var taken []*Sending
	for range 100 {
		if b, err := c.Send(gone, line, true); err == nil {
			taken = append(taken, b)
		}
	}
	if len(taken) == 0 || len(taken) > 2 {
		t.Errorf("%d lines are taken, want one that is under way and one behind it at most", len(taken))
	}
	for _, b := range taken {
		<-b.Failed()
		if !errors.Is(b.err, ErrStuck) {
			t.Errorf("a line that nobody read: %v, want %v", b.err, ErrStuck)
		}
	}
	if err := Write(t.Context(), c, line); !errors.Is(err, ErrStuck) {
		t.Errorf("alone: %v, want %v", err, ErrStuck)
	}
	if _, err := io.ReadFull(stdin, make([]byte, full)); err != nil {
		t.Fatal(err)
	}
	if err := Write(t.Context(), c, line); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(stdin, got); err != nil || !bytes.Equal(got, line) {
		t.Errorf("%.40q, %v, want the last line alone", got, err)
	}
}
