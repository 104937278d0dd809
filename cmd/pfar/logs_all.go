package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal/entries"
)

// allLogs prints the logs of every server as one, with the server's name before each line.
func (c logsVerb) allLogs(ctx context.Context, count int, follow bool) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	if len(report.Servers) == 0 {
		return fail(exitNoSuch, "%s declares no server", report.Directory)
	}
	if report.Journal {
		var names []string
		for _, s := range report.Servers {
			names = append(names, entries.Of(s.Name)...)
		}
		return c.printJournal(ctx, "any server", entries.Query{Units: names, Lines: count, Follow: follow})
	}
	return c.allLogFiles(ctx, report.Servers, count, follow)
}

// logLine is a line of one server's log.
type logLine struct {
	server, stamp, text string
}

func (c logsVerb) allLogFiles(ctx context.Context, servers []control.Server, count int, follow bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lock sync.Mutex
	var lines []logLine
	var follows []func() error
	for _, s := range servers {
		path := s.Log
		if path == "" {
			path = c.dirs.Log(s.Name)
		}
		w := &namedLines{name: s.Name, print: c.printLogLine, lock: &lock}
		last, end, err := lastLines(path, count, w, follow)
		if err != nil {
			return fmt.Errorf("reading the log of %q: %w", s.Name, err)
		}
		lines = append(lines, last...)
		follows = append(follows, func() error {
			if err := followFile(ctx, path, end, w); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("following the log of %q: %w", s.Name, err)
			}
			return nil
		})
	}
	slices.SortStableFunc(lines, func(a, b logLine) int { return strings.Compare(a.stamp, b.stamp) })
	if count >= 0 && len(lines) > count {
		lines = lines[len(lines)-count:]
	}
	for _, l := range lines {
		if err := c.printLogLine(l.server, l.text); err != nil {
			return err
		}
	}
	if !follow {
		return nil
	}
	ended := make(chan error)
	for _, f := range follows {
		go func() { ended <- f() }()
	}
	var first error
	for range follows {
		if err := <-ended; err != nil && first == nil {
			first = err
		}
		cancel() // one that failed ends all
	}
	return first
}

// lastLines returns the last lines of a log and the size of the file. If the log is followed, w is given a last line
// that has not ended.
func lastLines(path string, count int, w *namedLines, follow bool) (lines []logLine, end int64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	var b bytes.Buffer
	if count > 0 {
		count++ // the last one may not have ended
	}
	if end, err = printTail(&b, f, count); err != nil {
		return nil, 0, err
	}
	stamp := ""
	for line := range strings.Lines(b.String()) {
		whole, ended := strings.CutSuffix(line, "\n")
		if !ended && follow {
			w.part = []byte(whole)
			break
		}
		if at, _, ok := strings.Cut(whole, " "); ok && strings.HasPrefix(at, "2") { // pfar-sandbox puts the time before each line
			stamp = at
		}
		lines = append(lines, logLine{server: w.name, stamp: stamp, text: whole})
	}
	return lines, end, nil
}

// namedLines prints each whole line that it is given.
type namedLines struct {
	name  string
	print func(server, line string) error
	lock  *sync.Mutex // of those that print to one place
	part  []byte      // of a line that has not ended
}

func (n *namedLines) Write(b []byte) (int, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	rest := append(n.part, b...)
	for {
		line, after, ended := bytes.Cut(rest, []byte("\n"))
		if !ended && len(line) < maxLogLine {
			break
		}
		if err := n.print(n.name, string(line)); err != nil {
			return 0, err
		}
		rest = after
	}
	n.part = bytes.Clone(rest)
	return len(b), nil
}
