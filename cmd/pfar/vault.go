package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/cmd/pfard/control"
)

const vaultHelp = `Keep the secrets that declarations name as "vault:KEY".

"pfar vault set KEY" asks for the value without showing it, or reads it from standard input. It
never takes it as an argument: every user of the host can read the arguments of a process.

With --oauth the value is an OAuth 2.0 token set in JSON, which pfar keeps fresh: access_token,
refresh_token, expiry or expires_in, token_url, client_id; client_secret, auth_style ("header",
"params", "auto"), scopes and allow_private if there is need of them. Servers get the access token.`

func (c *cli) vaultCommand() *cobra.Command {
	vault := &cobra.Command{
		Use:     "vault",
		Short:   "Keep the secrets that declarations name",
		Long:    vaultHelp,
		Example: example("pfar vault set notion_token", "pass show notion | pfar vault set notion_token", "pfar vault set drive --oauth --file tokens.json", "pfar vault list"),
		Args:    arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("which of set, list, remove?").withHint("pfar vault --help")
		},
	}
	vault.AddCommand(
		c.vaultSetCommand(),
		c.outputFlag(&cobra.Command{
			Use: "list", Short: "List the keys, what they hold and when that ends, never the values", Args: arguments(),
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

func (c *cli) vaultSetCommand() *cobra.Command {
	var tokens bool
	var file string
	set := &cobra.Command{
		Use: "set KEY", Short: "Store a secret, from a hidden prompt, standard input or a file", Args: onlyKey, ValidArgsFunction: c.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error { return c.vaultSet(cmd, args[0], file, tokens) },
	}
	set.Flags().BoolVar(&tokens, "oauth", false, "the secret is an OAuth 2.0 token set in JSON")
	set.Flags().StringVar(&file, "file", "", "read the secret from this `file`")
	return c.outputFlag(set)
}

func (c *cli) vaultSet(cmd *cobra.Command, key, file string, tokens bool) error {
	secret, err := c.secretFrom(cmd.Context(), key, file)
	if err != nil {
		return err
	}
	return c.changeVault(cmd.Context(), control.Request{Verb: control.Store, Key: key, Secret: string(secret), OAuth: tokens}, "stored")
}

// secretFrom reads a file, or without one what readSecret does.
func (c *cli) secretFrom(ctx context.Context, key, file string) ([]byte, error) {
	if file == "" {
		return c.readSecret(ctx, key)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSecretText(ctx, f)
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
	f, ok := c.stdin.(*os.File)
	if !ok || !isTerminal(f) {
		return readSecretText(ctx, c.stdin)
	}
	fmt.Fprintf(c.stderr, "Value of %q (not shown): ", key)
	secret, err := readHidden(ctx, f)
	fmt.Fprintln(c.stderr)
	if err != nil {
		return nil, fmt.Errorf("reading the secret: %w", err)
	}
	return secret, checkSecret(secret)
}

// readSecretText reads all of r, where one line break at the end is not part of the secret.
func readSecretText(ctx context.Context, r io.Reader) ([]byte, error) {
	b, err := readUpTo(ctx, r, maxSecret)
	if err != nil {
		return nil, fmt.Errorf("reading the secret: %w", err)
	}
	secret := bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r"))
	return secret, checkSecret(secret)
}

func checkSecret(secret []byte) error {
	switch {
	case len(secret) == 0:
		return errors.New("the secret is empty")
	case len(secret) > maxSecret:
		return fmt.Errorf("the secret exceeds %d bytes", maxSecret)
	case bytes.IndexByte(secret, 0) >= 0:
		return errors.New("the secret holds a NUL, which no environment variable can")
	}
	return nil
}

// vaulted is what the list says of a secret.
type vaulted struct {
	Key     string    `json:"key"`
	Kind    string    `json:"kind"` // "plain" or "oauth"
	Expiry  time.Time `json:"expiry,omitzero"`
	Problem string    `json:"problem,omitempty"`
}

func (c *cli) vaultList(cmd *cobra.Command) error {
	r, err := c.control().Do(cmd.Context(), control.Request{Verb: control.Secrets})
	if err != nil {
		return err
	}
	list := []vaulted{}
	for _, key := range r.Secrets {
		l := vaulted{Key: key, Kind: "plain"}
		if i := slices.IndexFunc(r.Tokens, func(t control.TokenSet) bool { return t.Key == key }); i >= 0 {
			l.Kind, l.Expiry, l.Problem = "oauth", r.Tokens[i].Expiry, r.Tokens[i].Problem
		}
		list = append(list, l)
	}
	if c.json() {
		return c.printJSON(list)
	}
	if len(list) == 0 {
		return nil
	}
	rows := [][]cell{heading("KEY", "KIND", "EXPIRES", "DETAIL")}
	for _, l := range list {
		rows = append(rows, []cell{{l.Key, ""}, {l.Kind, ""}, {c.expires(l), ""}, {l.Problem, yellow}})
	}
	c.table(c.stdout, rows)
	return nil
}

// expires says when the value of a secret ends, which is refreshed before.
func (c *cli) expires(l vaulted) string {
	switch left := l.Expiry.Sub(c.now()); {
	case l.Kind != "oauth":
		return ""
	case l.Expiry.IsZero():
		return "unknown"
	case left <= 0:
		return "expired"
	default:
		return "in " + age(left)
	}
}
