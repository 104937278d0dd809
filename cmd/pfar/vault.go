package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const vaultHelp = `Store the secrets that declarations name as "vault:KEY".

"pfar vault set KEY" asks for the value without showing it, or reads it from standard input or a
file. It never takes the value as an argument: every user of the machine can read the arguments of a process.
Servers that use the old value restart. Servers that have only a placeholder go on.

With --oauth the value is an OAuth 2.0 token set in JSON, which pfar refreshes: access_token,
refresh_token, expiry or expires_in, token_url, client_id; and optionally client_secret, auth_style
("header", "params", "auto"), scopes and allow_private. Servers get the access token. Without
refresh_token, or without expiry or expires_in, pfar never refreshes it.

pfar gives a new secret to the servers that name it then, or to the first server that names it later.
Any other server needs "pfar vault give". A server also needs it if its declaration later changes the
program, or where the program can send the secret.

Each secret is a file, encrypted with age (age-encryption.org) to the vault's key. On an installed
system systemd-creds(1) seals that key to the machine. "pfar vault export" brings the secrets to another
machine.`

// vaultVerb keeps the secrets.
type vaultVerb struct{ *pfar }

func (c vaultVerb) vaultCommand() *cobra.Command {
	vault := &cobra.Command{
		Use:   "vault",
		Short: "Store the secrets that declarations name",
		Long:  vaultHelp,
		Example: example("pfar vault set notion_token", "pass show notion | pfar vault set notion_token", "pfar vault list",
			"pfar vault set drive --oauth --file tokens.json",
			"pfar vault export secrets.age", "pfar vault import secrets.age"),
		Args: arguments(),
		// Values pass through this process.
		PersistentPreRunE: func(*cobra.Command, []string) error { return units.NoCore() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage("which of set, rotate, has, list, remove, give, rekey, export, import?").withHint("pfar vault --help")
		},
	}
	vault.AddCommand(
		c.storeCommand(control.Store, "set", "Store a secret, from a hidden prompt, standard input or a file"),
		c.storeCommand(control.Rotate, "rotate", "Replace a secret, and restart the servers that have its value"),
		c.outputFlag(&cobra.Command{
			Use: "has KEY", Short: "Say by the exit code whether a secret exists: 0 or 4", ValidArgsFunction: offerFirst(c.offeredKeys),
			RunE: onOne(c.vaultHas),
		}),
		c.verb("list", "List the keys and the servers that use them, never the values", alone(c.vaultList)),
		c.outputFlag(&cobra.Command{
			Use: "remove KEY", Short: "Remove a secret", Args: aKey, ValidArgsFunction: offerFirst(c.offeredKeys),
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.changeVault(cmd.Context(), control.Request{Verb: control.Remove, Key: args[0]})
			},
		}),
		c.outputFlag(&cobra.Command{
			Use: "rekey", Short: "Give the vault a new key, and encrypt every secret to it",
			RunE: func(cmd *cobra.Command, _ []string) error {
				_, err := c.control().Do(cmd.Context(), control.Request{Verb: control.Rekey})
				if err != nil || !c.json() {
					return err
				}
				return c.printJSON(map[string]string{"result": "done"})
			},
		}),
		c.giveCommand(),
		c.exportCommand(),
		c.importCommand(),
	)
	return vault
}

func (c vaultVerb) storeCommand(verb control.Verb, name, short string) *cobra.Command {
	var file string
	var tokens bool
	cmd := c.outputFlag(&cobra.Command{
		Use: name + " KEY", Short: short, Args: onlyKey, ValidArgsFunction: offerFirst(c.offeredKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, err := c.readSecret(cmd.Context(), valueOf(args[0]), file)
			if err != nil {
				return err
			}
			return c.changeVault(cmd.Context(), control.Request{Verb: verb, Key: args[0], Secret: string(secret), OAuth: tokens})
		},
	})
	cmd.Flags().BoolVar(&tokens, "oauth", false, "the value is an OAuth 2.0 token set in JSON, which pfar refreshes")
	cmd.Flags().StringVar(&file, "file", "", "read the value from `FILE`, without one line break at the end")
	cmd.RegisterFlagCompletionFunc("file", filesToo)
	return cmd
}

// onlyKey refuses a value among the arguments, also one in a key's place, without repeating it or telling pfard, which
// records what it is told.
func onlyKey(cmd *cobra.Command, args []string) error {
	if len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "=") {
		return usage("a secret is never an argument, where every user of the machine can read it").
			withHint("%s %s < FILE, or without the value for a prompt; and change the secret that you just typed", cmd.CommandPath(), "KEY")
	}
	return aKey(cmd, args)
}

// aKey wants a key, and does not repeat what is none: it may be a value.
func aKey(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && !declaration.IsVaultKey(args[0]) {
		return usage("invalid key: use 1-64 of a-z, 0-9, _ and -")
	}
	return arguments("KEY")(cmd, args)
}

// changeVault says what becomes of servers, and is silent otherwise, as programs are, but a reader of JSON gets an
// object.
func (c vaultVerb) changeVault(ctx context.Context, request control.Request) error {
	r, err := c.control().Do(ctx, request)
	if err != nil {
		return err
	}
	change := control.Change{Key: request.Key, Result: "done"}
	if len(r.Changes) == 1 {
		change = r.Changes[0]
	}
	if request.Verb == control.Rotate && change.Result == "equal" {
		fmt.Fprintf(c.stderr, "pfar: warning: %q had this value before\n", request.Key)
	}
	c.warn(change)
	if c.json() {
		return c.printJSON(change)
	}
	c.printUses(change)
	return nil
}

// warn says what pfar does not do with a value that it keeps.
func (c vaultVerb) warn(change control.Change) {
	if change.Unsearched != "" {
		fmt.Fprintf(c.stderr, "pfar: warning: %q is not found when a server gives it away: %s\n", change.Key, escape(change.Unsearched, oneLine))
	}
	if change.Unrefreshed != "" {
		fmt.Fprintf(c.stderr, "pfar: warning: %q is never refreshed: %s\n", change.Key, escape(change.Unrefreshed, oneLine))
	}
}

func (c vaultVerb) printUses(change control.Change) {
	said := map[control.Then]string{
		control.Restarts: "restarts with the new value",
		control.Waits:    "waits for a secret that the vault lacks",
		control.Starts:   "starts: it has waited for it",
		control.Later:    "does not run; it gets the new value when it starts",
		control.RunsOn:   "runs on: its bridge uses the new value",

		control.Unconfirmed: "runs on: its bridge has not confirmed the new value; pfar restart makes sure",
	}
	for _, u := range change.Uses {
		text, ok := said[u.Then]
		if !ok { // of a newer pfard
			text = string(u.Then)
		}
		if u.Why != "" {
			text = "waits: " + u.Why
		}
		fmt.Fprintf(c.stdout, "%s: %s\n", escape(u.Server, oneLine), escape(text, oneLine))
	}
}

var errEmptySecret = errors.New("the secret is empty")

// valueOf asks for what is under a key.
func valueOf(key string) string { return fmt.Sprintf("Value of %q", key) }

// readSecret asks on a terminal, without echo, or reads all of standard input or of a file, where one line break at the
// end is not part of the secret.
func (c vaultVerb) readSecret(ctx context.Context, question, file string) ([]byte, error) {
	secret, err := c.readHiddenOr(ctx, question, file)
	if err != nil {
		return nil, fmt.Errorf("reading the secret: %w", err)
	}
	switch {
	case len(secret) == 0:
		return nil, errEmptySecret
	case len(secret) > maxSecret:
		return nil, fmt.Errorf("the secret exceeds %d bytes", maxSecret)
	case bytes.IndexByte(secret, 0) >= 0:
		return nil, errors.New("the secret holds a NUL, which no environment variable can")
	case !utf8.Valid(secret): // JSON would change it on its way
		return nil, errors.New("the secret is not text in UTF-8; store it in base64, if the server takes that")
	}
	return secret, nil
}

func (c vaultVerb) secrets(ctx context.Context) ([]control.Secret, error) {
	r, err := c.control().Do(ctx, control.Request{Verb: control.Secrets})
	return r.Secrets, err
}

func (c vaultVerb) vaultHas(ctx context.Context, key string) error {
	list, err := c.secrets(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Key == key {
			if c.json() {
				return c.printJSON(s)
			}
			return nil
		}
	}
	return fmt.Errorf("%w: %q", control.ErrNoKey, key)
}

func (c vaultVerb) vaultList(ctx context.Context) error {
	list, err := c.secrets(ctx)
	if err != nil {
		return err
	}
	if c.json() {
		if list == nil {
			list = []control.Secret{}
		}
		return c.printJSON(list)
	}
	if len(list) == 0 {
		return nil
	}
	rows := [][]cell{heading("KEY", "KIND", "STORED", "EXPIRES", "SERVERS")}
	for _, s := range list {
		row := []cell{{s.Key, ""}, {s.Kind, ""}, {"", ""}, {c.expires(s), ""}, {strings.Join(s.Servers, ", "), ""}}
		if s.Stored != nil {
			row[2].text = minute(*s.Stored)
		}
		if s.Damaged != "" {
			row[1] = cell{"damaged", red}
		}
		rows = append(rows, row)
	}
	c.table(c.stdout, rows)
	for _, s := range list {
		if len(s.Scopes) > 0 {
			fmt.Fprintf(c.stdout, "\n%s\n", escape(s.Key+": granted "+strings.Join(s.Scopes, ", "), oneLine))
		}
		if wrong := cmp.Or(s.Damaged, s.Problem); wrong != "" {
			fmt.Fprintf(c.stdout, "\n%s\n", escape(s.Key+": "+wrong, oneLine))
		} else if s.Unrefreshed != "" {
			fmt.Fprintf(c.stdout, "\n%s\n", escape(s.Key+": not refreshed: "+s.Unrefreshed, oneLine))
		}
	}
	return nil
}

// expires says when an access token ends, which is refreshed before.
func (c vaultVerb) expires(s control.Secret) string {
	switch {
	case s.Expiry == nil && s.Kind == "oauth" && s.Damaged == "":
		return "unknown"
	case s.Expiry == nil:
		return ""
	}
	left := s.Expiry.Sub(c.now())
	if left <= 0 {
		return "expired"
	}
	return "in " + age(left)
}

func (c vaultVerb) offeredKeys(ctx context.Context) ([]string, error) {
	list, err := c.secrets(ctx)
	var keys []string
	for _, s := range list {
		keys = append(keys, s.Key)
	}
	return keys, err
}
