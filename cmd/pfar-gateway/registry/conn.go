package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// conn frames messages on a server's stdio, a line each (TRA-02).
type conn struct {
	stdin  *os.File
	stdout *os.File
	limits *Limits
	writer chan struct{} // held by whoever writes
	by     time.Time     // when a write fails that is under way

	buf        []byte // read ahead
	start, end int    // of what is not yet taken
}

const (
	readAhead = 4 << 10  // per server, so small: a server is mostly idle
	keepLine  = 32 << 10 // a longer line is handed over with its buffer instead of copied
)

var (
	errLine  = errors.New("line longer than the limit")
	errStuck = errors.New("it does not read its stdin")
)

func newConn(stdin, stdout *os.File, limits *Limits) *conn {
	return &conn{stdin: stdin, stdout: stdout, limits: limits, writer: make(chan struct{}, 1), buf: make([]byte, readAhead)}
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
	select {
	case c.writer <- struct{}{}:
	default:
		select {
		case c.writer <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer func() { <-c.writer }()
	if now := time.Now(); c.by.Before(now.Add(c.limits.Write)) { // setting it is dear, and a second more or less is nothing
		c.by = now.Add(c.limits.Write + time.Second)
		if err := c.stdin.SetWriteDeadline(c.by); err != nil {
			return err
		}
	}
	n, err := c.stdin.Write(line)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && n == 0:
		return errStuck
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.close()
		return fmt.Errorf("%w: %d of %d bytes taken in %v", errStuck, n, len(line), c.limits.Write)
	}
	return err
}

// closeInput is the first step of a server's stop (LIF-09).
func (c *conn) closeInput() { c.stdin.Close() }

func (c *conn) close() {
	c.stdin.Close()
	c.stdout.Close()
}
