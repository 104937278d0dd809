package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/control"
)

const cleanHelp = `Show what a server without a declaration left behind, ask, and delete it: its private
home, log, pins, user id, and the record that "pfar disable" keeps it off. The command refuses a declared
server, even if its file is broken or says enabled = false. It keeps the audit. Without a terminal it
needs --yes.

It keeps secrets of the vault too. --secrets removes a secret if only this server had it and no
declaration names it.

Another server may get the user id later. If this server could write outside its home, first find
its files there with "find / -uid ID".`

// cleanVerb deletes what a removed server has left.
type cleanVerb struct{ *pfar }

func (c cleanVerb) cleanCommand() *cobra.Command {
	var yes, secrets bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "clean NAME", Short: "Delete what an undeclared server left behind", Long: cleanHelp,
		Example:           example("pfar clean notion", "pfar clean notion --secrets --yes"),
		ValidArgsFunction: offerFirst(c.offeredLeftovers),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.clean(cmd.Context(), args[0], secrets, yes)
		},
	})
	cmd.Flags().BoolVar(&secrets, "secrets", false, "also remove its secrets from the vault")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// left is all that is left of a server.
type left struct {
	control.Leftovers
	Pins bool `json:"pins"` // something was accepted of it
}

func (c cleanVerb) clean(ctx context.Context, name string, secrets, yes bool) error {
	request := control.Request{Verb: control.Clean, Server: name}
	l, err := c.leftovers(ctx, request)
	if err != nil {
		return err
	}
	if !secrets {
		l.Keys = []string{}
	}
	if len(l.Items) == 0 && len(l.Keys) == 0 && !l.Pins {
		return c.nothingLeft(ctx, name)
	}
	if err := c.canAsk(yes, "pfar status"); err != nil {
		return err
	}
	show := func(w io.Writer) { c.table(w, l.rows()) }
	if err := c.ask(ctx, yes, fmt.Sprintf("Delete what %q left behind?", name), show); err != nil {
		return err
	}
	if err := c.deleteLeft(ctx, &l, name); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(l)
	}
	return nil
}

// deleteLeft deletes a server's leftovers.
func (c cleanVerb) deleteLeft(ctx context.Context, l *left, name string) error {
	request := control.Request{Verb: control.Clean, Server: name, Remove: true}
	if _, err := c.control().Do(ctx, request); err != nil {
		return err
	}
	if l.Pins {
		if err := c.askPins(ctx, http.MethodPost, "/"+name+"/forget", nil, new(any)); err != nil {
			return err
		}
	}
	for _, key := range l.Keys {
		if _, err := c.control().Do(ctx, control.Request{Verb: control.Remove, Key: key}); err != nil {
			return err
		}
	}
	l.Removed = true
	return nil
}

// leftovers asks pfard, and the gateway for what it keeps.
func (c cleanVerb) leftovers(ctx context.Context, request control.Request) (l left, err error) {
	r, err := c.control().Do(ctx, request)
	switch {
	case errors.Is(err, control.ErrDeclared):
		f := fail(exitFailed, "%w", err)
		return l, f.withHint("remove its file first; pfar disable %s only keeps it from running", request.Server)
	case err != nil:
		return l, err
	case r.Leftovers == nil:
		return l, errors.New("pfard answered without what is left: pfar and pfard may be of different versions")
	}
	l.Leftovers = *r.Leftovers
	all, err := c.allPins(ctx)
	for _, p := range all {
		l.Pins = l.Pins || p.Server == request.Server
	}
	return l, err
}

// nothingLeft is for a name of which nothing is left, perhaps because it is mistyped.
func (c cleanVerb) nothingLeft(ctx context.Context, name string) error {
	f := fail(exitNoSuch, "server %q left nothing", name)
	if report, err := c.report(ctx); err == nil {
		if best := nearestName(name, report.Leftovers); best != "" {
			return f.withHint("did you mean %q?", best)
		}
	}
	return f.withHint(`"pfar status" lists servers that left something`)
}

// rows say what is to be deleted, one thing a line.
func (l left) rows() (rows [][]cell) {
	add := func(what, name, more string) { rows = append(rows, []cell{{what, bold}, {name, ""}, {more, ""}}) }
	for _, i := range l.Items {
		switch i.What {
		case control.LeftHome, control.LeftUndo:
			size := visible.Size(i.Bytes)
			if i.Partly {
				size = "more than " + size
			}
			add(string(i.What), i.Path, size+" in "+plural.Count(i.Files, "file"))
		case control.LeftLog:
			add("log", i.Path, visible.Size(i.Bytes))
		case control.LeftMark:
			add("disabled", i.Path, "that you had disabled it")
		case control.LeftID:
			add("user id", fmt.Sprint(i.ID), "")
		}
	}
	if l.Pins {
		add("pins", "", "what was accepted of it")
	}
	for _, key := range l.Keys {
		add("secret", key, "in the vault")
	}
	return rows
}

func (c cleanVerb) offeredLeftovers(ctx context.Context) ([]string, error) {
	report, err := c.report(ctx)
	return report.Leftovers, err
}
