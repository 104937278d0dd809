// Command pfar-gateway speaks MCP both ways: to the servers that launchers hand over, and to clients on loopback and on
// a Unix socket.
//
// It is run as a unit with four listeners (LISTEN_FDNAMES http, unix, servers and operator), one more for Prometheus if
// it is asked for (metrics), and the credential "token".
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/migrate"
)

const usage = `Usage: pfar-gateway [--token-file FILE] [--allow-uid UID]...
                    [--control PATH] [--inspectors DIR] [--keep-audit]
                    --pins DIR --state DIR

Started by pfard or systemd, which pass its listeners by LISTEN_FDS and its
token as the credential "token" ($CREDENTIALS_DIRECTORY).

  --token-file FILE  read the bearer token of the TCP endpoint from FILE
  --allow-uid UID    serve this user on the Unix socket, beside root and the
                     user that pfar-gateway runs as; may be repeated
  --control PATH     ask pfard on this socket what clients, policies and secrets
                     there are, and to start and stop servers
  --inspectors DIR   ask the inspectors of the policy, and send its notices, on
                     their sockets in this directory
  --keep-audit       have the service manager keep the audit file, so that the next
                     gateway records without waiting for pfard
  --pins DIR         keep what tools have been accepted in this directory
  --state DIR        keep what sessions have seen, and approvals, in this directory
`

func main() {
	if len(os.Args) == 2 && os.Args[1] == native.PickVerb { // by the gateway, for a node of flows
		os.Exit(native.RunPick(os.Stdin, os.Stdout))
	}
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	var o options
	flag.StringVar(&o.tokenFile, "token-file", "", "")
	flag.Var(&o.uids, "allow-uid", "")
	flag.StringVar(&o.control, "control", "", "")
	flag.StringVar(&o.inspect, "inspectors", "", "")
	flag.BoolVar(&o.keepAudit, "keep-audit", false, "")
	flag.StringVar(&o.pins, "pins", "", "")
	flag.StringVar(&o.state, "state", "", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	full := func() { _, _ = daemon.SdNotify(false, units.NotifyLogFull+"=1") }
	log := slog.New(journal.New(&journal.Counted{To: os.Stderr, Every: units.LogSegment, Full: full}))
	err := run(ctx, o, log)
	journal.Settle()
	if err != nil {
		fmt.Fprintf(os.Stderr, "pfar-gateway: %v\n", err)
		migrate.Rest(ctx, err)
		os.Exit(1)
	}
}
