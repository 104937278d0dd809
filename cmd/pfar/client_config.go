package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/clientfile"
)

const clientConfigHelp = `Print the configuration that an MCP client needs to find pfar, as JSON.

Programs that speak HTTP (Claude Code, Cursor, VS Code) get the address and a header, into which you
write the token that "pfar client add" printed. With --stdio, and for clients without a token, the
configuration has a command, for programs that only start commands (Claude Desktop). The command
connects to the Unix socket as you, and acts as the client.

--for prints the file of one program: claude, claude-desktop, codex (TOML), cursor, gemini, goose
(YAML), opencode, vscode, windsurf or zed. Standard error names the file.`

func (c clientVerb) clientConfigCommand() *cobra.Command {
	var stdio bool
	var session, reader string
	cmd := c.outputFlag(&cobra.Command{
		Use: "config NAME", Short: "Print the configuration of an MCP client, as JSON", Long: clientConfigHelp,
		ValidArgsFunction: offerFirst(c.offeredClients),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.clientConfig(cmd.Context(), args[0], session, reader, stdio)
		},
	})
	cmd.Flags().BoolVar(&stdio, "stdio", false, "for programs that start a command")
	programs := strings.Join(clientfile.Names(), ", ")
	cmd.Flags().StringVar(&reader, "for", "claude", "`PROGRAM` that reads the file: "+programs)
	cmd.RegisterFlagCompletionFunc("for", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return clientfile.Names(), noFiles
	})
	cmd.Flags().StringVar(&session, "session", "", "`HANDLE` of a session that you made for it")
	return cmd
}

// defaultEndpoint is where an installed gateway listens.
const defaultEndpoint = "http://127.0.0.1:7417/mcp"

func (c clientVerb) clientConfig(ctx context.Context, name, session, reader string, stdio bool) error {
	if name == access.Operator {
		return errOperator
	}
	p, known := clientfile.Find(reader)
	if !known {
		return usage("--for %q is unknown: use one of %s", reader, strings.Join(clientfile.Names(), ", "))
	}
	one := access.BuiltIn(name)
	if name != access.Default {
		clients, err := c.clients(ctx)
		if err != nil {
			return err
		}
		declared, err := clients.find(name)
		if err != nil {
			return err
		}
		one = declared.Client
	}
	if session != "" && !access.ValidHandle(session) {
		return usage("%q is not the handle of a session", session)
	}
	entry, err := c.entryOf(ctx, one, session, clientfile.Token, stdio || p.Stdio)
	if err != nil {
		return err
	}
	text, err := p.Write(entry)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "pfar: for %s\n", p.File)
	fmt.Fprintln(c.stdout, text)
	return nil
}

// entryOf is how a client reaches pfar: by HTTP with its token, or by a command.
func (c clientVerb) entryOf(
	ctx context.Context, one access.Client, session, token string, stdio bool,
) (clientfile.Entry, error) {
	if stdio || clientfile.ByCommand(one.Name, len(one.Tokens) > 0) {
		return c.bridged(clientfile.As(one.Name, session)...), nil
	}
	endpoint, err := c.endpoint(ctx)
	if err != nil {
		return clientfile.Entry{}, err
	}
	return clientfile.Web(endpoint, one.Name, session, token), nil
}

// endpoint is where this pfar's gateway has its port. Another one's would be sent the token.
func (c clientVerb) endpoint(ctx context.Context) (string, error) {
	report, err := c.report(ctx)
	switch {
	case err == nil && report.Endpoint != "":
		return report.Endpoint, nil
	case err == nil && report.Journal && !c.ofMachine():
		return "", noPort("systemctl --user enable pfar-gateway-http.socket, then systemctl --user restart " +
			"pfar-gateway-http.socket; or use --stdio")
	case err == nil && report.Journal:
		return "", noPort("systemctl status pfar-gateway-http.socket says why; or use --stdio")
	case err == nil:
		return "", noPort("use --stdio")
	case c.ofMachine(): // nobody else has this port, whoever may not ask
		return defaultEndpoint, nil
	}
	return "", err
}

func noPort(hint string) error {
	return fail(exitFailed, "this pfar has no port for programs that speak HTTP").withHint("%s", hint)
}

// bridged is the entry of a program that starts this one.
func (c clientVerb) bridged(args ...string) clientfile.Entry {
	self, err := os.Executable()
	if err != nil {
		self = "pfar"
	}
	return clientfile.Command(self, c.dirs.Run, args...)
}
