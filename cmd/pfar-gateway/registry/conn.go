package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
)

// conn frames messages on a server's stdio, a line each (TRA-02).
type conn struct {
	stdin  *os.File
	stdout *os.File
	limits *Limits
	memory *keep.Memory
	by     time.Time // when a write fails that is under way

	mu   sync.Mutex
	busy bool   // somebody writes
	next *batch // what is written after that

	buf        []byte // read ahead
	start, end int    // of what is not yet taken
}

const (
	readAhead = 4 << 10  // per server, so small: a server is mostly idle
	keepLine  = 32 << 10 // a longer line is handed over with its buffer instead of copied
)

// batch is lines that are written together.
type batch struct {
	lines  []byte
	done   chan struct{} // closed when they are written, or will not be
	failed chan struct{} // closed if they will not be
	err    error         // why
}

// failure is closed if writing fails.
func (b *batch) failure() <-chan struct{} {
	if b == nil {
		return nil
	}
	return b.failed
}

// mostJoined bounds the lines of a batch, in bytes; a longer line goes alone.
const mostJoined = 64 << 10

var (
	errLine  = errors.New("line longer than the limit")
	errStuck = errors.New("it does not read its stdin")
)

func newConn(stdin, stdout *os.File, memory *keep.Memory, limits *Limits) *conn {
	return &conn{stdin: stdin, stdout: stdout, memory: memory, limits: limits, buf: make([]byte, readAhead)}
}

// read returns the next line without its end, which then belongs to the caller. What is left without a line end when
// stdout closes is not a message.
func (c *conn) read() ([]byte, error) {
	seen := c.start
	for {
		if i := bytes.IndexByte(c.buf[seen:c.end], '\n'); i >= 0 {
			return c.take(seen + i), nil
		}
		seen = c.end
		if c.end-c.start > c.limits.Line {
			return nil, fmt.Errorf("%w of %d bytes", errLine, c.limits.Line)
		}
		if c.end == len(c.buf) {
			c.grow()
			seen = c.end
		}
		n, err := c.stdout.Read(c.buf[c.end:])
		c.end += n
		if n == 0 && err != nil {
			if errors.Is(err, os.ErrClosed) {
				err = io.EOF
			}
			return nil, err
		}
	}
}

// grow makes room behind end.
func (c *conn) grow() {
	held := c.buf[c.start:c.end]
	size := len(c.buf)
	if 2*len(held) > size {
		size *= 2
	}
	if size == len(c.buf) {
		copy(c.buf, held)
	} else {
		c.buf = append(make([]byte, 0, size), held...)[:size]
	}
	c.start, c.end = 0, len(held)
}

// take returns the line that ends at i, and forgets it.
func (c *conn) take(i int) []byte {
	line := c.buf[c.start:i:i]
	rest := c.buf[i+1 : c.end]
	if len(line) < keepLine {
		line = bytes.Clone(line)
		if c.start = i + 1; c.start == c.end {
			c.start, c.end = 0, 0
		}
		return line
	}
	c.buf = append(make([]byte, 0, max(readAhead, len(rest))), rest...)
	c.start, c.end = 0, len(rest)
	c.buf = c.buf[:cap(c.buf)]
	return line
}

// write sends one line whole, or nothing of it, or ends the conversation: half a message would swallow the next.
func (c *conn) write(ctx context.Context, line []byte) error {
	b, err := c.send(ctx, line, false)
	if b == nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send is write for who does not wait until a line is written that others come before: its batch, nil if there is none,
// tells when that fails. Among many callers nobody writes at once, so that the lines of all who are about to go
// together: the system is called once for them, and the server wakes once.
func (c *conn) send(ctx context.Context, line []byte, many bool) (*batch, error) {
	c.mu.Lock()
	if !c.busy && !many {
		c.busy = true
		c.mu.Unlock()
		err := c.put(line)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handOn()
		return nil, err
	}
	for {
		b, joined := c.join(line)
		if !c.busy {
			c.handOn()
		}
		c.mu.Unlock()
		if joined {
			return b, nil
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
	}
}

// join adds a line to those that are written next, if there is room. c.mu is held.
func (c *conn) join(line []byte) (*batch, bool) {
	if c.next == nil {
		c.next = &batch{done: make(chan struct{}), failed: make(chan struct{})}
	}
	b := c.next
	if len(b.lines) > 0 && len(b.lines)+len(line) > mostJoined {
		return b, false
	}
	b.lines = append(b.lines, line...)
	return b, true
}

// handOn has what waits written, if anything does. c.mu is held.
func (c *conn) handOn() {
	if c.busy = c.next != nil; c.busy {
		go c.drain()
	}
}

// drain writes until nothing waits.
func (c *conn) drain() {
	for {
		runtime.Gosched() // whoever has a line and could run comes first
		c.mu.Lock()
		b := c.next
		c.next, c.busy = nil, b != nil
		c.mu.Unlock()
		if b == nil {
			return
		}
		if b.err = c.put(b.lines); b.err != nil {
			close(b.failed)
		}
		close(b.done)
	}
}

// pipeBuf is how many bytes go into a pipe at once or not at all (pipe(7)): of more, a process that is killed may leave
// half.
const pipeBuf = 4096

// put writes, for whoever has made c busy. What a gateway before this one has written half of is made a line of its
// own: nobody knows the rest any more. The server cannot read it as a message, for no part of a JSON object that lacks
// its end is one; it may answer that with an error without an id, which is noise here. If all had been written after
// all, the line is empty, which servers pass over.
func (c *conn) put(lines []byte) error {
	torn := c.memory.Torn()
	if torn {
		lines = append([]byte{'\n'}, lines...)
	}
	long := torn || len(lines) > pipeBuf
	if long {
		c.memory.Writing(true)
	}
	if now := time.Now(); c.by.Before(now.Add(c.limits.Write)) { // setting it is dear, and a second more or less is nothing
		c.by = now.Add(c.limits.Write + time.Second)
		if err := c.stdin.SetWriteDeadline(c.by); err != nil {
			return err
		}
	}
	n, err := c.stdin.Write(lines)
	if long && (err == nil || n == 0 && !torn) {
		c.memory.Writing(false)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
		return errStuck
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.close()
		return fmt.Errorf("%w: %d of %d bytes taken in %v", errStuck, n, len(lines), c.limits.Write)
	}
	return err
}

// closeInput is the first step of a server's stop (LIF-09).
func (c *conn) closeInput() { c.stdin.Close() }

func (c *conn) close() {
	c.stdin.Close()
	c.stdout.Close()
}
