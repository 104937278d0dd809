package main

import (
	"context"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator/ask"
)

// serverLog is the end of a server's log.
type serverLog struct {
	Server  string
	Command string // that shows all of it
	Lines   []string
	More    bool // there are earlier lines
}

// What a page shows of a log: this many lines at most, of the last bytes.
const (
	maxLog      = 256 << 10
	maxLogLines = 400
)

func logPage(ctx context.Context, s *site, server string) (content, error) {
	b := serverLog{Server: visible.Reveal(server), Command: visible.Reveal("pfar logs -n -1 " + server)}
	c := content{title: "Log of " + b.Server, template: "log", quiet: true}
	if !s.orders.allowed.Load() {
		return content{}, errNoOrders
	}
	var err error
	b.Lines, b.More, err = s.archive.log(ctx, server)
	c.body = b
	return c, err
}

// log returns the last lines of a server's log.
func (a *archive) log(ctx context.Context, server string) (lines []string, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	unread := func(why string) error {
		return &ask.Refusal{Reason: "the console cannot read the log: " + visible.Reveal(why)}
	}
	done, err := a.turn(ctx, unread)
	if err != nil {
		return nil, false, err
	}
	defer done()
	asks := func(q attach.Question) error { return a.asksLog(attach.LogWanted{Question: q, Server: server}) }
	got, err := a.fetch(ctx, asks, unread)
	if err != nil {
		return nil, false, err
	}
	defer attach.CloseAll(got.files)
	if len(got.files) == 0 { // it has written nothing
		return nil, false, nil
	}
	if lines, more, err = lastLines(got.files[0]); err != nil {
		return nil, false, unread(err.Error())
	}
	return lines, more, nil
}

// lastLines reads the end of a log.
func lastLines(f *os.File) (lines []string, more bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	from := max(0, info.Size()-maxLog)
	text, err := io.ReadAll(io.NewSectionReader(f, from, maxLog))
	if err != nil {
		return nil, false, err
	}
	lines = slices.Collect(strings.Lines(string(text)))
	if more = from > 0; more && len(lines) > 1 {
		lines = lines[1:] // the first is the end of a line
	}
	if n := len(lines) - maxLogLines; n > 0 {
		lines, more = lines[n:], true
	}
	for i, line := range lines {
		lines[i] = visible.Reveal(strings.TrimSuffix(line, "\n"))
	}
	return lines, more, nil
}

// showLog makes the page of a log.
func showLog(s *site, server string) maker {
	return func(ctx context.Context, _ *session) (content, error) { return logPage(ctx, s, server) }
}
