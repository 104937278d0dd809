package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/wording"
)

const sessionsHelp = `Show the labels of clients' sessions: the most secret data that a session may have seen, and
whether strangers may have written such data. The gate decides by this label. Every output of a server raises it,
and it outlives reconnects. Only "reset" lowers it; a client with sessions = "connection" has a new label for each connection.

Each client has a session named "default"; commands without a HANDLE use it. "new" makes another one with a clean
label, for another task. The client uses it at /mcp/CLIENT/HANDLE.

If a client comes back to a labelled session after an hour or more without a call, "list", "pfar status" and
"pfar approvals show" say so for an hour. If its program has begun a new conversation, reset the session.

pfar freezes a session after five denials in a row, and then denies all its calls until "thaw".

If a session writes to a server, the server gets a stain: the label of the session. Its output has at least that
label, until "clear".`

// sessionsVerb shows the labels of sessions.
type sessionsVerb struct{ *pfar }

func (c sessionsVerb) sessionsCommand() *cobra.Command {
	var yes bool
	act := func(use, short, question string) *cobra.Command {
		verb, _, _ := strings.Cut(use, " ")
		cmd := c.outputFlag(&cobra.Command{
			Use: use, Short: short, ValidArgsFunction: offerFirst(c.offeredSessions),
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.sessionAct(cmd.Context(), args[0], verb, question, yes)
			},
		})
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
		return cmd
	}
	root := c.outputFlag(&cobra.Command{
		Use: "sessions", Short: "Show the labels of clients' sessions, and reset them", Long: sessionsHelp,
		Example: example("pfar sessions", "pfar sessions show laptop/default", "pfar sessions new laptop", "pfar sessions reset laptop/default"),
		RunE:    alone(c.sessionsList),
	})
	clear := c.outputFlag(&cobra.Command{
		Use: "clear SERVER", Short: "Remove the stain of a server", ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error { return c.clearStain(cmd.Context(), args[0], yes) },
	})
	clear.Flags().BoolVar(&yes, "yes", false, "do not ask")
	root.AddCommand(
		c.verb("list", "List all sessions", alone(c.sessionsList)),
		c.outputFlag(&cobra.Command{
			Use: "show CLIENT[/HANDLE]", Short: "Show the calls that raised a session's label", ValidArgsFunction: offerFirst(c.offeredSessions),
			RunE: onOne(c.sessionsShow),
		}),
		c.verb("new CLIENT", "Make a clean session for a client, and print its handle", onOne(c.sessionsNew)),
		act("reset CLIENT[/HANDLE]", "Reset a session's label", wording.ResetQuestion),
		act("thaw CLIENT[/HANDLE]", "Let a frozen session make calls again", wording.ThawQuestion),
		act("end CLIENT/HANDLE", "End a session that \"sessions new\" made", wording.EndQuestion),
		c.verb("stains", "List the servers that labelled sessions wrote to", alone(c.stains)), clear)
	return root
}

func nameOf(s operator.Session) string { return s.Client + "/" + s.Handle }

func (c sessionsVerb) sessionsList(ctx context.Context) error {
	all, err := operatorList[operator.Session](ctx, c.pfar, "/sessions", "no client is declared")
	if err != nil || len(all) == 0 {
		return err
	}
	rows := [][]cell{heading("SESSION", "LABEL", "USED", "STATE")}
	for _, s := range all {
		state, colour := "", ""
		if s.Frozen != "" {
			state, colour = "frozen: "+s.Frozen, red
		} else if s.Silent > 0 {
			state = wording.Silence(s.Silent, nameOf(s))
		}
		rows = append(rows, []cell{{nameOf(s), ""}, {s.Label.String(), labelColour(s.Label)}, {minute(s.Used), ""}, {state, colour}})
	}
	c.table(c.stdout, rows)
	return nil
}

func labelColour(l gate.Label) string {
	if l.Integrity == gate.Clean {
		return ""
	}
	return yellow
}

// sessionPath is the path of a session that is written CLIENT/HANDLE, or of a client's default one.
func sessionPath(name string) (string, error) {
	client, handle, named := strings.Cut(name, "/")
	if !named {
		handle = access.DefaultSession
	}
	if declaration.ClientNameFault(client) != "" || !access.ValidHandle(handle) {
		return "", usage("%q is not a session: write CLIENT/HANDLE, or CLIENT for its default session", name).withHint("pfar sessions")
	}
	return "/sessions/" + client + "/" + handle, nil
}

func (c sessionsVerb) sessionsShow(ctx context.Context, name string) error {
	path, err := sessionPath(name)
	if err != nil {
		return err
	}
	var s operator.Session
	if err := c.askOperator(ctx, http.MethodGet, path, nil, &s); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(s)
	}
	fmt.Fprintf(c.stdout, "%s: %s\n", visible.Reveal(nameOf(s)), visible.Reveal(s.Label.String()))
	if s.Frozen != "" {
		fmt.Fprintf(c.stdout, "frozen: %s; to let it go on: pfar sessions thaw %s\n", visible.Reveal(s.Frozen), visible.Reveal(nameOf(s)))
	}
	if s.Silent > 0 {
		fmt.Fprintln(c.stdout, visible.Reveal(wording.Silence(s.Silent, nameOf(s))))
	}
	if !s.Reset.IsZero() {
		fmt.Fprintf(c.stdout, "reset at %s by %s\n", minute(s.Reset), visible.Reveal(s.ResetBy))
	}
	if len(s.Sources) == 0 {
		return nil
	}
	rows := [][]cell{heading("AT", "FROM", "CALL", "LABEL")}
	for _, f := range s.Sources {
		rows = append(rows, []cell{
			{minute(f.At), ""}, {visible.Reveal(f.Server + "." + f.Tool), ""}, {f.Call, ""},
			{f.Label.String(), labelColour(f.Label)},
		})
	}
	c.table(c.stdout, rows)
	return nil
}

func (c sessionsVerb) sessionsNew(ctx context.Context, client string) error {
	var made struct {
		Client string `json:"client"`
		Handle string `json:"handle"`
	}
	if err := c.askOperator(ctx, http.MethodPost, "/sessions", map[string]string{"client": client}, &made); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(made)
	}
	fmt.Fprintln(c.stdout, escape(made.Handle, oneLine))
	c.hintAt(fmt.Sprintf("the client uses it at /mcp/%s/%s", made.Client, made.Handle))
	return nil
}

func (c sessionsVerb) sessionAct(ctx context.Context, name, verb, question string, yes bool) error {
	path, err := sessionPath(name)
	if err == nil {
		err = c.canAsk(yes, "pfar sessions show")
	}
	if err == nil {
		err = c.ask(ctx, yes, fmt.Sprintf(question, strings.TrimPrefix(path, "/sessions/")), func(io.Writer) {})
	}
	if err != nil {
		return err
	}
	return c.answered(ctx, path+"/"+verb, struct{}{})
}

func (c sessionsVerb) stains(ctx context.Context) error {
	all, err := operatorList[operator.Stain](ctx, c.pfar, "/stains", "no server is stained")
	if err != nil || len(all) == 0 {
		return err
	}
	rows := [][]cell{heading("SERVER", "LABEL", "SINCE", "BY", "ALSO IN")}
	for _, s := range all {
		since, by := "", ""
		if len(s.Sources) > 0 {
			since, by = minute(s.Sources[0].At), s.Sources[0].Client+"/"+s.Sources[0].Handle+" with "+s.Sources[0].Tool
		}
		rows = append(rows, []cell{
			{s.Server, ""}, {s.Label.String(), labelColour(s.Label)}, {since, ""}, {visible.Reveal(by), ""},
			{visible.Reveal(strings.Join(s.Places, " ")), ""},
		})
	}
	c.table(c.stdout, rows)
	return nil
}

func (c sessionsVerb) clearStain(ctx context.Context, server string, yes bool) error {
	if !units.IsServer(server) {
		return fail(exitNoSuch, "no such server: %q", server)
	}
	if err := c.canAsk(yes, "pfar sessions stains"); err != nil {
		return err
	}
	question := fmt.Sprintf(wording.ClearQuestion, server)
	if err := c.ask(ctx, yes, question, func(io.Writer) {}); err != nil {
		return err
	}
	return c.answered(ctx, "/stains/"+server+"/clear", struct{}{})
}

func (c sessionsVerb) offeredSessions(ctx context.Context) ([]string, error) {
	var all []operator.Session
	err := c.askOperator(ctx, http.MethodGet, "/sessions", nil, &all)
	var names []string
	for _, s := range all {
		if visible.ShellSafe(nameOf(s)) {
			names = append(names, completion(nameOf(s), s.Label.String()))
		}
	}
	return names, err
}
