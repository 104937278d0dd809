package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/cmd/pfard/control"
)

const vaultHelp = `Keep the secrets that declarations name as "vault:KEY".

"pfar vault set KEY" asks for the value without showing it, or reads it from standard input. It
never takes it as an argument: every user of the host can read the arguments of a process.`

func (c *cli) vaultCommand() *cobra.Command {
	vault := &cobra.Command{
		Use:     "vault",
		Short:   "Keep the secrets that declarations name",
		Long:    vaultHelp,
		Example: example("pfar vault set notion_token", "pass show notion | pfar vault set notion_token", "pfar vault list"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("which of set, list, remove?").withHint("pfar vault --help")
		},
	}
	vault.AddCommand(
		c.outputFlag(&cobra.Command{
			Use: "set KEY", Short: "Store a secret, from a hidden prompt or standard input", Args: onlyKey, ValidArgsFunction: c.completeKeys,
			RunE: func(cmd *cobra.Command, args []string) error { return c.vaultSet(cmd, args[0]) },
		}),
		c.outputFlag(&cobra.Command{
			Use: "list", Short: "List the keys, never the values", Args: arguments(),
			RunE: func(cmd *cobra.Command, _ []string) error { return c.vaultList(cmd) },
		}),
		c.outputFlag(&cobra.Command{
			Use: "remove KEY", Short: "Remove a secret", Args: arguments("KEY"), ValidArgsFunction: c.completeKeys,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.changeVault(cmd.Context(), control.Request{Verb: control.Remove, Key: args[0]}, "removed")
			},
		}),
	)
	return vault
}

// onlyKey refuses a value among the arguments without repeating it.
func onlyKey(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage("a secret is never an argument, where every user of the host can read it").
			withHint("%s %s < FILE, or without the value for a prompt; and change the secret that you just typed", cmd.CommandPath(), "KEY")
	}
	return arguments("KEY")(cmd, args)
}

// maxSecret bounds a secret, in bytes: it must fit into a request.
const maxSecret = 512 << 10

func (c *cli) vaultSet(cmd *cobra.Command, key string) error {
	secret, err := c.readSecret(cmd.Context(), key)
	if err != nil {
		return err
	}
	return c.changeVault(cmd.Context(), control.Request{Verb: control.Store, Key: key, Secret: string(secret)}, "stored")
}

// changeVault is silent when all went well, as programs are, but a reader of JSON gets an object.
func (c *cli) changeVault(ctx context.Context, request control.Request, done string) error {
	if _, err := c.control().Do(ctx, request); err != nil || !c.json() {
		return err
	}
	return c.printJSON(map[string]string{"key": request.Key, "result": done})
}

// readSecret asks on a terminal, without echo, or reads all of standard input, where one line break at the end is not
// part of the secret.
func (c *cli) readSecret(ctx context.Context, key string) ([]byte, error) {
	var secret []byte
	if f, ok := c.stdin.(*os.File); ok && isTerminal(f) {
		fmt.Fprintf(c.stderr, "Value of %q (not shown): ", key)
		b, err := readHidden(ctx, f)
		fmt.Fprintln(c.stderr)
		if err != nil {
			return nil, fmt.Errorf("reading the secret: %w", err)
		}
		secret = b
	} else {
		b, err := readUpTo(ctx, c.stdin, maxSecret)
		if err != nil {
			return nil, fmt.Errorf("reading the secret: %w", err)
		}
		secret = bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	}
	switch {
	case len(secret) == 0:
		return nil, errors.New("the secret is empty")
	case len(secret) > maxSecret:
		return nil, fmt.Errorf("the secret exceeds %d bytes", maxSecret)
	case bytes.IndexByte(secret, 0) >= 0:
		return nil, errors.New("the secret holds a NUL, which no environment variable can")
	}
	return secret, nil
}

func (c *cli) vaultList(cmd *cobra.Command) error {
	r, err := c.control().Do(cmd.Context(), control.Request{Verb: control.Secrets})
	if err != nil {
		return err
	}
	if c.json() {
		if r.Secrets == nil {
			r.Secrets = []string{}
		}
		return c.printJSON(r.Secrets)
	}
	for _, key := range r.Secrets {
		fmt.Fprintln(c.stdout, escape(key, oneLine))
	}
	return nil
}
