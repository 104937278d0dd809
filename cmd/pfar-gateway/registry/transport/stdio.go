package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/keep"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Stdio frames messages on a server's stdio, a line each.
type Stdio struct {
	stdin   *os.File
	stdout  *os.File
	limits  Limits
	memory  *keep.Memory
	resumed bool      // another gateway may have read the beginning of the first line
	by      time.Time // when a write fails that is under way

	mu   sync.Mutex
	busy bool     // somebody writes
	next *Sending // what is written after that

	buf        []byte // read ahead
	start, end int    // of what is not yet taken
}

const (
	readAhead = 4 << 10  // per server, so small: a server is mostly idle
	keepLine  = 32 << 10 // a longer line is handed over with its buffer instead of copied
)

// mostJoined bounds the lines of a batch, in bytes; a longer line goes alone.
const mostJoined = 64 << 10

// NewStdio returns the transport over a server's stdio. What it remembers of the connection is in memory: a connection
// that another gateway has used is continued.
func NewStdio(stdin, stdout *os.File, memory *keep.Memory, limits Limits) *Stdio {
	resumed := memory.Last() > 0
	return &Stdio{stdin: stdin, stdout: stdout, memory: memory, limits: limits, resumed: resumed, buf: make([]byte, readAhead)}
}

// Receive returns the next line.
func (c *Stdio) Receive() ([]byte, error) {
	line, err := c.read()
	if c.resumed && err == nil && isTail(line) {
		line, err = c.read()
	}
	c.resumed = false
	return line, err
}

// isTail reports whether the first line after another gateway has read is the end of one of which that has read the
// beginning. A line that is a message is whole: what remains of a JSON object without its beginning has more closing
// brackets than opening ones, or an odd number of quotation marks, and so is none itself.
func isTail(line []byte) bool {
	_, err := jsonrpc.Parse(line)
	return err != nil && !errors.Is(err, jsonrpc.ErrUTF8)
}

// read returns the next line without its end, which then belongs to the caller. What is left without a line end when
// stdout closes is not a message.
func (c *Stdio) read() ([]byte, error) {
	seen := c.start
	for {
		if i := bytes.IndexByte(c.buf[seen:c.end], '\n'); i >= 0 {
			return c.take(seen + i), nil
		}
		seen = c.end
		if c.end-c.start > c.limits.Line {
			return nil, failure.Fact(fmt.Sprintf("line longer than the limit of %d bytes", c.limits.Line))
		}
		if c.end == len(c.buf) {
			c.grow()
			seen = c.end
		}
		n, err := c.stdout.Read(c.buf[c.end:])
		c.end += n
		if n == 0 && err != nil {
			if errors.Is(err, os.ErrClosed) || errors.Is(err, io.EOF) {
				err = ErrClosed
			}
			return nil, err
		}
	}
}

// grow makes room behind end.
func (c *Stdio) grow() {
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
func (c *Stdio) take(i int) []byte {
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

// Send writes a line. In a crowd nobody writes at once, so that the lines of all senders go together: one system call
// writes them, and the server wakes once.
func (c *Stdio) Send(ctx context.Context, line []byte, crowded bool) (*Sending, error) {
	c.mu.Lock()
	if !c.busy && !crowded {
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
func (c *Stdio) join(line []byte) (*Sending, bool) {
	if c.next == nil {
		c.next = &Sending{done: make(chan struct{}), failed: make(chan struct{})}
	}
	b := c.next
	if len(b.lines) > 0 && len(b.lines)+len(line) > mostJoined {
		return b, false
	}
	b.lines = append(b.lines, line...)
	return b, true
}

// handOn has what waits written, if anything does. c.mu is held.
func (c *Stdio) handOn() {
	if c.busy = c.next != nil; c.busy {
		go c.drain()
	}
}

// drain writes until nothing waits.
func (c *Stdio) drain() {
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
func (c *Stdio) put(lines []byte) error {
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
		return ErrStuck
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Close()
		return fmt.Errorf("%w: %d of %d bytes taken in %v", ErrStuck, n, len(lines), c.limits.Write)
	}
	return err
}

func (c *Stdio) CloseSend() { c.stdin.Close() }

func (c *Stdio) Close() {
	c.stdin.Close()
	c.stdout.Close()
}

func (c *Stdio) Files() []syscall.Conn { return []syscall.Conn{c.stdin, c.stdout} }
