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

func (c clientVerb) clientSetCommand() *cobra.Command {
	var servers []string
	cmd := c.outputFlag(&cobra.Command{
		Use: "set NAME --servers NAMES", Short: "Change which servers a client may use",
		Args: arguments("NAME"), ValidArgsFunction: offerFirst(c.offeredClients),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("servers") {
				const hint = "pfar client set %s --servers notion,github; for all else edit its file (pfar-clients(5))"
				return usage("missing --servers").withHint(hint, args[0])
			}
			return c.clientSet(cmd.Context(), args[0], servers)
		},
	})
	f := cmd.Flags()
	f.StringSliceVar(&servers, "servers", nil, "`NAMES` of the only servers that it may use; \"*\" for all, \"\" for none")
	cmd.RegisterFlagCompletionFunc("servers", offer(c.offeredServers))
	return cmd
}

// clientSet puts other servers into a client's file, of which everything else stays as its owner has written it.
func (c clientVerb) clientSet(ctx context.Context, name string, servers []string) error {
	one, src, err := c.clientFile(ctx, name)
	if err != nil {
		return err
	}
	changed, err := declaration.WithServers(one.File, src, servers)
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
	if err := c.declaredServers(ctx, servers); err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(one.File) // a link stays one
	if err != nil {
		return err
	}
	return c.putClient(ctx, name, path, changed, "", "")
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
