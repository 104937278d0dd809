package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/access"
)

// clientChange is what pfar client set changes; nil: nothing of that.
type clientChange struct {
	servers []string
	connect *bool
}

func (c clientVerb) clientSetCommand() *cobra.Command {
	var servers []string
	var connect bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "set NAME [--servers NAMES] [--connect]", Short: "Change which servers a client may use",
		Args: arguments("NAME"), ValidArgsFunction: offerFirst(c.offeredClients),
		RunE: func(cmd *cobra.Command, args []string) error {
			var change clientChange
			if cmd.Flags().Changed("servers") {
				change.servers = append([]string{}, servers...)
			}
			if cmd.Flags().Changed("connect") {
				change.connect = &connect
			}
			if change.servers == nil && change.connect == nil {
				const hint = "pfar client set %s --servers notion,github; for all else edit its file (pfar-clients(5))"
				return usage("missing --servers or --connect").withHint(hint, args[0])
			}
			return c.clientSet(cmd.Context(), args[0], change)
		},
	})
	f := cmd.Flags()
	f.StringSliceVar(&servers, "servers", nil, "`NAMES` of the only servers that it may use; \"*\" for all, \"\" for none")
	const ask = "let its model ask a person to connect services; --connect=false takes that back"
	f.BoolVar(&connect, "connect", false, ask)
	cmd.RegisterFlagCompletionFunc("servers", offer(c.offeredServers))
	return cmd
}

// clientSet changes a client's file, of which everything else stays as its owner has written it.
func (c clientVerb) clientSet(ctx context.Context, name string, change clientChange) error {
	one, changed, err := c.clientFile(ctx, name)
	if err != nil {
		return err
	}
	if change.servers != nil {
		changed, err = declaration.WithServers(one.File, changed, change.servers)
	}
	if change.connect != nil && err == nil {
		changed, err = declaration.WithConnect(one.File, changed, *change.connect)
	}
	if diags, ok := errors.AsType[hcl.Diagnostics](err); ok {
		for _, d := range diags {
			if d.Severity == hcl.DiagError {
				return usage("%s", d.Detail)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("changing %q: %w", one.File, err)
	}
	if err := c.declaredServers(ctx, change.servers); err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(one.File) // a link stays one
	if err != nil {
		return err
	}
	if err := c.putClient(ctx, name, path, changed, "", ""); err != nil {
		return err
	}
	if change.connect != nil && *change.connect {
		c.warnOfConnect(name)
	}
	return nil
}

// warnOfConnect says what a client costs that has pfar__connect.
func (c clientVerb) warnOfConnect(name string) {
	fmt.Fprintf(c.stderr, "pfar: the model of %s may now ask a person to connect a service. If %[1]s does not know "+
		"elicitation in URL mode, its model reads the link too (pfar-clients(5))\n", name)
}

// declaredServers returns an error for a name that no server has. Without a pfard that runs it knows of none.
func (c clientVerb) declaredServers(ctx context.Context, servers []string) error {
	report, err := c.report(ctx)
	if err != nil {
		return nil
	}
	var known []string
	for _, s := range report.Servers {
		known = append(known, s.Name)
	}
	for _, name := range servers {
		if name != access.Every && !slices.Contains(known, name) {
			return noSuchServer(name, known)
		}
	}
	return nil
}
