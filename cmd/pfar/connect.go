package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const connectHelp = `Bridge MCP on standard input and output to the gateway, for desktop clients that start programs.

Without NAME the client sees the tools of all servers (notion__search), with NAME those of that
one server under its own names, and a server that is starting is waited for. It is the client
"default", as whoever has the endpoint's token, and not you, who are not asked about what you
call; with --client it is that declared client, which finds only what it may use. The bridge ends
when standard input does.`

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
			probe, err := dialGateway(cmd.Context(), c.dirs.Gateway(), c.uid)
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
	var settled bool
	err := c.control().Watch(ctx, func(r control.Report) error {
		s, err := findServer(r, name)
		if err != nil {
			return err
		}
		switch s.State {
		case control.Starting, control.BackOff:
			return nil
		case control.Running, control.Sleeping: // the first request wakes it
			settled = true
			return io.EOF
		}
		return fail(exitFailed, "%s cannot be reached: it is %s", name, describe(s)).withHint("%s", remedy(s))
	})
	switch {
	case settled, errors.Is(err, io.EOF), errors.Is(err, control.ErrNotRunning), errors.Is(err, control.ErrDenied):
		return nil // whoever may not ask pfard hears it from the gateway
	}
	return err
}

// maxMessage bounds one message on standard input, in bytes.
const maxMessage = 64 << 20

var errTooLong = fmt.Errorf("a message exceeds %d bytes", maxMessage)

// readMessages calls each with every line that is not empty, until the input ends.
func readMessages(r io.Reader, each func([]byte) error) error {
	buffered := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(buffered)
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxMessage {
			return nil, errTooLong
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// message is as much of a JSON-RPC message as the bridge must know.
type message struct {
	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params json.RawMessage `json:"params"`
}

// wantsAnswer reports whether the message is a request.
func (m message) wantsAnswer() bool {
	return m.Method != "" && len(m.ID) > 0 && string(m.ID) != "null"
}

// version is the revision that the message names, if that is one without sessions (2026-07-28).
func (m message) version() string {
	var params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	var version string
	if json.Unmarshal(m.Params, &params) != nil || json.Unmarshal(params.Meta[mcp.MetaKeyProtocolVersion], &version) != nil || !mcp.IsModernProtocol(version) {
		return ""
	}
	return version
}

// parseMessage reads a message; of a batch, which revision 2025-03-26 had, the ids are not known.
func parseMessage(line []byte) (message, error) {
	if !json.Valid(line) {
		return message{}, errors.New("not JSON")
	}
	var m message
	if line[0] != '{' {
		return message{}, nil
	}
	return m, json.Unmarshal(line, &m)
}

// untilEOF reads standard input in the background, so that a signal ends the bridge while it waits for a line.
func untilEOF(ctx context.Context, r io.Reader, each func([]byte) error) error {
	done := make(chan error, 1)
	go func() { done <- readMessages(r, each) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
