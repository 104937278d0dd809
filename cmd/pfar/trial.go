package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

const testHelp = `Verify a server's secrets by one call that only reads, and print the result. Without NAME, verify
those of every server that runs. With NAME, pfar first starts the server if it sleeps.

  verified    the service accepts the secrets
  invalid     it refuses them: no client sees the server's tools until another value is stored
  unverified  the answer says nothing about the secrets, or pfar knows no call to verify them
  no secrets  the server has none

pfar itself makes the call when a server starts with secrets that it has not verified yet. The exit code is 1
if a server's secrets are invalid, or pfar could not test one.`

// trialVerb verifies the secrets of servers, and has servers listed again.
type trialVerb struct{ *pfar }

func (c trialVerb) testCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use: "test [NAME]", Short: "Verify the secrets of servers by a call that only reads", Long: testHelp,
		Example: example("pfar test", "pfar test notion --json"),
		Args:    arguments("[NAME]"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error { return c.test(cmd.Context(), args) },
	})
}

// tested is what came of a server's verification.
type tested struct {
	Server string `json:"server"`
	units.Verification
	Error string `json:"error,omitempty"` // why it was not verified
}

// result is in a word.
func (t tested) result() string {
	if t.Error != "" {
		return "not tested"
	}
	return cmp.Or(t.Result, "no secrets")
}

func (t tested) cells() []cell {
	colour := map[string]string{units.Verified: green, units.Invalid: red, units.Unverified: yellow}[t.Result]
	return []cell{{t.Server, ""}, {t.result(), colour}, {t.Tool, ""}, {cmp.Or(t.Error, t.Words), ""}}
}

func (c trialVerb) test(ctx context.Context, args []string) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	servers := report.Servers
	if len(args) == 1 {
		one, err := findServer(report, args[0])
		if err != nil {
			return err
		}
		if !reachable(one) {
			return fail(exitFailed, "%s is %s", one.Name, describe(one)).withHint("%s", remedy(one))
		}
		servers = []control.Server{one}
	}
	list := []tested{}
	for _, s := range servers {
		if !s.State.Up() && len(args) == 0 {
			continue
		}
		t, err := c.verify(ctx, s)
		if err != nil && len(args) == 1 {
			return err
		}
		if err != nil {
			t.Error = err.Error()
		}
		list = append(list, t)
	}
	return c.printTested(list)
}

// verify has the gateway verify one server.
func (c trialVerb) verify(ctx context.Context, s control.Server) (tested, error) {
	t := tested{Server: s.Name}
	err := c.askOperator(ctx, http.MethodPost, "/servers/"+s.Name+"/verify", struct{}{}, &t.Verification)
	return t, err
}

func (c trialVerb) printTested(list []tested) error {
	if c.json() {
		if err := c.printJSON(list); err != nil {
			return err
		}
	} else {
		rows := [][]cell{heading("NAME", "RESULT", "TOOL", "WORDS")}
		for _, t := range list {
			rows = append(rows, t.cells())
		}
		c.table(c.stdout, rows)
	}
	var wrong, failed []string
	for _, t := range list {
		switch {
		case t.Result == units.Invalid:
			wrong = append(wrong, t.Server)
		case t.Error != "":
			failed = append(failed, t.Server)
		}
	}
	switch {
	case len(wrong) > 0:
		return fail(exitFailed, "the secrets of %s are invalid", strings.Join(wrong, ", ")).
			withHint("pfar status %s says what to store", wrong[0])
	case len(failed) > 0:
		return fail(exitFailed, "not tested: %s", strings.Join(failed, ", "))
	}
	return nil
}

const refreshHelp = `Ask a server again for its tools, prompts and resources, and print the changes. Changes that
break callers come first: removed tools, new required arguments, and arguments that allow fewer values. pfar
marks the definitions that it holds; "pfar pins" shows them. With NAME, pfar also starts a server that sleeps.
Without NAME, it asks only the servers that run. The exit code is 1 if pfar could not refresh a server.`

func (c trialVerb) refreshCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use: "refresh [NAME]", Short: "List the tools of servers again, and print the changes", Long: refreshHelp,
		Example: example("pfar refresh", "pfar refresh notion --json"),
		Args:    arguments("[NAME]"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.refreshAll(cmd.Context())
			}
			return c.refresh(cmd.Context(), args[0])
		},
	})
}

func (c trialVerb) refresh(ctx context.Context, name string) error {
	_, s, err := serverNamed(ctx, c.pfar, name)
	if err != nil {
		return err
	}
	if !reachable(s) {
		return fail(exitFailed, "%s is %s", s.Name, describe(s)).withHint("%s", remedy(s))
	}
	changes, err := c.listAgain(ctx, name)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(changes)
	}
	if len(changes) == 0 {
		fmt.Fprintf(c.stderr, "%s: no changes\n", name)
	}
	c.printChanges(c.stdout, changes)
	return nil
}

// refreshed is the result for one server.
type refreshed struct {
	Server  string         `json:"server"`
	Changes []drift.Change `json:"changes"`
	Error   string         `json:"error,omitempty"` // why the refresh failed
}

func (c trialVerb) refreshAll(ctx context.Context) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	list, failed := []refreshed{}, []string{}
	for _, s := range report.Servers {
		if !s.State.Up() {
			continue
		}
		r := refreshed{Server: s.Name}
		if r.Changes, err = c.listAgain(ctx, s.Name); err != nil {
			r.Error, failed = err.Error(), append(failed, s.Name)
		}
		list = append(list, r)
	}
	if c.json() {
		if err := c.printJSON(list); err != nil {
			return err
		}
	} else {
		c.printRefreshed(list)
	}
	if len(failed) > 0 {
		return fail(exitFailed, "not refreshed: %s", strings.Join(failed, ", "))
	}
	return nil
}

func (c trialVerb) printRefreshed(list []refreshed) {
	if len(list) == 0 {
		fmt.Fprintln(c.stderr, "no server runs")
	}
	for _, r := range list {
		switch {
		case r.Error != "":
			fmt.Fprintf(c.stderr, "%s: %s\n", r.Server, escape(r.Error, oneLine))
		case len(r.Changes) == 0:
			fmt.Fprintf(c.stderr, "%s: no changes\n", r.Server)
		default:
			fmt.Fprintf(c.stdout, "%s:\n", r.Server)
			c.printChanges(c.stdout, r.Changes)
		}
	}
}

// listAgain has the gateway ask a server for its list again, and returns the changes.
func (c trialVerb) listAgain(ctx context.Context, name string) ([]drift.Change, error) {
	var changes []drift.Change
	err := c.askOperator(ctx, http.MethodPost, "/servers/"+name+"/refresh", struct{}{}, &changes)
	return append([]drift.Change{}, changes...), err // an empty list in JSON, never null
}

// printChanges lists what has changed in the definitions of a server, if anything has.
func (c trialVerb) printChanges(w io.Writer, changes []drift.Change) {
	if len(changes) == 0 {
		return
	}
	rows := [][]cell{heading("CHANGE", "KIND", "NAME", "DETAIL")}
	for _, d := range changes {
		colour, words := "", d.Breaks
		if d.Breaking() {
			colour = red
		}
		if d.Held {
			words = append(words, "held back until you accept it (pfar pins)")
		}
		rows = append(rows, []cell{{d.What, colour}, {d.Kind, ""}, {d.Name, ""}, {strings.Join(words, "; "), ""}})
	}
	c.table(w, rows)
}

// offers is what a server has last offered, nil if the gateway cannot say.
func (c trialVerb) offers(ctx context.Context, server string) (list []drift.Definition) {
	_ = c.askOperator(ctx, http.MethodGet, "/servers/"+server+"/offers", nil, &list)
	return list
}
