package main

import (
	"context"
	"fmt"
	"io"
	"os"

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

// readUpTo reads a whole input, and one byte more than limit if there is more.
func readUpTo(ctx context.Context, r io.Reader, limit int64) ([]byte, error) {
	return interruptible(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit+1)) })
}

// readHidden asks on a terminal without echo, and gives the terminal its echo back also after Ctrl-C.
func readHidden(ctx context.Context, f *os.File) ([]byte, error) {
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("reading the terminal's state: %w", err)
	}
	b, err := interruptible(ctx, func() ([]byte, error) { return term.ReadPassword(int(f.Fd())) })
	if ctx.Err() != nil {
		term.Restore(int(f.Fd()), state)
	}
	return b, err
}
