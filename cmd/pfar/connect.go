package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator/ask"
)

const connectHelp = `Connect standard input and output to the gateway by MCP, for desktop clients that start programs.

Without NAME the client sees the tools of all servers (notion__search). With NAME it sees the tools of
that one server under their own names, and waits while the server starts.

It connects as the client "default", not as the operator, so its calls may need approval. With
--client it connects as that declared client. It ends when standard input ends.`

// connectVerb serves one client on standard input and output.
type connectVerb struct{ *pfar }

func (c connectVerb) connectCommand() *cobra.Command {
	var as persona
	cmd := &cobra.Command{
		Use:               "connect [NAME]",
		Short:             "Bridge MCP on stdio to the gateway, for desktop clients",
		Long:              connectHelp,
		Example:           example(`{"mcpServers": {"pfar": {"command": "pfar", "args": ["connect"]}}}`),
		Args:              arguments("[NAME]"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			server := ""
			if len(args) == 1 {
				if server = args[0]; !units.IsServer(server) {
					return usage("%q is not a server's name", server)
				}
			}
			if as == (persona{}) {
				as.client = access.Default // a model speaks through the bridge, and it is not the person at the terminal
			}
			if as.client == access.Operator {
				return errOperator
			}
			endpoint, err := as.endpoint(server)
			if err != nil {
				return err
			}
			// A client that is told nothing waits for ever, so find out now whether anybody is there.
			probe, err := ask.Dial(cmd.Context(), c.dirs.Gateway(), c.uid)
			if err != nil {
				return err
			}
			probe.Close()
			if len(args) == 1 {
				if err := c.awaitServer(cmd.Context(), args[0]); err != nil {
					return err
				}
			}
			return newBridge(endpoint, c.gatewayHTTP(), c.stdout).run(cmd.Context(), c.stdin)
		},
	}
	as.flags(cmd.Flags())
	cmd.RegisterFlagCompletionFunc("client", offer(c.offeredClients))
	return cmd
}

// awaitServer waits while the server is on its way up, and says why it is not there if it is not: the gateway does not
// know what never ran.
func (c connectVerb) awaitServer(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, fmt.Errorf("%q did not settle within %s", name, settleTimeout))
	defer cancel()
	err := c.control().Await(ctx, func(r control.Report) (bool, error) {
		s, err := findServer(r, name)
		if err != nil {
			return false, err
		}
		switch s.State {
		case control.Starting, control.BackOff, control.Offline, control.Fetching:
			return false, nil
		case control.Running, control.Sleeping: // the first request wakes it
			return true, nil
		}
		return false, fail(exitFailed, "cannot connect to %s: it is %s", name, describe(s)).withHint("%s", remedy(s))
	})
	if errors.Is(err, io.EOF) || errors.Is(err, control.ErrNotRunning) || errors.Is(err, control.ErrDenied) {
		return nil // whoever may not ask pfard hears it from the gateway
	}
	return err
}
