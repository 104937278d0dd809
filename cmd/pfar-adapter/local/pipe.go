package local

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-adapter/remote/fault"
)

// Pipe speaks with a server that reads lines from the FIFO PATH.in, and writes lines to PATH.out.
func (a Adapter) Pipe(ctx context.Context, args []string) error {
	none := flag.NewFlagSet("pipe", flag.ContinueOnError)
	path, command, err := split(none, args, "pipe PATH [-- COMMAND [ARGUMENT...]]")
	if err != nil {
		return err
	}
	if command != nil {
		if err := makeFIFOs(path); err != nil {
			return err
		}
	}
	return a.with(ctx, command, func(ctx context.Context, _ func() bool) error {
		in, out, err := a.open(ctx, path)
		if err != nil {
			return err
		}
		defer in.Close()
		defer out.Close()
		over := make(chan error, 2)
		var told atomic.Bool // the server, that there is nothing more
		go func() {
			_, err := io.Copy(in, a.In)
			told.Store(err == nil)
			in.Close() // the server reads the end of its input
			if err != nil {
				over <- errors.New("writing to the server: " + fault.Cause(err))
			}
		}()
		go func() {
			_, err := io.Copy(a.Out, out)
			if err == nil && !told.Load() {
				err = errors.New("the server has closed its pipe")
			}
			over <- err
		}()
		select {
		case err := <-over:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// makeFIFOs makes the two, for a server that finds or makes them.
func makeFIFOs(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making the directory of the FIFOs: %w", err)
	}
	for _, end := range []string{".in", ".out"} {
		if err := unix.Mkfifo(path+end, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making the FIFO %q: %w", path+end, err)
		}
	}
	return nil
}

// open opens both FIFOs, at the same time: nobody knows in which order the server opens them, and each waits for its
// other end.
func (a Adapter) open(ctx context.Context, path string) (in, out *os.File, err error) {
	type opened struct {
		f   *os.File
		err error
	}
	end := func(name string, flags int) <-chan opened {
		c := make(chan opened, 1)
		go func() { // until this process ends, if nobody is there
			fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
			if err != nil {
				c <- opened{nil, fmt.Errorf("opening %q: %w", name, err)}
				return
			}
			_ = unix.SetNonblock(fd, true)
			c <- opened{os.NewFile(uintptr(fd), name), nil}
		}()
		return c
	}
	ins, outs := end(path+".in", unix.O_WRONLY), end(path+".out", unix.O_RDONLY)
	late := a.After(a.Limits.Listen)
	for in == nil || out == nil {
		var o opened
		select {
		case o = <-ins:
			in = o.f
		case o = <-outs:
			out = o.f
		case <-ctx.Done():
			o.err = context.Cause(ctx)
		case <-late:
			missing := "reads from " + path + ".in"
			if in != nil {
				missing = "writes to " + path + ".out"
			}
			o.err = fmt.Errorf("nobody %s within %s", missing, a.Limits.Listen)
		}
		if o.err != nil {
			in.Close()
			out.Close()
			return nil, nil, o.err
		}
	}
	return in, out, nil
}
