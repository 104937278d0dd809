package main

import (
	"context"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/attach"
)

// serverLog is the end of a server's log.
type serverLog struct {
	Server  string
	Command string // that shows all of it
	Lines   []string
	More    bool // there are earlier lines
}

// maxLogLines is how many lines of a log a page shows.
const maxLogLines = 400

func logPage(ctx context.Context, s *site, server string) (content, error) {
	b := serverLog{Server: visible.Reveal(server), Command: visible.Reveal("pfar logs -n -1 " + server)}
	c := content{title: "Log of " + b.Server, template: "log", quiet: true}
	report, _ := s.runs.now()
	switch {
	case report == nil:
		return content{}, errNothingSaid
	case !readsLogs(s, report):
		return content{}, errNoOrders
	}
	var err error
	b.Lines, b.More, err = s.archive.log(ctx, server)
	c.body = b
	return c, err
}

// log returns the last lines of a server's log.
func (a *archive) log(ctx context.Context, server string) (lines []string, more bool, err error) {
	text, more, err := a.view(ctx, attach.View{What: attach.ViewLog, Subject: server}, "the log")
	lines = slices.Collect(strings.Lines(text))
	if more && len(lines) > 1 {
		lines = lines[1:] // the first may be the end of a line
	}
	if n := len(lines) - maxLogLines; n > 0 {
		lines, more = lines[n:], true
	}
	for i, line := range lines {
		lines[i] = visible.Reveal(strings.TrimSuffix(line, "\n"))
	}
	return lines, more, err
}

// showLog makes the page of a log.
func showLog(s *site, server string) maker {
	return func(ctx context.Context, _ *session) (content, error) { return logPage(ctx, s, server) }
}
