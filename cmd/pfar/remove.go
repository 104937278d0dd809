package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

const removeHelp = `Ask, remove a server's declaration, and wait until the server is gone. If a package installed the
declaration, pfar hides it by a link to /dev/null. The server's files stay until "pfar clean"; --purge deletes them as
well, with the secrets that only this server had. Without a terminal the command needs --yes.`

// removeVerb removes a declaration.
type removeVerb struct{ *pfar }

func (c removeVerb) removeCommand() *cobra.Command {
	var purge, yes bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "remove NAME", Short: "Remove a server's declaration", Long: removeHelp,
		Example: example("pfar remove notion", "pfar remove notion --purge --yes"),
		Args:    arguments("NAME"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.remove(cmd.Context(), args[0], purge, yes)
		},
	})
	cmd.Flags().BoolVar(&purge, "purge", false, "also delete its home, log and pins, and secrets that only it has")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// removed is the result of a removal.
type removed struct {
	*control.Declared
	Left *left `json:"left,omitempty"` // what --purge has deleted
}

func (c removeVerb) remove(ctx context.Context, name string, purge, yes bool) error {
	if _, _, err := serverNamed(ctx, c.pfar, name); err != nil {
		return err
	}
	before, err := c.control().Undeclare(ctx, name, control.Text{Dry: true})
	if err == nil {
		err = c.canAsk(yes, "pfar explain "+name)
	}
	if err != nil {
		return err
	}
	show := func(w io.Writer) { c.table(w, removalRows(before, purge)) }
	if err := c.ask(ctx, yes, fmt.Sprintf("Remove %q?", name), show); err != nil {
		return err
	}
	gone, err := c.control().Undeclare(ctx, name, control.Text{Old: before.Digest})
	if err != nil {
		return undeclared(err, "the declaration is still there: pfar explain "+name, "",
			rewrite{file: before.File, was: before.Digest})
	}
	out := removed{Declared: gone}
	if err := c.awaitGone(ctx, name); err != nil {
		return fail(exitFailed, "the declaration is removed, but %w", err).withHint("pfar status")
	}
	if purge {
		if out.Left, err = c.purge(ctx, name); err != nil {
			const hint = "pfar clean %s --secrets deletes what is left"
			return fail(exitFailed, "the declaration is removed, but not all files: %w", err).withHint(hint, name)
		}
	}
	if c.json() {
		return c.printJSON(out)
	}
	fmt.Fprintf(c.stdout, "%s: removed\n", escape(name, oneLine))
	return nil
}

// removalRows say what is to be removed, and what stays.
func removalRows(d *control.Declared, purge bool) (rows [][]cell) {
	add := func(what, name, more string) { rows = append(rows, []cell{{what, bold}, {name, ""}, {more, ""}}) }
	if d.Digest != "" {
		add("declaration", d.File, "is deleted")
	}
	if d.Hides != "" {
		add("declaration", d.Hides, "is hidden by a link to /dev/null")
	}
	if purge {
		add("home, log, pins", "", "are deleted, and secrets that only it has")
	} else {
		add("home, log, pins", "", "stay, until pfar clean "+d.Server)
	}
	return rows
}

// awaitGone waits until a server has stopped: then pfard no longer reports it.
func (c removeVerb) awaitGone(ctx context.Context, name string) error {
	late := fmt.Errorf("%q did not stop within %s", name, settleTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, late)
	defer cancel()
	return c.control().Await(ctx, func(r control.Report) (bool, error) {
		_, err := findServer(r, name)
		return err != nil, nil
	})
}

// purge deletes what is left, if anything is.
func (c removeVerb) purge(ctx context.Context, name string) (*left, error) {
	clean := cleanVerb(c)
	l, err := clean.leftovers(ctx, control.Request{Verb: control.Clean, Server: name})
	if err != nil {
		return nil, err
	}
	return &l, clean.deleteLeft(ctx, &l, name)
}
