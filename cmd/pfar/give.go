package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

const giveHelp = `Show which secrets pfar withholds from a server, and why, and give exactly those, for the declaration as it is
now. Without a terminal this needs --yes. If the declaration changes meanwhile, this gives nothing.

pfar withholds a secret that other servers have. It also withholds secrets if the declaration of the server has
changed: another program, other variables, other hosts, or other places where the bridge puts the secrets. A
running server keeps its old declaration and secrets; a stopped one waits.`

func (c vaultVerb) giveCommand() *cobra.Command {
	var yes bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "give SERVER", Short: "Give a server the secrets that its declaration names now", Long: giveHelp,
		Example:           example("pfar vault give notion", "pfar vault give notion --yes"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.vaultGive(cmd.Context(), args[0], yes) },
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (c vaultVerb) vaultGive(ctx context.Context, server string, yes bool) error {
	gift, err := c.give(ctx, server, func(gift control.Gift) error { return c.askToGive(ctx, gift, yes) })
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(gift)
	}
	if len(gift.Keys) == 0 {
		fmt.Fprintf(c.stderr, "no secret is kept from %q\n", server)
	}
	return nil
}

// give gives a server what is kept from it, once that is confirmed.
func (c vaultVerb) give(ctx context.Context, server string, confirm func(control.Gift) error) (control.Gift, error) {
	request := control.Request{Verb: control.Give, Server: server}
	gift, err := c.gift(ctx, request)
	if err != nil || len(gift.Keys) == 0 {
		return gift, err
	}
	if err := confirm(gift); err != nil {
		return gift, err
	}
	request.Gift = gift.Digest
	return c.gift(ctx, request)
}

// askToGive asks the person who gives it.
func (c vaultVerb) askToGive(ctx context.Context, gift control.Gift, yes bool) error {
	if err := c.canAsk(yes, "pfar status"); err != nil {
		return err
	}
	what := "the secret"
	if len(gift.Keys) > 1 {
		what = "the secrets"
	}
	question := fmt.Sprintf("Give %s to %q as it is declared now?", what, gift.Server)
	return c.ask(ctx, yes, question, func(w io.Writer) {
		for _, why := range gift.Why {
			c.table(w, [][]cell{{{why, ""}}})
		}
	})
}

func (c vaultVerb) gift(ctx context.Context, request control.Request) (control.Gift, error) {
	r, err := c.control().Do(ctx, request)
	if err != nil || r.Gift == nil {
		return control.Gift{}, err
	}
	return *r.Gift, nil
}
