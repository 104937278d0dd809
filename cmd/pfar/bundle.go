package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/bundle"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

const exportHelp = `Write all secrets, or the named ones, to a file that age (age-encryption.org) opens, or to standard
output ("-"). They are encrypted to the recipients, or else with a passphrase, for which pfar asks.

Inside is JSON, with the values in Base64: {"format": "pfar-vault-1", "secrets": [{"key", "kind", "stored",
"value"}]}. pfard sends them to this command encrypted, never in the clear.`

// openers are what encrypts or opens a bundle: recipients, or identities, or else a passphrase.
type openers struct {
	names          []string
	passphraseFile string
}

func (o *openers) flags(cmd *cobra.Command, flag, usage string) {
	cmd.Flags().StringArrayVar(&o.names, flag, nil, usage)
	cmd.Flags().StringVar(&o.passphraseFile, "passphrase-file", "", "read the passphrase from `FILE`, or from standard input if it is -")
	cmd.RegisterFlagCompletionFunc("passphrase-file", filesToo)
}

// check refuses a passphrase beside keys.
func (o openers) check() error {
	if len(o.names) > 0 && o.passphraseFile != "" {
		return usage("a passphrase and keys exclude each other")
	}
	return nil
}

func (c vaultVerb) exportCommand() *cobra.Command {
	var o openers
	var replace bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "export FILE [KEY...]", Short: "Write secrets to an encrypted file", Long: exportHelp, Args: someFile,
		Example: example("pfar vault export secrets.age", "pfar vault export - notion_token --recipient age1... | ssh host "+
			"pfar vault import - --identity key.txt"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return filesToo(cmd, args, toComplete)
			}
			return offer(c.offeredKeys)(cmd, args, toComplete)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.vaultExport(cmd.Context(), args[0], args[1:], o, replace)
		},
	})
	o.flags(cmd, "recipient", "encrypt to the age `RECIPIENT` instead of with a passphrase; can be given more than once")
	cmd.Flags().BoolVar(&replace, "replace", false, "replace FILE if it exists")
	return cmd
}

func someFile(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return arguments("FILE")(cmd, args)
	}
	return nil
}

func (c vaultVerb) importCommand() *cobra.Command {
	var o openers
	var replace bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "import FILE", Short: "Store the secrets of an exported file, all or none", ValidArgsFunction: filesToo,
		Example: example("pfar vault import secrets.age", "pfar vault import secrets.age --identity key.txt --replace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.vaultImport(cmd.Context(), args[0], o, replace)
		},
	})
	o.flags(cmd, "identity", "open the file with the age identity in `FILE` instead of a passphrase; can be given more than once")
	cmd.RegisterFlagCompletionFunc("identity", filesToo)
	cmd.Flags().BoolVar(&replace, "replace", false, "replace secrets that have another value")
	return cmd
}

func (c vaultVerb) vaultExport(ctx context.Context, file string, keys []string, o openers, replace bool) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := writable(file, replace); err != nil {
		return err
	}
	to, err := c.recipients(ctx, o)
	if err != nil {
		return err
	}
	passing, err := bundle.NewPassing()
	if err != nil {
		return err
	}
	r, err := c.control().Do(ctx, control.Request{Verb: control.Export, Keys: keys, Recipient: passing.Recipient()})
	if err != nil {
		return err
	}
	text, err := passing.Open(r.Bundle)
	if err != nil {
		return fmt.Errorf("reading pfard's answer: %w", err)
	}
	sealed, err := bundle.Seal(text, to)
	if err != nil {
		return fmt.Errorf("encrypting the secrets: %w", err)
	}
	if file == "-" {
		_, err := c.stdout.Write(sealed)
		return err
	}
	if err := durable.WriteFile(file, sealed); err != nil {
		return fmt.Errorf("writing %q: %w", file, err)
	}
	if c.json() {
		return c.printJSON(map[string]string{"file": file, "result": "done"})
	}
	return nil
}

// writable refuses a path at which there is something, before any question is asked: it may be the only copy of other
// secrets. With replace a file may be there, and nothing else.
func writable(file string, replace bool) error {
	if file == "-" {
		return nil
	}
	st, err := os.Lstat(file)
	switch {
	case err != nil: // it is not there, or writing it says why not
		return nil
	case !st.Mode().IsRegular():
		return usage("%q is not a regular file (%v)", file, st.Mode()).withHint("name a new file, or - for standard output")
	case !replace:
		return usage("%q exists", file).withHint("name a new file, or --replace this one")
	}
	return nil
}

func (c vaultVerb) recipients(ctx context.Context, o openers) ([]bundle.Recipient, error) {
	if len(o.names) > 0 {
		to, err := bundle.Recipients(o.names)
		if err != nil {
			return nil, usage("reading --recipient: %w", err).withHint("age-keygen -y FILE prints the recipient of an identity")
		}
		return to, nil
	}
	passphrase, err := c.passphrase(ctx, o.passphraseFile, true)
	if err != nil {
		return nil, err
	}
	return bundle.ToPassphrase(passphrase)
}

func (c vaultVerb) identities(ctx context.Context, o openers) (ids []bundle.Identity, err error) {
	for _, name := range o.names {
		text, err := interruptible(ctx, func() ([]byte, error) { return os.ReadFile(name) })
		if err != nil {
			return nil, err
		}
		of, err := bundle.Identities(text)
		if err != nil {
			return nil, usage("reading %q: %w", name, err)
		}
		ids = append(ids, of...)
	}
	if len(ids) > 0 {
		return ids, nil
	}
	passphrase, err := c.passphrase(ctx, o.passphraseFile, false)
	if err != nil {
		return nil, err
	}
	return bundle.FromPassphrase(passphrase)
}

// shortestPassphrase is what a passphrase has at least, in bytes: whoever has the file tries out many.
const shortestPassphrase = 10

// passphrase reads one from a file, or asks on the terminal, twice for a new one: what is typed wrong would lock the
// secrets away.
func (c vaultVerb) passphrase(ctx context.Context, file string, fresh bool) (string, error) {
	var b []byte
	var err error
	if file != "" {
		b, err = c.readHiddenOr(ctx, "Passphrase", file)
	} else {
		b, err = c.askPassphrase(ctx, fresh)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("reading the passphrase: %w", err)
	case len(b) == 0:
		return "", usage("the passphrase is empty")
	case fresh && len(b) < shortestPassphrase:
		return "", usage("the passphrase has fewer than %d bytes", shortestPassphrase).withHint("use a few random words")
	}
	return string(b), nil
}

func (c vaultVerb) askPassphrase(ctx context.Context, fresh bool) ([]byte, error) {
	terminal, ok := c.stdin.(*os.File)
	if !ok || !isTerminal(terminal) { // standard input may be what is imported
		var err error
		if terminal, err = os.OpenFile("/dev/tty", os.O_RDWR, 0); err != nil {
			return nil, usage("not a terminal, so pfar cannot ask").withHint("--passphrase-file FILE, --recipient or --identity")
		}
		defer terminal.Close()
	}
	b, err := c.askHidden(ctx, "Passphrase", terminal)
	if err != nil || !fresh {
		return b, err
	}
	again, err := c.askHidden(ctx, "The same again", terminal)
	if err == nil && !bytes.Equal(b, again) {
		err = errors.New("the two differ")
	}
	return b, err
}

func (c vaultVerb) vaultImport(ctx context.Context, file string, o openers, replace bool) error {
	if err := o.check(); err != nil {
		return err
	}
	if file == "-" && o.passphraseFile == "-" {
		return usage("standard input cannot be both the file and the passphrase")
	}
	ids, err := c.identities(ctx, o)
	if err != nil {
		return err
	}
	text, err := interruptible(ctx, func() ([]byte, error) {
		in, done, err := c.input(file)
		if err != nil {
			return nil, err
		}
		defer done()
		return bundle.Open(in, ids)
	})
	if err != nil {
		return fmt.Errorf("opening %q: %w", file, err)
	}
	r, err := c.control().Do(ctx, control.Request{Verb: control.Import, Bundle: text, Replace: replace})
	if err != nil {
		return err
	}
	for _, change := range r.Changes {
		c.warn(change)
	}
	if c.json() {
		return c.printJSON(append([]control.Change{}, r.Changes...)) // null is no list
	}
	for _, change := range r.Changes {
		fmt.Fprintf(c.stdout, "%s: %s\n", escape(change.Key, oneLine), escape(change.Result, oneLine))
	}
	for _, change := range r.Changes {
		c.printUses(change)
	}
	return nil
}
