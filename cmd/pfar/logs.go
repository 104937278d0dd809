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
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal/entries"
)

const logsHelp = `Print the last 100 lines of the standard error of a server, or of all servers; -n sets another number.

A line that the server wrote has "| " after its time; the other lines are pfar's or systemd's. Without NAME, each line
begins with the name of its server.

With --json each line is an object with "time" (in UTC), "text" and, without NAME, "server". A line that the
server wrote has "from": "server". A line without a known time has no "time".`

// logsVerb prints the logs of servers.
type logsVerb struct{ *pfar }

func (c logsVerb) logsCommand() *cobra.Command {
	var follow, gateway bool
	count := lineCount(100)
	cmd := c.outputFlag(&cobra.Command{
		Use:   "logs [NAME]",
		Short: "Print the standard error of a server, or of all servers",
		Long:  logsHelp,
		Example: example("pfar logs notion -n 20", "pfar logs notion -f", "pfar logs notion --json | jq -r .text",
			"pfar logs --gateway -f"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if gateway {
				if len(args) > 0 {
					return usage("--gateway takes no server's name")
				}
				return c.gatewayLogs(cmd.Context(), int(count), follow)
			}
			if len(args) == 0 {
				return c.allLogs(cmd.Context(), int(count), follow)
			}
			if !units.IsServer(args[0]) {
				return usage("%q is not a server's name", args[0])
			}
			return c.logs(cmd.Context(), args[0], int(count), follow)
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	cmd.Flags().BoolVar(&gateway, "gateway", false, "print the gateway's log: refused and failed calls, and faulty messages of servers")
	cmd.Flags().VarP(&count, "lines", "n", "number of lines to print; -1 for all")
	return cmd
}

// lineCount is the flag value that takes a number of lines.
type lineCount int

func (n *lineCount) String() string { return strconv.Itoa(int(*n)) }
func (n *lineCount) Type() string   { return "N" }
func (n *lineCount) Set(s string) error {
	v, err := strconv.Atoi(s)
	if err != nil || v < -1 {
		return errors.New("want a number of lines, or -1 for all")
	}
	*n = lineCount(v)
	return nil
}

func (c logsVerb) logs(ctx context.Context, name string, count int, follow bool) error {
	path := c.dirs.Log(name)
	report, err := c.report(ctx)
	if err == nil {
		s, err := findServer(report, name)
		if err != nil {
			return err
		}
		if s.Log != "" {
			path = s.Log
		}
	}
	if c.inJournal(report, err, path) {
		q := entries.Query{Units: entries.Of(name), Server: name, Lines: count, Follow: follow}
		return c.printJournal(ctx, strconv.Quote(name), q)
	}
	return c.printLog(ctx, strconv.Quote(name), path, count, follow)
}

func (c logsVerb) gatewayLogs(ctx context.Context, count int, follow bool) error {
	const of = "the gateway"
	path := c.dirs.Log(units.GatewayLog)
	if report, err := c.report(ctx); c.inJournal(report, err, path) {
		return c.printJournal(ctx, of, entries.Query{Units: []string{units.GatewayLog}, Lines: count, Follow: follow})
	}
	return c.printLog(ctx, of, path, count, follow)
}

// printLog prints the end of a log, and goes on as it grows if it is to be followed.
func (c logsVerb) printLog(ctx context.Context, of, path string, count int, follow bool) error {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !follow:
		return fail(exitNoSuch, "no log of %s yet", of).withHint("it would be %s", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("reading the log of %s: %w", of, err)
	}
	w := c.logWriter()
	var offset int64
	if f != nil {
		offset, err = printTail(w, f, count)
		f.Close()
		if err != nil {
			return fmt.Errorf("reading the log of %s: %w", of, err)
		}
	}
	if !follow {
		return w.Close()
	}
	if err := followFile(ctx, path, offset, w); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("following the log of %s: %w", of, err)
	}
	return w.Close()
}

// printTail prints the last lines of the file and returns where it ended.
func printTail(to io.Writer, f *os.File, count int) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	start, err := tailStart(f, end, count)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriter(to)
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
