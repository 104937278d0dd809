package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// interruptible runs a read that knows no context; when ctx ends first, the read is left behind for the process's end.
func interruptible(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		b   []byte
		err error
	}
	results := make(chan result, 1)
	go func() {
		b, err := read()
		results <- result{b, err}
	}()
	select {
	case r := <-results:
		return r.b, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readTyped runs a read of a terminal that has something to be read. When ctx ends first, no read is left behind, and
// nothing that was typed for it: it may be half of a secret, and whoever reads next would show it.
func readTyped(ctx context.Context, f *os.File, read func() ([]byte, error)) ([]byte, error) {
	ended, end, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("waiting for the terminal: %w", err)
	}
	defer ended.Close()
	defer end.Close()
	defer context.AfterFunc(ctx, func() { end.Close() })()
	on := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}, {Fd: int32(ended.Fd()), Events: unix.POLLIN}}
	for {
		switch _, err := unix.Poll(on, -1); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, fmt.Errorf("waiting for the terminal: %w", err)
		case on[1].Revents != 0:
			_ = unix.IoctlSetInt(int(f.Fd()), unix.TCFLSH, unix.TCIFLUSH)
			return nil, ctx.Err()
		case on[0].Revents != 0:
			return read()
		}
	}
}

// answered runs a read of what a person types, if somebody does.
func (c *streams) answered(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	if f, ok := fileOf(c.stdin); ok && isTerminal(f) {
		return readTyped(ctx, f, read)
	}
	return interruptible(ctx, read)
}

// readHidden asks on a terminal without echo, also of what is typed as the question appears, and gives the terminal its
// echo back also after Ctrl-C.
func readHidden(ctx context.Context, f *os.File, ask func()) ([]byte, error) {
	fd := int(f.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return nil, fmt.Errorf("reading the terminal's state: %w", err)
	}
	defer term.Restore(fd, state)
	quiet, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err == nil {
		quiet.Lflag = quiet.Lflag&^unix.ECHO | unix.ICANON | unix.ISIG
		quiet.Iflag |= unix.ICRNL
		err = unix.IoctlSetTermios(fd, unix.TCSETS, quiet)
	}
	if err != nil {
		return nil, fmt.Errorf("taking the terminal's echo away: %w", err)
	}
	ask()
	return readTyped(ctx, f, func() ([]byte, error) { return lineOf(f) })
}

// lineOf reads a line and nothing after it.
func lineOf(f *os.File) (line []byte, err error) {
	for b := make([]byte, 1); ; {
		n, err := f.Read(b)
		switch {
		case n == 1 && b[0] == '\n':
			return line, nil
		case n == 1:
			line = append(line, b[0])
		case err == io.EOF && len(line) > 0:
			return line, nil
		case err != nil:
			return nil, err
		}
	}
}

// askLine asks for a line of text, which the terminal shows. It returns io.EOF when there is no more.
func (c *streams) askLine(ctx context.Context, question string) (string, error) {
	fmt.Fprint(c.stderr, escape(question, oneLine)+" ")
	b, err := c.answered(ctx, func() ([]byte, error) {
		b := make([]byte, maxAnswered) // a terminal gives one line
		n, err := c.stdin.Read(b)
		return b[:n], err
	})
	if err != nil {
		fmt.Fprintln(c.stderr)
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// maxAnswered is more than a terminal takes in one line.
const maxAnswered = 8 << 10
