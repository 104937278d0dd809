package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pfar/pfar/units/control"
)

// unknown sets up a server of which nothing is known: it is installed, declared without a host, and learned from. The
// person says which of the hosts that it asked for it may reach.
func (a *adding) unknown(ctx context.Context) error {
	if pkg := a.service.Program.Package; pkg != "" {
		said := ""
		_, err := a.control().Install(ctx, control.Wish{Package: pkg}, func(i control.Installing) {
			if i.Detail != "" && i.Detail != said && !a.json() {
				said = i.Detail
				fmt.Fprintln(a.stderr, escape(i.Detail, oneLine))
			}
		})
		if err != nil {
			code, _ := classify(err)
			return fail(code, "%w", err).withHint("nothing was changed")
		}
	}
	done, err := a.control().Declare(ctx, a.server(), control.Text{New: a.text})
	if err != nil {
		return err
	}
	writeDiagnostics(a.stderr, done.Diagnostics)
	if !done.Done {
		return fail(exitFailed, "the declaration has mistakes").withHint("nothing was changed")
	}
	fmt.Fprintf(a.stderr, "wrote %s\n", escape(done.File, oneLine))
	if err := a.learned(ctx); err != nil {
		return err
	}
	return a.carry(ctx, &control.SetUp{Server: a.server(), Page: a.page})
}

// learned runs the server in learning mode, and lets it reach the hosts that the person agrees to: with --yes none,
// for nobody has looked at them.
func (a *adding) learned(ctx context.Context) error {
	result, why, err := learnVerb{a.pfar}.lesson(ctx, a.server(), a.learn)
	switch {
	case ctx.Err() != nil:
		a.hintAt("it is declared; go on with: pfar learn " + a.server() + " --write")
		return context.Cause(ctx)
	case err != nil:
		why = err
	}
	if why != nil { // the set-up says more about it
		a.complain(why)
	}
	hosts := result.entries()
	switch {
	case len(hosts) == 0:
		return nil
	case a.yes:
		fmt.Fprintf(
			a.stderr,
			"%s asked for %s\n",
			escape(a.server(), oneLine),
			escape(strings.Join(hosts, ", "), oneLine),
		)
		a.hintAt("let it reach those that it may: pfar allow " + a.server() + " HOST...")
		return nil
	}
	if a.json() {
		return nil
	}
	if err := (allowVerb{a.pfar}).allow(ctx, a.server(), hosts, false); err != nil {
		if ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(a.stderr, escape(err.Error(), oneLine))
		a.hintAt("pfar allow " + a.server() + " HOST... does it later")
	}
	return nil
}
