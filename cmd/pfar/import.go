package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/clientfile"
	"github.com/pfar/pfar/units/control"
)

const importHelp = `Make a declaration of each server in the configuration files of MCP clients. FILE is such a file, or
"-" for standard input. --from reads the file of a program in your home. pfar does not change these files.

pfar first shows the declarations, and names each line that it does not translate. If you say yes, it
installs the packages, stores the tokens in the vault and writes the declarations. Where possible, the
server gets only a placeholder for its token. pfar downloads nothing before you say yes, and takes no
value from your environment. It replaces no secret of the vault, and no declaration.

--undo removes the declarations of the last import, unless somebody has changed them. It also removes the
secrets that the import stored, unless another declaration uses them.

pfar-import(7) has an example with each kind of server: npx, uvx, a container, a URL.`

func (v importVerb) importCommand() *cobra.Command {
	var w importWish
	cmd := v.outputFlag(&cobra.Command{
		Use: "import [FILE...]", Short: "Declare the servers of an MCP client", Long: importHelp,
		Example: example("pfar import --from claude-desktop", "pfar import .mcp.json --only notion,github",
			"sudo pfar import --from cursor --user ann", "pfar import --undo"),
		Args: cobra.ArbitraryArgs, ValidArgsFunction: filesToo,
		// Values pass through this process.
		PreRunE: func(*cobra.Command, []string) error { return units.NoCore() },
		RunE: func(cmd *cobra.Command, args []string) error {
			w.files = args
			return v.run(cmd.Context(), w)
		},
	})
	f := cmd.Flags()
	f.StringVar(&w.from, "from", "", "import the file of this `PROGRAM`: "+strings.Join(clientfile.Names(), ", "))
	f.StringVar(&w.user, "user", "", "as root: import the file of this `USER`")
	f.StringSliceVar(&w.only, "only", nil, "import only the servers with these `NAMES`")
	f.BoolVar(&w.undo, "undo", false, "take the last import back")
	f.BoolVar(&w.dryRun, "dry-run", false, "show what would be imported, and change nothing")
	f.BoolVar(&w.yes, "yes", false, "do not ask")
	cmd.RegisterFlagCompletionFunc("from", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return clientfile.Names(), noFiles
	})
	return cmd
}

func (v importVerb) run(ctx context.Context, w importWish) error {
	switch {
	case w.undo && (len(w.files) > 0 || w.from != "" || len(w.only) > 0):
		return usage("--undo undoes the last import: leave out FILE, --from and --only")
	case w.undo:
		return v.takeBack(ctx, w)
	case (len(w.files) == 0) == (w.from == ""):
		return usage("name a FILE, or a program with --from").withHint("pfar import --help")
	case w.from != "" && !slices.Contains(clientfile.Names(), w.from):
		return usage("unknown program %q: use one of %s", w.from, strings.Join(clientfile.Names(), ", "))
	}
	if !w.dryRun {
		if err := v.canAsk(w.yes, "pfar import ... --dry-run"); err != nil {
			return err
		}
	}
	found, err := v.proposals(ctx, w)
	if err != nil {
		return unchanged(err)
	}
	out := imported{Files: found, DryRun: w.dryRun}
	wanted := out.wanted()
	if w.dryRun || len(wanted) == 0 {
		return v.told(out, wanted)
	}
	question := fmt.Sprintf("Import %s?", plural.Count(len(wanted), "server"))
	if err := v.ask(ctx, w.yes, question, func(to io.Writer) { v.show(to, found) }); err != nil {
		return err
	}
	failed := v.apply(ctx, &out)
	return v.finish(ctx, out, w, failed)
}

// told prints an import that changes nothing.
func (v importVerb) told(out imported, wanted []*planned) error {
	if v.json() {
		if err := v.printJSON(out); err != nil {
			return err
		}
	} else {
		v.show(v.stdout, out.Files)
	}
	if len(wanted) == 0 {
		return fail(exitFailed, "nothing to import; nothing was changed")
	}
	return nil
}

// finish says what was imported, what it waits for, and what to do next.
func (v importVerb) finish(ctx context.Context, out imported, w importWish, failed error) error {
	wanted := out.wanted()
	if v.json() {
		if err := v.printJSON(out); err != nil {
			return err
		}
	} else {
		report, _ := v.report(ctx)
		v.printDone(wanted, report)
	}
	done := slices.ContainsFunc(wanted, func(p *planned) bool { return p.File != "" })
	if done && !v.json() {
		for _, s := range wanted {
			v.next(s)
		}
		if v.hintAt("pfar import --undo takes the import back"); w.from != "" {
			v.hintAt("pfar client install " + w.from + " writes pfar into the program's file")
		}
	}
	switch {
	case failed != nil:
		return failed
	case slices.ContainsFunc(wanted, func(p *planned) bool { return p.Failed != "" }):
		return exitWith(exitFailed)
	}
	return nil
}

// next says what a server still needs.
func (v importVerb) next(s *planned) {
	if s.File == "" {
		return
	}
	for _, secret := range s.Secrets {
		switch {
		case !secret.Waits:
		case secret.Login:
			v.hintAt("pfar login " + s.Server + ": the server waits for you to sign in")
		case secret.File:
			v.hintAt("pfar vault set " + secret.Key + " --file FILE, which " + s.Server + " waits for")
		default:
			v.hintAt("pfar vault set " + secret.Key + ", which " + s.Server + " waits for")
		}
	}
	if !s.Hosts {
		v.hintAt("pfar learn " + s.Server + " --write finds the hosts that it needs")
	}
}

// printDone prints a row for each server.
func (v importVerb) printDone(wanted []*planned, report control.Report) {
	rows := [][]cell{}
	for _, s := range wanted {
		row := []cell{{s.Server, bold}, {"imported", green}, {"", ""}}
		if s.File == "" {
			if row[1], row[2] = (cell{"not imported", red}), (cell{s.Failed, ""}); s.half {
				row[1].text = "not finished"
			}
		} else if now, err := findServer(report, s.Server); err == nil {
			row[2].text = describe(now)
		}
		rows = append(rows, row)
	}
	v.table(v.stdout, rows)
}
