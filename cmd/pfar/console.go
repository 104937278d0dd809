package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

const consoleHelp = `Print a link to your pages of pfar on this machine. There you answer waiting calls, read
and accept what servers offer, see what they want and do, see what sessions have read, make clean sessions and
remove stains, and see your clients, problems on this machine, and the newest audit records. If you run pfard
yourself, you also add, import, start and stop servers there, declare clients, find the hosts that servers need, and
allow those and the ones that pfar refused. You can read the logs of servers if you run pfard, or if pfar is
installed.

Open the link in a browser within 10 minutes. It works once, and the browser stays signed in until nobody has used
the pages for 30 minutes, or until "pfar console logout".

The pages act as you, with your rights. A user of an installed pfar needs to be a member of the group pfar-admin; root
has no pages.`

// consoleVerb opens the operator's pages.
type consoleVerb struct{ *pfar }

func (c consoleVerb) consoleCommand() *cobra.Command {
	root := c.outputFlag(&cobra.Command{
		Use: "console", Short: "Print a link to the pages where you answer calls", Long: consoleHelp,
		Example: example("pfar console", "pfar console logout"), RunE: alone(c.open),
	})
	root.AddCommand(c.verb("logout", "Sign out your browsers on this machine, and end your pages", alone(c.logout)))
	return root
}

func (c consoleVerb) open(ctx context.Context) error {
	r, err := c.control().Do(ctx, control.Request{Verb: control.Console})
	if errors.Is(err, control.ErrDenied) {
		return fail(exitDenied, "%w", err).withHint("sudo usermod -aG pfar-admin USER, and sign in again as that user")
	}
	if err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(map[string]string{"link": r.Link})
	}
	showLink(c.pfar, r.Link)
	fmt.Fprintln(c.stderr, "The link works once, within 10 minutes. Do not show it to others: "+
		"anybody who has it can answer in your place.")
	return nil
}

func (c consoleVerb) logout(ctx context.Context) error {
	_, err := c.control().Do(ctx, control.Request{Verb: control.Logout})
	if err == nil && c.json() {
		return c.printJSON(map[string]string{"result": "signed out"})
	}
	if err == nil {
		fmt.Fprintln(c.stdout, "signed out")
	}
	return err
}

// showLink shows the link of a page on this machine, and how a browser on another one reaches it.
func showLink(c *pfar, link string) {
	say := func(format string, a ...any) { fmt.Fprintf(c.stderr, format+"\n", a...) }
	if u, err := url.Parse(link); err == nil {
		port, _ := strconv.ParseUint(u.Port(), 10, 16)
		if forward := (loginVerb{c}).forward(uint16(port)); forward != "" {
			say("\nThe page is on this machine. If your browser runs on another machine, first run\n"+
				"this command there:\n\n  %s", escape(forward, oneLine))
		}
	}
	say("\nOpen this link in your browser, and go on there:\n\n  %s\n", escape(link, oneLine))
}
