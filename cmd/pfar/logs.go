package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"

	"github.com/spf13/cobra"
)

// serverOnly is a whole server's name; nothing else may become part of a path.
var serverOnly = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

func (c *cli) logsCommand() *cobra.Command {
	var follow bool
	var count int
	cmd := &cobra.Command{
		Use:               "logs NAME",
		Short:             "Print what a server wrote to its standard error",
		Example:           example("pfar logs notion -n 20", "pfar logs notion -f"),
		Args:              arguments("NAME"),
		ValidArgsFunction: c.completeServers(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !serverOnly.MatchString(args[0]) {
				return usage("%q is not a server's name", args[0])
			}
			return c.logs(cmd.Context(), args[0], count, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what is written until Ctrl-C")
	cmd.Flags().IntVarP(&count, "lines", "n", 100, "how many of the last lines to print; -1 for all")
	return cmd
}

func (c *cli) logs(ctx context.Context, name string, count int, follow bool) error {
	path := c.dirs.Log(name)
	if report, err := c.report(ctx); err == nil {
		s, err := findServer(report, name)
		if err != nil {
			return err
		}
		if s.Log != "" {
			path = s.Log
		}
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !follow:
		return fail(exitNoSuch, "no log of %q yet", name).withHint("it would be %s", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the log of %q: %w", name, err)
	}
	var offset int64
	if f != nil {
		offset, err = c.printTail(f, count)
		f.Close()
		if err != nil {
			return fmt.Errorf("reading the log of %q: %w", name, err)
		}
	}
	if !follow {
		return nil
	}
	if err := followFile(ctx, path, offset, c.logWriter()); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("following the log of %q: %w", name, err)
	}
	return nil
}

// logWriter is standard output; on a terminal a server's log must not be obeyed.
func (c *cli) logWriter() io.Writer {
	if isTerminal(c.stdout) {
		return escapingWriter{c.stdout}
	}
	return c.stdout
}

// escapingWriter escapes what it is given, line by line or not at all whole: a character that two writes split shows as bytes.
type escapingWriter struct{ w io.Writer }

func (e escapingWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(e.w, escape(string(b), keepLines)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printTail prints the last lines of the file and returns where it ended.
func (c *cli) printTail(f *os.File, count int) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	start, err := tailStart(f, end, count)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriter(c.logWriter())
	if _, err := io.Copy(w, io.NewSectionReader(f, start, end-start)); err != nil {
		return 0, err
	}
	return end, w.Flush()
}

// tailStart finds where the last count lines of a file of size bytes begin, reading backwards.
func tailStart(r io.ReaderAt, size int64, count int) (int64, error) {
	switch {
	case count < 0:
		return 0, nil
	case count == 0:
		return size, nil
	}
	const block = 32 << 10
	buffer := make([]byte, block)
	end := size
	for first := true; end > 0; {
		begin := max(0, end-block)
		b := buffer[:end-begin]
		if _, err := r.ReadAt(b, begin); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if first && len(b) > 0 && b[len(b)-1] == '\n' { // ends the last line, does not begin one
			b = b[:len(b)-1]
		}
		first = false
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if count--; count <= 0 {
				return begin + int64(i) + 1, nil
			}
			b = b[:i]
		}
		end = begin
	}
	return 0, nil
}
