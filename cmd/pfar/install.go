package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/units/control"
)

const packageHelp = `Install a package, or the package of a declared server, and wait until it is installed.
Write an exact version: npm:NAME@VERSION or pypi:NAME==VERSION. An installed package stays as it is.

pfard runs npm or pip in a sandbox that reaches only the registry, or the mirror that the machine's npm or
pip is configured for. Install scripts do not run. If you interrupt the command, the installation goes on.`

// packageVerb installs packages.
type packageVerb struct{ *pfar }

func (c packageVerb) installCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use: "install PACKAGE|NAME", Short: "Install the package of a server", Long: packageHelp,
		Example: example("pfar install notion", "pfar install npm:@modelcontextprotocol/server-memory@2025.9.25"),
		Args:    arguments("PACKAGE|NAME"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error { return c.install(cmd.Context(), args[0]) },
	})
}

func (c packageVerb) install(ctx context.Context, name string) error {
	w := control.Wish{Server: name}
	if strings.Contains(name, ":") {
		if _, err := source.ParseExact(name); err != nil {
			return usage("%w", err)
		}
		w = control.Wish{Package: name}
	}
	got, err := c.fetch(ctx, w)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(got)
	}
	words := "installed"
	if got.Already {
		words = "is there already"
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", escape(got.Package, oneLine), words)
	return nil
}

// fetch has a package installed, and says how far that is. It says which install scripts did not run.
func (c packageVerb) fetch(ctx context.Context, w control.Wish) (control.Installing, error) {
	said := ""
	got, err := c.control().Install(ctx, w, func(i control.Installing) {
		if line := i.Package + ": " + i.Detail; i.Detail != "" && line != said && !c.json() {
			said = line
			fmt.Fprintln(c.stderr, escape(line, oneLine))
		}
	})
	if err == nil && len(got.Scripted) > 0 && !c.json() {
		line := fmt.Sprintf("%s: pfar did not run the install scripts of %s; if the server needs them, install the "+
			"package by hand and declare its command", got.Package, strings.Join(got.Scripted, ", "))
		fmt.Fprintln(c.stderr, escape(line, oneLine))
	}
	if pkg := cmp.Or(got.Package, w.Package); err != nil && ctx.Err() == nil && pkg != "" {
		err = fmt.Errorf("%w; %s", err, c.outcomeOf(pkg))
	}
	return got, err
}
