package main

import (
	"context"
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
	// Not term.ReadPassword: a read that is left behind would take the echo away again.
	return interruptible(ctx, func() ([]byte, error) { return lineOf(f) })
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
	b, err := interruptible(ctx, func() ([]byte, error) {
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
