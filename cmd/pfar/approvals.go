package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

const approvalsHelp = `Show the calls that wait for you, and answer them. If the policy leaves a call to you, it runs only after you
approve it here. pfar tells the client that made the call to wait, or to send the call again.

You approve one call, exactly as it is shown, once, within five minutes. If the arguments, tool, policy or
session label change first, the call needs a new approval. A restart of pfar denies all waiting calls; a run
of a flow then asks again.

On a terminal this is a screen, which follows what happens: keys open a call, approve or deny it, give a grant, or
open all calls that are alike and answer them together. A key approves a call only after all of the call has been on
the screen. Another key resets the label of a call's session, or of a session whose client came back after an hour.
"pfar approvals list" prints the list instead, as does this command without a terminal, with --json, with TERM=dumb or
with the variable ACCESSIBLE.

If one client has several calls of one tool, the list says in which arguments they differ.`

const approveHelp = `Show a waiting call, and let it run. Without a terminal this needs --yes.

--grant also gives a grant: the same session may call the same tool again without a question, with other arguments,
for a time, a number of calls and a number of bytes of arguments: 30m, 20 and 4k, unless --for, --calls and --bytes say
otherwise. --grant-public-reads gives one for all tools that only read, and whose output is public. A grant covers a
call only if its arguments are short, look like no secret, and hold no 20 bytes in a row that the session has read from
a source more secret than the audience of the tool. A call that could carry private data out after strangers' text came
in always asks you. "pfar grants" lists grants and revokes them.

A call that takes more than 64 KiB on the screen needs --digest: nobody reads that on a terminal. Run
"pfar approvals show ID > FILE", read FILE, and give the digest at its end.`

// approvalsVerb shows the calls that wait for a person, and answers them.
type approvalsVerb struct{ *pfar }

func (c approvalsVerb) approvalsCommand() *cobra.Command {
	root := c.outputFlag(&cobra.Command{
		Use: "approvals", Short: "Show the calls that wait for you, and answer them", Long: approvalsHelp,
		Example: example("pfar approvals", "pfar approvals show k3bq7x-...",
			"pfar approvals approve k3bq7x-...", "pfar approvals watch --notify"),
		RunE: alone(c.approvals),
	})
	var a approveFlags
	approve := c.outputFlag(&cobra.Command{
		Use: "approve ID", Short: "Let a call run, once", Long: approveHelp,
		Example:           example("pfar approvals approve k3bq7x-...", "pfar approvals approve k3bq7x-... --grant --for 1h"),
		ValidArgsFunction: offerFirst(c.offeredApprovals),
		RunE:              func(cmd *cobra.Command, args []string) error { return c.approve(cmd.Context(), args[0], a) },
	})
	flags := approve.Flags()
	flags.BoolVar(&a.yes, "yes", false, "do not ask")
	flags.StringVar(&a.digest, "digest", "", "approve the call only if it has this digest")
	a.grant.flags(flags)
	var reason string
	deny := c.outputFlag(&cobra.Command{
		Use: "deny ID", Short: "Deny a call", ValidArgsFunction: offerFirst(c.offeredApprovals),
		RunE: func(cmd *cobra.Command, args []string) error { return c.deny(cmd.Context(), args[0], reason) },
	})
	deny.Flags().StringVar(&reason, "reason", "", "tell the client why")
	root.AddCommand(
		c.verb("list", "List the calls that wait", alone(c.approvalsList)),
		c.outputFlag(&cobra.Command{
			Use: "show ID", Short: "Show a waiting call in full", ValidArgsFunction: offerFirst(c.offeredApprovals),
			RunE: onOne(c.approvalsShow),
		}),
		approve, deny, c.approvalsWatchCommand(),
		c.verb("history", "List the last answered calls, and who answered", alone(c.approvalsHistory)))
	return root
}

// approvalPath is the path of one, or of a grant: an id as the gateway writes it, however it was typed.
func approvalPath(under, typed string) (string, error) {
	s := strings.ToLower(strings.NewReplacer("-", "", " ", "").Replace(typed))
	if len(s) != 26 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", usage("%q is not the ID of an approval: write all its 26 letters and digits", typed).withHint("pfar approvals")
	}
	return under + s[:6] + "-" + s[6:11] + "-" + s[11:16] + "-" + s[16:21] + "-" + s[21:], nil
}

func (c approvalsVerb) waiting(ctx context.Context, id string) (w waitingCall, path string, err error) {
	if path, err = approvalPath("/approvals/", id); err == nil {
		err = c.askOperator(ctx, http.MethodGet, path, nil, &w)
	}
	return w, path, err
}

func (c approvalsVerb) offeredApprovals(ctx context.Context) ([]string, error) {
	var all []waitingCall
	err := c.askOperator(ctx, http.MethodGet, "/approvals", nil, &all)
	var ids []string
	for _, w := range all {
		if w.State == operator.Pending && visible.ShellSafe(w.ID) {
			ids = append(ids, completion(w.ID, w.Client+" "+w.what()))
		}
	}
	return ids, err
}

// approvals shows a screen where there is a terminal, else the list.
func (c approvalsVerb) approvals(ctx context.Context) error {
	if c.live() {
		return c.interactive(ctx)
	}
	return c.approvalsList(ctx)
}

func (c approvalsVerb) approvalsList(ctx context.Context) error {
	all, err := operatorList[waitingCall](ctx, c.pfar, "/approvals", "no call waits")
	if err != nil || len(all) == 0 {
		return err
	}
	rows := [][]cell{heading("ID", "CLIENT", "CALL", "LEFT", "STATE", "WHY")}
	example := ""
	for _, w := range all {
		colour := yellow
		if len(w.Findings) > 0 || w.Decision.Once {
			colour = red
		}
		if w.State == operator.Pending && example == "" {
			example = w.ID
		}
		left := (time.Duration(w.Left) * time.Second).String()
		rows = append(rows, []cell{
			{w.ID, ""}, {cut(w.Client, 20), ""}, {cut(visible.Reveal(w.what()), 100), colour}, {left, ""}, {w.State.String(), ""},
			{visible.Reveal(w.Decision.Reason), ""},
		})
	}
	c.table(c.stdout, rows)
	printTogether(c.streams, all)
	if example != "" {
		c.hintAt("pfar approvals show " + example)
	}
	return nil
}

func (c approvalsVerb) approvalsShow(ctx context.Context, id string) error {
	w, _, err := c.waiting(ctx, id)
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(w)
	}
	printWaiting(c.streams, c.stdout, &w)
	if w.State == operator.Pending {
		c.hintAt("pfar approvals approve " + w.ID + ", or deny it")
	}
	return nil
}

// approveFlags are those of approve.
type approveFlags struct {
	yes    bool
	digest string
	grant  grantFlags
}

// approve approves what it shows, by its digest.
func (c approvalsVerb) approve(ctx context.Context, id string, a approveFlags) error {
	if err := c.canAsk(a.yes, "pfar approvals show"); err != nil {
		return err
	}
	terms, err := a.grant.terms()
	if err != nil {
		return err
	}
	w, path, err := c.waiting(ctx, id)
	if err != nil {
		return err
	}
	if err := w.approvable(a.digest); err != nil {
		return err
	}
	if err := c.ask(ctx, a.yes, a.question(&w), func(out io.Writer) { printWaiting(c.streams, out, &w) }); err != nil {
		return err
	}
	body := map[string]any{"digest": w.Digest}
	if terms != nil {
		body["grant"] = terms
	}
	return c.answered(ctx, path+"/approve", body)
}

func (a approveFlags) question(w *waitingCall) string {
	what := cut(visible.Reveal(w.what()), 60)
	return fmt.Sprintf("Let %s call %s once%s?", w.Client, what, a.grant.words(w.Session))
}

// approvable refuses what cannot be shown whole, and another call than that of a digest.
func (w *waitingCall) approvable(digest string) error {
	switch {
	case w.State != operator.Pending:
		return fail(exitFailed, "the call is already %s", w.State)
	case digest == "" && wording.Read(&w.Shown).TooLong():
		return fail(exitFailed, "the call is too long to read on a terminal").
			withHint("pfar approvals show %s >call.txt, read it, and approve it with --digest and the digest at its end", w.ID)
	case digest != "" && (len(digest) < exactly || !strings.HasPrefix(w.Digest, digest)):
		return fail(exitFailed, "the call has another digest than %s", digest)
	}
	return nil
}

func (c approvalsVerb) deny(ctx context.Context, id, reason string) error {
	path, err := approvalPath("/approvals/", id)
	if err != nil {
		return err
	}
	return c.answered(ctx, path+"/deny", map[string]string{"reason": reason})
}
