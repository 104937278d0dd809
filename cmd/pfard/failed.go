package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal"
)

// detailWait is how long pfard may take to say why. The launcher tells it before systemd learns of the failure.
const detailWait = 3 * time.Second

// tellFailed is what pfar-failed@.service runs (OnFailure=): one entry in the journal, and the owner's program.
// instance is that of pfar-mcp@.service; getenv gives systemd's $MONITOR_ variables (systemd.exec(5)).
func tellFailed(ctx context.Context, instance string, dirs control.Dirs, getenv func(string) string, log *slog.Logger) {
	if refresh, ok := strings.CutPrefix(instance, units.FailedRefresh); ok {
		tellRefused(ctx, refresh, dirs, log)
		return
	}
	pfard := control.Client{Path: dirs.Control()}
	server, session, ofSession := strings.Cut(instance, "_")
	if ofSession { // its server runs on, and nobody needs to do anything
		log.Warn("the process of a session failed", "server", serverOf(ctx, server, pfard), "session", session, "reason", monitored(getenv))
		return
	}
	found, err := failedServer(ctx, server, pfard)
	f := failure{server: server, reason: found.Detail}
	if err != nil {
		f.reason = monitored(getenv)
	}
	remedy := fmt.Sprintf("pfar logs %s says more, pfar enable %s starts it again", f.server, f.server)
	if found.Broken {
		remedy = "pfar check says what to write in " + found.File + "; the server starts when that is corrected"
	}
	log.Log(ctx, journal.LevelCritical, "an MCP server is disabled", "server", f.server, "reason", f.reason, "remedy", remedy)
	hook{path: dirs.OnFailure(), log: log}.tell(ctx, f)
}

// tellRefused tells of a token set whose refresh has failed, if pfard says that nobody tries again.
func tellRefused(ctx context.Context, instance string, dirs control.Dirs, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, detailWait+hookLimit)
	defer cancel()
	r, err := control.Client{Path: dirs.Control()}.Do(ctx, control.Request{Verb: control.Secrets})
	if err != nil {
		log.Warn("asking pfard about a refresh that failed, ignoring", "error", err)
		return
	}
	for _, set := range r.Secrets {
		if units.RefreshInstance(set.Key) != instance || !set.Refused {
			continue
		}
		f := failure{secret: set.Key, reason: set.Problem}
		log.Log(ctx, journal.LevelCritical, "an OAuth token set cannot be refreshed any more", "key", f.secret, "reason", f.reason)
		hook{path: dirs.OnFailure(), log: log}.tell(ctx, f)
	}
}

// serverOf asks pfard for the name of which an instance for one session has the beginning (units.Instance). That is
// returned if there are several, or nobody knows.
func serverOf(ctx context.Context, beginning string, pfard control.Client) string {
	ctx, cancel := context.WithTimeout(ctx, detailWait)
	defer cancel()
	var names []string
	_ = pfard.Watch(ctx, func(r control.Report) error {
		for _, s := range r.Servers {
			if handle := units.NewSession(); s.SessionsMax > 0 && units.Instance(s.Name, handle) == beginning+"_"+handle {
				names = append(names, s.Name)
			}
		}
		return io.EOF // the first is enough
	})
	if len(names) != 1 {
		return beginning
	}
	return names[0]
}

// failedServer asks pfard about a server that has failed.
func failedServer(ctx context.Context, name string, pfard control.Client) (server control.Server, err error) {
	ctx, cancel := context.WithTimeout(ctx, detailWait)
	defer cancel()
	found := errors.New("found")
	err = pfard.Watch(ctx, func(r control.Report) error {
		for _, s := range r.Servers {
			if s.Name == name && s.State == control.Failed {
				server = s
				return found
			}
		}
		return nil
	})
	if errors.Is(err, found) {
		return server, nil
	}
	return control.Server{}, err
}

// monitored says in words what systemd knows of the end of the unit that failed.
func monitored(getenv func(string) string) string {
	result, status := getenv("MONITOR_SERVICE_RESULT"), getenv("MONITOR_EXIT_STATUS")
	switch {
	case result == "":
		return "unknown"
	case result == "oom-kill":
		return "killed by the kernel: out of memory"
	case result == "timeout":
		return "it did not start in time"
	case result == "exit-code" && status == fmt.Sprint(units.ExitDisabled):
		return "crashed too often, or cannot start on this machine"
	case status == "":
		return result
	}
	return result + ", status " + status
}
