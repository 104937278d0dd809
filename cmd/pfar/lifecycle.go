package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

// lifecycleVerb starts and stops servers.
type lifecycleVerb struct{ *pfar }

func (c lifecycleVerb) commands() []*cobra.Command {
	return []*cobra.Command{
		c.lifecycle(control.Start, "Start a server, even one that has failed"),
		c.lifecycle(control.Stop, "Stop a server until you start it, its file changes or the machine boots"),
		c.lifecycle(control.Restart, "Stop and start a server"),
		c.lifecycle(control.Enable, "Start a server that you disabled, or that has failed"),
		c.lifecycle(control.Disable, "Stop a server and keep it off until you enable it, also after a reboot"),
	}
}

// settleTimeout is how long these verbs wait for what they asked for.
const settleTimeout = 90 * time.Second

func (c lifecycleVerb) lifecycle(verb control.Verb, short string) *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:               string(verb) + " NAME",
		Short:             short,
		Args:              arguments("NAME"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), settleTimeout, fmt.Errorf("%q did not settle within %s", args[0], settleTimeout))
			defer cancel()
			s, err := c.change(ctx, verb, args[0])
			if err != nil {
				return err
			}
			if c.json() {
				err = c.printJSON(s)
			} else {
				fmt.Fprintln(c.stdout, escape(s.Name+": "+describe(s), oneLine))
			}
			if want := aim(verb); s.State != want && err == nil {
				return fail(exitFailed, "%s is %s, not %s", s.Name, s.State, want).withHint("%s", remedy(s))
			}
			return err
		},
	})
}

// aim is the state that a verb is to lead to.
func aim(verb control.Verb) control.State {
	if verb == control.Stop || verb == control.Disable {
		return control.Stopped
	}
	return control.Running
}

// change asks for the verb and waits until the server has settled.
func (c lifecycleVerb) change(ctx context.Context, verb control.Verb, name string) (control.Server, error) {
	_, before, err := serverNamed(ctx, c.pfar, name)
	if err != nil {
		return control.Server{}, err
	}
	_, err = c.control().Do(ctx, control.Request{Verb: verb, Server: name})
	switch {
	case errors.Is(err, control.ErrDisabled):
		return control.Server{}, fail(exitFailed, "%w", err).withHint("set enabled = true in %s", before.File)
	case errors.Is(err, control.ErrOff):
		return control.Server{}, fail(exitFailed, "%w", err).withHint("pfar enable %s", name)
	case err != nil:
		return control.Server{}, err
	}
	idle := verb != control.Restart && before.State == aim(verb)
	var now control.Server
	err = c.control().Await(ctx, func(r control.Report) (bool, error) {
		now, err = findServer(r, name)
		return err == nil && (idle || settledSince(before, now)), err
	})
	if errors.Is(err, io.EOF) {
		return now, fmt.Errorf("%w any more", control.ErrNotRunning)
	}
	return now, err
}

// settledSince reports whether a server has left the state before and is in one that lasts.
func settledSince(before, now control.Server) bool {
	switch now.State {
	case control.Starting, control.Stopping, control.Fetching:
		return false
	}
	return now.State != before.State || !now.Since.Equal(before.Since)
}
